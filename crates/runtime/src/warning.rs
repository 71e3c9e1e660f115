//! An exchange or a call that waits for a rank which answers and does not take part: what is said of it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What waits, since when and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The tensor, the name of the call, or `call 7 (all_reduce of 3 elements of float32)`.
    pub tensor: String,
    /// Whether ranks call it; else they submit it.
    pub is_call: bool,
    /// How many other exchanges of this rank wait as long.
    pub others: usize,
    /// For so many seconds.
    pub seconds: u64,
    /// Who has not submitted or called it. Nobody: all have, and the bytes take this long.
    pub missing: Vec<u32>,
    /// Who has, as far as is known, this rank among them.
    pub waiting: Vec<u32>,
    /// Of those that are missing: what they wait for instead.
    pub instead: Vec<(u32, String)>,
    /// Frames that have come here: from whom, and of which call that this rank has not begun.
    pub early: Vec<(u32, String)>,
    /// When the job ends, counted as `seconds`.
    pub ends: u64,
}

/// How many ranks, or what they wait for, a sentence names.
const NAMED: usize = 8;
const MOST_INSTEAD: usize = 3;

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

/// Whether one name may have been meant by the other: but for case and signs, or for a letter or two.
fn is_like(one: &str, other: &str) -> bool {
    let plain = |text: &str| -> Vec<char> {
        text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let (a, b) = (plain(one), plain(other));
    if one == other || a.len().abs_diff(b.len()) > 2 || a.len().max(b.len()) > 256 {
        return false;
    }
    let most = (a.len().max(b.len()) / 3).min(2);
    // The edit distance, a row of its table at a time.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (corner + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()] <= most
}

impl Warning {
    /// Who is missing, and what is known of why.
    pub(crate) fn who(&self) -> String {
        let Self { tensor, is_call, missing, instead, early, .. } = self;
        let (call, called) = if *is_call { ("call", "called") } else { ("submit", "submitted") };
        let mut text = match missing.as_slice() {
            [] => format!("all ranks have {called} it"),
            some => format!("{} did not {call} it", ranks(some)),
        };
        for (rank, other) in instead.iter().take(MOST_INSTEAD) {
            text += &format!("; rank {rank} waits for `{other}`");
            if is_like(tensor, other) {
                text += &format!(" (did you mean `{other}`?)");
            }
        }
        for (rank, other) in early.iter().take(MOST_INSTEAD) {
            text += &format!("; rank {rank} has sent {other}, which this rank has not begun");
        }
        text
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, others, seconds, missing, waiting, instead, ends, .. } = self;
        write!(f, "`{tensor}`")?;
        if *others > 0 {
            write!(f, " and {others} more")?;
        }
        write!(f, ": {}", self.who())?;
        if missing.is_empty() {
            write!(f, ", and it is not over after {seconds} s; ")?;
        } else {
            let word = if waiting.len() == 1 { "waits" } else { "wait" };
            write!(f, "; {} {word} for it for {seconds} s; ", ranks(waiting))?;
            if instead.is_empty() {
                let (missing, answers) = (ranks(missing), missing.len() == 1);
                let answers =
                    if answers { "answers, so it computes" } else { "answer, so they compute" };
                write!(
                    f,
                    "{missing} {answers}, saves, compiles, is in a debugger or takes another branch; "
                )?;
            }
        }
        write!(f, "the job ends after {ends} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_have_been_meant_are_alike() {
        for (one, other) in [
            ("loss", "Loss"),
            ("val/loss", "val_loss"),
            ("weight", "wieght"),
            ("grad.12", "grad12"),
        ] {
            assert!(is_like(one, other) && is_like(other, one), "{one} {other}");
        }
        for (one, other) in [
            ("loss", "loss"),
            ("a", "b"),
            ("loss", "weight"),
            ("step", "loss"),
            ("grad.1", "grad.2222"),
        ] {
            assert!(!is_like(one, other), "{one} {other}");
        }
    }

    #[test]
    fn a_warning_says_who_waits_and_what_others_wait_for() {
        let mut warning = Warning {
            tensor: "loss".to_owned(),
            is_call: true,
            others: 0,
            seconds: 60,
            missing: vec![1],
            waiting: vec![0, 2],
            instead: vec![(1, "Loss".to_owned())],
            early: Vec::new(),
            ends: 1800,
        };
        assert_eq!(
            warning.to_string(),
            "`loss`: rank 1 did not call it; rank 1 waits for `Loss` (did you mean `Loss`?); ranks 0, 2 wait \
             for it for 60 s; the job ends after 1800 s"
        );
        warning.instead.clear();
        (warning.missing, warning.is_call) = (Vec::new(), false);
        warning.early = vec![(1, "call 99".to_owned())];
        assert_eq!(
            warning.to_string(),
            "`loss`: all ranks have submitted it; rank 1 has sent call 99, which this rank has not begun, and it \
             is not over after 60 s; the job ends after 1800 s"
        );
    }
}
