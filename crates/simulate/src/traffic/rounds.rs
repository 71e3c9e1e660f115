//! The steps of a collective, run as messages; steps that repeat are run a few times and counted.
//!
//! A rank begins a step when all that it receives in the steps before has arrived. Where
//! [`Steps::alike`] names a run of `L` steps, [`Shortened`] keeps only the first `2K`. They are timed
//! where all ranks have completed the `K`-th and the `2K`-th of them, and the rest is added:
//!
//! ```text
//! time = t(run) + Σ over runs of (L − 2K) · (t_2K − t_K) / K
//! ```
//!
//! It is exact where a step takes as long as the one before it. `skip: false` runs all.

use std::collections::VecDeque;
use std::ops::Range;

use allrail_collective::Steps;
use allrail_core::{Bytes, Time, counted};

use super::driver::{Demand, Message};

/// `K`: steps of a run that are timed, and as many before them to become steady.
pub const STEADY: u32 = 8;

/// A collective with only the first steps of each run of alike ones.
pub struct Shortened<'a> {
    inner: &'a dyn Steps,
    /// Which step of the collective each of its steps is.
    kept: Vec<u32>,
    /// Of each run that was cut: its steps before the cut, where its `K`-th and its `2K`-th kept step
    /// stand.
    cuts: Vec<Cut>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    left_out: u32,
    first_mark: u32,
    second_mark: u32,
}

impl<'a> Shortened<'a> {
    /// Keeps `2 · steady` steps of each run that is longer; everything where `steady` is `None`.
    #[must_use]
    pub fn new(inner: &'a dyn Steps, steady: Option<u32>) -> Self {
        let (mut kept, mut cuts) = (Vec::new(), Vec::new());
        let mut runs: Vec<Range<u32>> = inner.alike();
        runs.sort_by_key(|run| run.start);
        let mut step = 0;
        if let Some(steady) = steady {
            for run in runs {
                let length = run.end - run.start;
                if run.start < step || length <= 2 * steady {
                    continue;
                }
                kept.extend(step..run.start + 2 * steady);
                let end = kept.len() as u32;
                cuts.push(Cut {
                    left_out: length - 2 * steady,
                    first_mark: end - steady - 1,
                    second_mark: end - 1,
                });
                step = run.end;
            }
        }
        kept.extend(step..inner.steps());
        Self { inner, kept, cuts }
    }

    /// The time of the whole from the times at which each kept step was completed everywhere.
    #[must_use]
    pub fn whole(&self, completed: &[Time]) -> Time {
        let mut time = completed.last().copied().unwrap_or(Time::ZERO);
        for cut in &self.cuts {
            let span = completed[cut.second_mark as usize] - completed[cut.first_mark as usize];
            let steps = cut.second_mark - cut.first_mark;
            let added =
                u128::from(span.as_ps()) * u128::from(cut.left_out) / u128::from(steps.max(1));
            time += Time::from_ps(u64::try_from(added).unwrap_or(u64::MAX));
        }
        time
    }

    /// The bytes of the whole from those of each kept step.
    #[must_use]
    pub fn whole_bytes(&self, sent: &[u64]) -> u64 {
        let left_out = |cut: &Cut| u64::from(cut.left_out) * sent[cut.second_mark as usize];
        sent.iter().sum::<u64>() + self.cuts.iter().map(left_out).sum::<u64>()
    }

    /// How many steps are left out.
    #[must_use]
    pub fn left_out(&self) -> u32 {
        self.cuts.iter().map(|cut| cut.left_out).sum()
    }
}

impl Steps for Shortened<'_> {
    fn ranks(&self) -> u32 {
        self.inner.ranks()
    }

    fn steps(&self) -> u32 {
        self.kept.len() as u32
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        self.inner.sends(rank, self.kept[step as usize], out);
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.inner.expected(rank, self.kept[step as usize])
    }
}

