//! Alike steps of a collective, carried as steady flows.
//!
//! A ring of 1,024 ranks has 2,046 alike steps: 2 M messages for one all-reduce. Where
//! [`Steps::alike`] names a run of `L` of them, one message stands for the `L` that a rank sends to
//! another, with the bytes of all of them, and what the `L − 1` other steps wait for is added when
//! the collective has ended:
//!
//! ```text
//! time = L · bytes / rate + T(L),   T(k + 1) of a rank = max(T(k), T(k) of each sender + latency)
//! added = max T(L) − max T(1),      the last step's latency being the network model's own
//! ```
//!
//! `T` is exact for messages that all take equally long to leave. So the time is that of message by
//! message where steps are alike and nothing disturbs them; a test compares the two. Under
//! disturbance it ignores that links rest while a step's latency passes, of which others make use.

use std::ops::Range;
use std::sync::Arc;

use allrail_collective::Steps;
use allrail_core::{Bytes, Time};

/// A collective whose runs of alike steps are one step each.
pub(super) struct Steady {
    inner: Arc<dyn Steps>,
    runs: Vec<Range<u32>>,
}

impl Steady {
    /// Of all runs that the collective names.
    pub(super) fn new(inner: Arc<dyn Steps>) -> Self {
        let mut named = inner.alike();
        named.sort_by_key(|run| run.start);
        let mut runs = Vec::new();
        let mut next = 0;
        for run in named.into_iter().filter(|run| run.len() > 1) {
            if run.start < next {
                continue;
            }
            runs.extend((next..run.start).map(|step| step..step + 1));
            next = run.end;
            runs.push(run);
        }
        runs.extend((next..inner.steps()).map(|step| step..step + 1));
        Self { inner, runs }
    }

    /// What is added to its end; `latency` is what a message from one rank to another waits for
    /// beside its bytes.
    pub(super) fn added(&self, latency: &mut dyn FnMut(u32, u32) -> Time) -> Time {
        let ranks = self.inner.ranks();
        let mut sends = Vec::new();
        let mut added = Time::ZERO;
        for run in self.runs.iter().filter(|run| run.len() > 1) {
            let mut edges: Vec<(u32, u32, Time)> = Vec::new();
            for rank in 0..ranks {
                sends.clear();
                self.inner.sends(rank, run.start, &mut sends);
                edges.extend(sends.iter().map(|&(to, _)| (rank, to, latency(rank, to))));
            }
            let most = edges.iter().map(|edge| edge.2).max().unwrap_or(Time::ZERO);
            let steps = run.end - run.start;
            if edges.iter().all(|edge| edge.2 == most) {
                added += most.checked_mul(u64::from(steps - 1)).unwrap_or(Time::MAX);
                continue;
            }
            let mut begun = vec![Time::ZERO; ranks as usize];
            let mut next = begun.clone();
            for _ in 0..steps {
                next.copy_from_slice(&begun);
                for &(from, to, wait) in &edges {
                    let arrives = begun[from as usize] + wait;
                    next[to as usize] = next[to as usize].max(arrives);
                }
                std::mem::swap(&mut begun, &mut next);
            }
            let last = begun.into_iter().max().unwrap_or(Time::ZERO);
            added += last.max(most) - most;
        }
        added
    }
}

impl Steps for Steady {
    fn ranks(&self) -> u32 {
        self.inner.ranks()
    }

    fn steps(&self) -> u32 {
        u32::try_from(self.runs.len()).expect("fewer than before")
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        let run = &self.runs[step as usize];
        let first = out.len();
        self.inner.sends(rank, run.start, out);
        for (_, bytes) in &mut out[first..] {
            *bytes = Bytes::new(bytes.count() * run.len() as u64);
        }
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.inner.expected(rank, self.runs[step as usize].start)
    }
}
