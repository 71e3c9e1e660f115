//! The event queue of every simulation.
//!
//! Events leave in the order of (time, class, sequence): time first; at one time the lower class
//! first (a completion before an arrival, say); within a class in the order of insertion. So a run
//! is a function of its input alone, whatever the machine.
//!
//! ```
//! use allrail_core::{EventQueue, Time};
//! let mut queue = EventQueue::new();
//! queue.push(Time::from_ns(2), 0, "late");
//! queue.push(Time::from_ns(1), 1, "second class");
//! queue.push(Time::from_ns(1), 0, "first class");
//! assert_eq!(queue.pop(), Some((Time::from_ns(1), "first class")));
//! assert_eq!(queue.pop(), Some((Time::from_ns(1), "second class")));
//! ```

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Time;

struct Entry<E> {
    /// Time, class and sequence, from the highest bits on: compared as one.
    key: u128,
    event: E,
}

impl<E> Entry<E> {
    fn time(&self) -> Time {
        Time::from_ps((self.key >> TIME_SHIFT) as u64)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    // Reversed: `BinaryHeap` hands out the greatest, we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

/// A priority queue of events with a total, reproducible order.
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    sequence: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

const TIME_SHIFT: u32 = 64;
const CLASS_SHIFT: u32 = 56;

impl<E> EventQueue<E> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `event` at `time`; of the events of one time, lower classes leave first.
    pub fn push(&mut self, time: Time, class: u8, event: E) {
        let class_and_sequence = (u64::from(class) << CLASS_SHIFT) | self.sequence;
        let key = u128::from(time.as_ps()) << TIME_SHIFT | u128::from(class_and_sequence);
        self.sequence += 1;
        self.heap.push(Entry { key, event });
    }

    /// Takes the earliest event.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.heap.pop().map(|entry| (entry.time(), entry.event))
    }

    /// When the earliest event happens.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(Entry::time)
    }

    /// When the earliest event happens, and its class.
    #[must_use]
    pub fn peek(&self) -> Option<(Time, u8)> {
        self.heap.peek().map(|entry| (entry.time(), (entry.key >> CLASS_SHIFT) as u8))
    }

    /// How many events wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Removes all events and starts the sequence anew; the memory is kept.
    pub fn clear(&mut self) {
        self.heap.clear();
        self.sequence = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The oracle: a stable sort by (time, class).
        #[test]
        fn leaves_in_the_order_of_a_stable_sort(
            events in prop::collection::vec((0u64..6, 0u8..3), 0..60)
        ) {
            let mut queue = EventQueue::new();
            for (i, (time, class)) in events.iter().enumerate() {
                queue.push(Time::from_ps(*time), *class, i);
            }
            let mut expected: Vec<usize> = (0..events.len()).collect();
            expected.sort_by_key(|i| events[*i]);
            let mut got = Vec::new();
            while let Some((_, i)) = queue.pop() {
                got.push(i);
            }
            prop_assert_eq!(got, expected);
        }
    }
}
