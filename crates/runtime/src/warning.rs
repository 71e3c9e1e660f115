//! An exchange that waits for a rank which answers and does not submit: said, and nothing more.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Who waits for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The tensor; of calls `call 7`.
    pub tensor: String,
    /// How many other exchanges of this rank wait as long.
    pub others: usize,
    /// For so many seconds.
    pub seconds: u64,
    /// Who has not submitted it. Nobody: all have, and the bytes take this long.
    pub missing: Vec<u32>,
    /// Who has, as far as is known, this rank among them.
    pub waiting: Vec<u32>,
    /// When the job ends, counted as `seconds`.
    pub ends: u64,
}

/// How many ranks a sentence names.
const NAMED: usize = 8;

/// `rank 3`, `ranks 1, 2`.
pub(crate) fn ranks(all: &[u32]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(u32::to_string).collect();
    let word = if all.len() == 1 { "rank" } else { "ranks" };
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{word} {}{more}", named.join(", "))
}

/// `1.5s` as people say it.
pub(crate) fn seconds(time: Duration) -> u64 {
    time.as_secs()
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, others, seconds, missing, waiting, ends } = self;
        write!(f, "`{tensor}`")?;
        if *others > 0 {
            write!(f, " and {others} more")?;
        }
        if missing.is_empty() {
            return write!(
                f,
                ": all ranks have submitted it, and it is not over after {seconds} s"
            );
        }
        let (missing, waiting) = (ranks(missing), ranks(waiting));
        write!(f, ": {missing} did not submit it, and {waiting} wait for it for {seconds} s; ")?;
        write!(
            f,
            "{missing} answers, so it computes, saves, compiles or is debugged, or takes another "
        )?;
        write!(f, "branch; the job ends after {ends} s")
    }
}
