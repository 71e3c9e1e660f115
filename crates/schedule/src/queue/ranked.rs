//! The heap under the policies that rank a stage once, when it comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Waiting;

/// (priority reversed, rank, tie-break, sequence): smaller goes first.
type Key = (Reverse<i64>, u64, u64, u64);

struct Entry(Key, Waiting);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.cmp(&self.0)
    }
}

/// Stages ordered by (priority, rank, arrival).
#[derive(Default)]
pub(super) struct Ranked {
    heap: BinaryHeap<Entry>,
    sequence: u64,
}

impl Ranked {
    /// Adds a stage; `rank` sees its sequence number and gives a rank and a tie-break: the lowest
    /// goes first.
    pub(super) fn push(&mut self, stage: Waiting, rank: impl FnOnce(u64) -> (u64, u64)) {
        let sequence = self.sequence;
        self.sequence += 1;
        let (rank, tie) = rank(sequence);
        self.heap.push(Entry((Reverse(stage.priority), rank, tie, sequence), stage));
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        self.heap.pop().map(|entry| entry.1)
    }

    pub(super) fn withdraw(&mut self, collective: u32) -> u32 {
        let before = self.heap.len();
        self.heap.retain(|entry| entry.1.collective != collective);
        u32::try_from(before - self.heap.len()).expect("fewer than 2^32 stages wait")
    }

    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let mut entries: Vec<&Entry> = self.heap.iter().collect();
        entries.sort_by_key(|entry| entry.0);
        entries.iter().map(|entry| entry.1).collect()
    }
}