/// Runs steps: rank `r` is NPU `r`.
pub struct Rounds<S> {
    steps: S,
    ranks: Vec<RankState>,
    /// When each step was completed by the last rank, and how many ranks have not completed it.
    completed: Vec<Time>,
    open: Vec<u32>,
    sends: Vec<(u32, Bytes)>,
    /// Bytes sent in each step, by all ranks.
    bytes: Vec<u64>,
    done: u64,
}

#[derive(Clone, Debug, Default)]
struct RankState {
    step: u32,
    /// Arrivals for the current step and those after it.
    arrived: VecDeque<u32>,
}

impl<S: Steps> Rounds<S> {
    /// Nothing has been sent yet.
    #[must_use]
    pub fn new(steps: S) -> Self {
        let (ranks, count) = (steps.ranks(), steps.steps() as usize);
        Self {
            steps,
            ranks: vec![RankState::default(); ranks as usize],
            completed: vec![Time::ZERO; count],
            open: vec![ranks; count],
            sends: Vec::new(),
            bytes: vec![0; count],
            done: 0,
        }
    }

    /// When each step was completed by the last rank.
    #[must_use]
    pub fn completed(&self) -> &[Time] {
        &self.completed
    }

    /// How many steps, from the first on, all ranks have completed.
    #[must_use]
    pub fn done_by_all(&self) -> u32 {
        self.open.partition_point(|&open| open == 0) as u32
    }

    /// Bytes sent in each step, by all ranks.
    #[must_use]
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Sends what the rank's current step has.
    fn send(&mut self, rank: u32, out: &mut Vec<Message>) {
        let step = self.ranks[rank as usize].step;
        if step == self.steps.steps() {
            return;
        }
        self.sends.clear();
        self.steps.sends(rank, step, &mut self.sends);
        for &(destination, bytes) in &self.sends {
            let tag = u64::from(destination) << 32 | u64::from(step);
            out.push(Message { source: rank, destination, bytes, tag });
            self.bytes[step as usize] += bytes.count();
        }
    }

    /// Completes every step of a rank whose messages have all arrived.
    fn advance(&mut self, now: Time, rank: u32, out: &mut Vec<Message>) {
        loop {
            let state = &mut self.ranks[rank as usize];
            let step = state.step;
            if step == self.steps.steps() {
                return;
            }
            let arrived = state.arrived.front().copied().unwrap_or(0);
            if arrived < self.steps.expected(rank, step) {
                return;
            }
            state.arrived.pop_front();
            state.step += 1;
            self.done += 1;
            let step = step as usize;
            self.completed[step] = self.completed[step].max(now);
            self.open[step] -= 1;
            self.send(rank, out);
        }
    }
}

impl<S: Steps> Demand for Rounds<S> {
    fn due(&mut self, now: Time, out: &mut Vec<Message>) {
        for rank in 0..self.steps.ranks() {
            self.send(rank, out);
        }
        for rank in 0..self.steps.ranks() {
            self.advance(now, rank, out);
        }
    }

    fn delivered(&mut self, now: Time, tag: u64, out: &mut Vec<Message>) {
        let (rank, step) = ((tag >> 32) as u32, tag as u32);
        let state = &mut self.ranks[rank as usize];
        let place = (step - state.step) as usize;
        if state.arrived.len() <= place {
            state.arrived.resize(place + 1, 0);
        }
        state.arrived[place] += 1;
        self.advance(now, rank, out);
    }

    fn progress(&self) -> (u64, u64) {
        (self.done, self.ranks.len() as u64 * u64::from(self.steps.steps()))
    }

    fn waits(&self) -> String {
        const SHOWN: usize = 12;
        let waiting = (0u32..).zip(&self.ranks).filter(|(_, r)| r.step < self.steps.steps());
        let lines = waiting.take(SHOWN).map(|(rank, state)| {
            let expected = self.steps.expected(rank, state.step);
            let arrived = state.arrived.front().copied().unwrap_or(0);
            let missing = expected - arrived;
            let expected = counted(expected, "message");
            format!("  rank {rank}: step {} waits for {missing} of {expected}", state.step)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
