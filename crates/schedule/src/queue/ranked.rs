//! What is under the policies that rank a stage once, when it comes: a heap, and beside it those that
//! came in the order in which they go.

use std::collections::{BinaryHeap, VecDeque};

use super::Waiting;

/// (priority reversed, then rank; tie-break, then sequence): smaller goes first.
type Key = (u128, u128);

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
    /// Each goes after the one before it: no heap has to be put in order for these.
    line: VecDeque<Entry>,
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
        // As an unsigned number that falls as the priority rises.
        let priority = !stage.priority.cast_unsigned() ^ 1 << 63;
        let pair = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let entry = Entry((pair(priority, rank), pair(tie, sequence)), stage);
        match self.line.back() {
            Some(last) if entry.0 < last.0 => self.heap.push(entry),
            _ => self.line.push_back(entry),
        }
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let entry = match (self.line.front(), self.heap.peek()) {
            (Some(first), Some(top)) if top.0 < first.0 => self.heap.pop(),
            (None, _) => self.heap.pop(),
            _ => self.line.pop_front(),
        };
        entry.map(|entry| entry.1)
    }

    pub(super) fn withdraw(&mut self, collective: u32) -> u32 {
        let before = self.heap.len() + self.line.len();
        self.heap.retain(|entry| entry.1.collective != collective);
        self.line.retain(|entry| entry.1.collective != collective);
        let left = self.heap.len() + self.line.len();
        u32::try_from(before - left).expect("fewer than 2^32 stages wait")
    }

    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let mut entries: Vec<&Entry> = self.heap.iter().chain(&self.line).collect();
        entries.sort_by_key(|entry| entry.0);
        entries.iter().map(|entry| entry.1).collect()
    }
}
