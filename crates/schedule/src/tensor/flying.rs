//! Operations under way, by number. Numbers are given one after the other and end in any order, so they
//! stand in a row that begins with the oldest that is under way: no number is looked for, and a row that
//! has been long enough once allocates nothing more.

use std::collections::VecDeque;

use super::{OperationId, Piece};

/// What is kept of every operation that is under way.
pub(super) struct Flying<T> {
    /// The number of the first in the row.
    first: u64,
    row: VecDeque<Option<T>>,
}

impl<T> Flying<T> {
    pub(super) fn new() -> Self {
        Self { first: 0, row: VecDeque::new() }
    }

    /// The next operation, with its number.
    pub(super) fn start(&mut self, of: T) -> OperationId {
        let number = self.first + self.row.len() as u64;
        self.row.push_back(Some(of));
        OperationId(number)
    }

    /// What is kept of an operation.
    ///
    /// # Panics
    /// If it is not under way.
    pub(super) fn get(&mut self, operation: OperationId) -> &mut T {
        let place = operation.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let slot = place.and_then(|at| self.row.get_mut(at));
        slot.and_then(Option::as_mut).expect("an operation under way")
    }

    /// An operation is over.
    ///
    /// # Panics
    /// If it is not under way.
    pub(super) fn end(&mut self, operation: OperationId) -> T {
        let place = operation.0.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        let slot = place.and_then(|at| self.row.get_mut(at));
        let of = slot.and_then(Option::take).expect("a running operation finishes");
        while let Some(None) = self.row.front() {
            self.row.pop_front();
            self.first += 1;
        }
        of
    }
}

/// Partitions under way on the lanes of a scheduler, and the bytes that count as in flight on each.
pub(super) struct InFlight {
    /// The lane, what flies, and whether it counts.
    flying: Flying<(usize, Piece, bool)>,
    bytes: Vec<u64>,
}

impl InFlight {
    pub(super) fn new(lanes: usize) -> Self {
        Self { flying: Flying::new(), bytes: vec![0; lanes] }
    }

    /// The bytes that count on a lane.
    pub(super) fn bytes(&self, lane: usize) -> u64 {
        self.bytes[lane]
    }

    /// A partition starts on a lane.
    pub(super) fn start(&mut self, lane: usize, piece: Piece) -> OperationId {
        self.bytes[lane] += piece.bytes.count();
        self.flying.start((lane, piece, true))
    }

    /// An operation has arrived and counts no more, though it is not over.
    pub(super) fn arrived(&mut self, operation: OperationId) {
        let (lane, piece, counts) = self.flying.get(operation);
        if std::mem::take(counts) {
            self.bytes[*lane] -= piece.bytes.count();
        }
    }

    /// An operation is over: its lane, and what it was.
    pub(super) fn end(&mut self, operation: OperationId) -> (usize, Piece) {
        let (lane, piece, counts) = self.flying.end(operation);
        if counts {
            self.bytes[lane] -= piece.bytes.count();
        }
        (lane, piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_end_in_any_order_and_leave_nothing() {
        let mut flying = Flying::new();
        for round in 0..1_000u64 {
            let started: Vec<OperationId> = (0..5).map(|one| flying.start(one)).collect();
            assert_eq!(started[0], OperationId(round * 5));
            for place in [3, 0, 4, 1, 2] {
                assert_eq!(flying.end(started[place]), place);
            }
        }
        assert!(flying.row.is_empty() && flying.row.capacity() < 16);
    }

    #[test]
    #[should_panic(expected = "a running operation finishes")]
    fn none_ends_twice() {
        let mut flying = Flying::new();
        let (one, _) = (flying.start(1), flying.start(2));
        flying.end(one);
        flying.end(one);
    }
}
