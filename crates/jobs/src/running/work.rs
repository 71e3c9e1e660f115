//! What a job runs: which messages its NPUs send.
//!
//! An all-reduce is `rings` (two Hamiltonian rings, both ways) where the job's virtual grid of NPUs has
//! such a pair, else `torus`, and `ring` on a single line of NPUs. An all-to-all goes in shifts: in
//! step `k` rank `r` sends to `r + k + 1` (mod `p`), and goes on when its own message of that step has
//! arrived.
//!
//! Ranks are the virtual grid's NPUs, row by row. Every message of an all-reduce goes to a neighbour in
//! that grid: by a trace, or by the tree of the row or column. The first and the last NPU of a line of
//! two are neighbours twice, and both messages take the shorter way, the trace.

use allrail_collective::Steps;
use allrail_collective::grid::named;
use allrail_core::Bytes;
use serde::{Deserialize, Serialize};

/// What all jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Over all NPUs of the job.
    AllReduce,
    /// Every NPU of the job to every other.
    AllToAll,
}

/// All-reduces in the order in which they are tried; `ring` goes on any grid.
const FIRST_CHOICES: [&str; 2] = ["rings", "torus"];

impl Work {
    /// What a job with such a grid of NPUs runs.
    #[must_use]
    pub fn algorithm(self, rows: u32, columns: u32) -> &'static str {
        let fits = |tag: &&str| named(tag).is_ok_and(|known| known.check(rows, columns).is_ok());
        match self {
            Self::AllToAll => "shift",
            Self::AllReduce => FIRST_CHOICES.into_iter().find(fits).unwrap_or("ring"),
        }
    }

    /// Its steps; in an all-reduce, all messages of a step but `torus`' are of about `message` bytes.
    ///
    /// # Panics
    /// The grid is a single NPU: there is nothing to send.
    #[must_use]
    pub fn steps(self, rows: u32, columns: u32, message: Bytes) -> Box<dyn Steps> {
        let ranks = rows * columns;
        assert!(ranks > 1, "a job of one NPU sends nothing");
        match self {
            Self::AllToAll => Box::new(Shift { ranks, message }),
            Self::AllReduce => {
                let algorithm = named(self.algorithm(rows, columns)).expect("one of the known");
                let size = message.count().saturating_mul(4 * u64::from(ranks));
                algorithm.steps(rows, columns, Bytes::new(size))
            }
        }
    }
}

/// Steps that differ, and how often each comes.
pub(super) fn unlike(steps: &dyn Steps) -> Vec<(u32, u32)> {
    let mut unlike = Vec::new();
    let mut next = 0;
    for run in steps.alike() {
        unlike.extend((next..run.start).map(|step| (step, 1)));
        unlike.push((run.start, run.end - run.start));
        next = run.end;
    }
    unlike.extend((next..steps.steps()).map(|step| (step, 1)));
    unlike
}

/// An all-to-all in shifts.
struct Shift {
    ranks: u32,
    message: Bytes,
}

impl Steps for Shift {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn steps(&self) -> u32 {
        self.ranks - 1
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        out.push(((rank + step + 1) % self.ranks, self.message));
    }

    fn expected(&self, _: u32, _: u32) -> u32 {
        1
    }
}
