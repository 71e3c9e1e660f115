//! The steps of all-reduces made of rings: who is next on each ring, and who sends when.
//!
//! Rings come in pairs, one for each direction; in every step of a run each rank sends one message
//! to its next on either of the two. What is kept is two tables of `p` ranks for each pair, whatever
//! the number of messages.

use std::ops::Range;

use allrail_core::Bytes;

use crate::Steps;

/// The next of each rank, and the one before it, on disjoint rings through all ranks.
pub(super) struct Pair {
    forward: Vec<u32>,
    backward: Vec<u32>,
}

impl Pair {
    /// The ring of all ranks in this order.
    pub(super) fn of_order(order: &[u32]) -> Self {
        let mut pair = Self { forward: vec![0; order.len()], backward: vec![0; order.len()] };
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            pair.forward[*from as usize] = *to;
            pair.backward[*to as usize] = *from;
        }
        pair
    }

    /// One ring for each row of the grid.
    pub(super) fn rows(rows: u32, columns: u32) -> Self {
        Self::of_lines(rows * columns, 1, columns)
    }

    /// One ring for each column of the grid.
    pub(super) fn columns(rows: u32, columns: u32) -> Self {
        Self::of_lines(rows * columns, columns, rows)
    }

    fn of_lines(ranks: u32, stride: u32, size: u32) -> Self {
        let moved = |rank: u32, by: u32| {
            let at = rank / stride % size;
            rank - at * stride + (at + by) % size * stride
        };
        Self {
            forward: (0..ranks).map(|rank| moved(rank, 1)).collect(),
            backward: (0..ranks).map(|rank| moved(rank, size - 1)).collect(),
        }
    }
}

/// Steps in which every rank sends `bytes` both ways on a pair.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) pair: usize,
    pub(super) during: Range<u32>,
    pub(super) bytes: Bytes,
}

/// Rings that run in some of the steps.
pub(super) struct RingSteps {
    pub(super) pairs: Vec<Pair>,
    /// In the order in which a rank's messages are listed.
    pub(super) runs: Vec<Run>,
}

impl RingSteps {
    fn active(&self, step: u32) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.during.contains(&step))
    }
}

impl Steps for RingSteps {
    fn ranks(&self) -> u32 {
        u32::try_from(self.pairs[0].forward.len()).expect("ranks are counted in 32 bits")
    }

    fn steps(&self) -> u32 {
        self.runs.iter().map(|run| run.during.end).max().unwrap_or(0)
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        for run in self.active(step) {
            let pair = &self.pairs[run.pair];
            out.push((pair.forward[rank as usize], run.bytes));
            out.push((pair.backward[rank as usize], run.bytes));
        }
    }

    fn expected(&self, _: u32, step: u32) -> u32 {
        // Every rank is next to one other on each ring.
        2 * u32::try_from(self.active(step).count()).expect("few runs")
    }

    fn alike(&self) -> Vec<Range<u32>> {
        let mut ends: Vec<u32> =
            self.runs.iter().flat_map(|run| [run.during.start, run.during.end]).collect();
        ends.sort_unstable();
        ends.dedup();
        let sent = |step| -> Vec<(usize, Bytes)> {
            self.active(step).map(|run| (run.pair, run.bytes)).collect()
        };
        let mut alike: Vec<Range<u32>> = Vec::new();
        for pair in ends.windows(2) {
            match alike.last_mut() {
                Some(last) if sent(last.start) == sent(pair[0]) => last.end = pair[1],
                _ => alike.push(pair[0]..pair[1]),
            }
        }
        alike.retain(|run| run.len() > 1);
        alike
    }
}
