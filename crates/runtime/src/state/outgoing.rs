//! What is to be sent: by peer a heap of names, the most urgent first. It holds no bytes; they are read when
//! they leave.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_schedule::OperationName;

use crate::frame::HEADER;
use crate::memory::View;

/// A message that may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sending {
    pub(crate) operation: OperationName,
    pub(crate) chunk: u32,
    pub(crate) place: u32,
}

/// The higher priority first; of one priority, what could leave first.
#[derive(Default)]
pub(super) struct Heap(BinaryHeap<(i64, Reverse<u64>, Sending)>);

impl Heap {
    /// Adds what could leave as the `sequence`-th of all; whether it is the only one.
    pub(super) fn push(&mut self, priority: i64, sequence: u64, what: Sending) -> bool {
        let is_first = self.0.is_empty();
        self.0.push((priority, Reverse(sequence), what));
        is_first
    }

    pub(super) fn pop(&mut self) -> Option<Sending> {
        self.0.pop().map(|(.., what)| what)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A message on its way out.
pub(crate) struct Frame {
    pub(crate) what: Sending,
    pub(crate) header: [u8; HEADER],
    pub(crate) view: View,
    /// How much of the header has left.
    pub(crate) of_header: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_urgent_leaves_first_and_of_equals_the_first() {
        let mut heap = Heap::default();
        let sending = |place| Sending { operation: OperationName::default(), chunk: 0, place };
        for (sequence, priority) in [(0, 1), (1, 5), (2, 1), (3, -2), (4, 5)] {
            heap.push(priority, sequence, sending(sequence as u32));
        }
        let order: Vec<u32> = std::iter::from_fn(|| heap.pop()).map(|what| what.place).collect();
        assert_eq!(order, [1, 4, 0, 2, 3]);
    }
}
