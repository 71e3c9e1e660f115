//! On which CPU the thread of a dimension runs, where the user says: near its interface, and away from what
//! computes.

use allrail_core::{counted, either};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{RuntimeError, Settings};

/// Moves this thread to a CPU, and nowhere else.
pub(super) fn pin(cpu: u32) -> Result<(), Errno> {
    let cpu = cpu as usize;
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)
}

/// Whether threads of this process may run where the settings say.
pub(crate) fn check(settings: &Settings) -> Result<(), RuntimeError> {
    let (pins, dimensions) = (settings.pin.len(), settings.dimensions.len());
    if pins > dimensions {
        let why = format!(
            "there {are} {dimensions}, and each has one thread",
            dimensions = counted(dimensions, "dimension"),
            are = either(&dimensions, "is", "are")
        );
        let hint = "a CPU, or null, for each dimension";
        return Err(RuntimeError::setting("pin", format!("{pins} CPUs"), why, hint));
    }
    let failed = |error: Errno| RuntimeError::system("the CPUs of this thread", &error.into());
    // What may run where only the kernel knows: this thread tries it, and goes back.
    let before = sched_getaffinity(None).map_err(failed)?;
    let refused = (0..).zip(&settings.pin).find_map(|(d, cpu): (usize, _)| {
        let cpu = (*cpu)?;
        pin(cpu).is_err().then_some((d, cpu))
    });
    sched_setaffinity(None, &before).map_err(failed)?;
    let Some((d, cpu)) = refused else { return Ok(()) };
    // SAFETY: it takes a number and returns one.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    let why = if i64::from(cpu) < all {
        "this process may not run there: it is off, or its container has other CPUs".to_owned()
    } else {
        format!("this machine has {all} CPUs, counted from 0")
    };
    let hint = "a CPU that `nproc --all` and `taskset -p $$` show, or null";
    Err(RuntimeError::setting(format!("pin[{d}]"), cpu, why, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn a_cpu_that_is_not_there_is_refused_and_this_thread_stays_free() {
        let settings = |pin| Settings { pin, ..local(0, &[2, 2]) };
        let before = sched_getaffinity(None).expect("of this thread");
        let mine = (0..CpuSet::MAX_CPU as u32).find(|cpu| before.is_set(*cpu as usize));
        assert_eq!(check(&settings(vec![None, mine])), Ok(()));
        assert_eq!(check(&settings(Vec::new())), Ok(()));
        for cpu in [100_000, CpuSet::MAX_CPU as u32 - 1] {
            let error = check(&settings(vec![mine, Some(cpu)])).expect_err("no such CPU");
            assert!(error.to_string().starts_with(&format!("`pin[1]` is `{cpu}`: ")), "{error}");
        }
        assert!(check(&settings(vec![mine; 3])).is_err());
        assert_eq!(sched_getaffinity(None).expect("of this thread"), before);
    }
}
