//! How many open files a process may have, and how many its nodes need: one for each connection, and a few more.

use std::io::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

/// What the nodes of this process need in all.
static NEEDED: AtomicU64 = AtomicU64::new(0);

/// A node will be connected that has so many files open at the most.
pub(crate) fn expect(files: u64) {
    NEEDED.fetch_add(files, Ordering::Relaxed);
}

/// A node is gone that had so many.
pub(crate) fn give_back(files: u64) {
    NEEDED.fetch_sub(files, Ordering::Relaxed);
}

/// Whether there are too many open files, of this process or of the machine.
pub(crate) fn is_exhausted(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What to do about it, if that is what an error says.
pub(crate) fn hint(error: &Error) -> Option<String> {
    match error.raw_os_error()? {
        libc::EMFILE => {
            let limit = getrlimit(Resource::Nofile);
            let now = limit.current.unwrap_or(u64::MAX);
            // All that may be open is, and some of it may be of nodes already.
            let wanted = now.saturating_add(NEEDED.load(Ordering::Relaxed)).next_multiple_of(256);
            Some(raise(now, wanted, limit.maximum.unwrap_or(u64::MAX)))
        }
        libc::ENFILE => {
            Some("this machine has too many open files: raise `fs.file-max`".to_owned())
        }
        _ => None,
    }
}

fn raise(now: u64, wanted: u64, most: u64) -> String {
    if wanted <= most {
        return format!("run `ulimit -n {wanted}` before the job starts, on each host (now {now})");
    }
    format!(
        "raise the limit of open files to {wanted} (`nofile` in /etc/security/limits.conf, `LimitNOFILE` of a \
         service): this user may raise it from {now} to {most} only"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn the_hint_has_a_number_that_suffices_and_may_be_set() {
        let needed = local(0, &[4, 8]).open_files();
        assert_eq!(needed, 31 + 3 + 7 + 2 * 4 + 16);
        expect(needed);
        assert!(NEEDED.load(Ordering::Relaxed) >= needed);
        give_back(needed);
        let text = hint(&Error::from_raw_os_error(libc::EMFILE)).expect("a hint");
        assert!(text.contains("ulimit -n ") || text.contains("nofile"), "{text}");
        assert!(raise(1024, 2048, 4096).contains("`ulimit -n 2048`"));
        assert!(raise(1024, 8192, 4096).contains("limits.conf"));
        assert_eq!(hint(&Error::from_raw_os_error(libc::ECONNREFUSED)), None);
    }
}
