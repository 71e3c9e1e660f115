//! A queue of events that are near in time: days of one width in a ring, one sorted when it comes. What
//! is beyond the ring waits in a heap.
//!
//! Order: (time, sequence of insertion), as in [`allrail_core::EventQueue`], which is its oracle. It is
//! there for its speed: tens of thousands of ranks send to each other within microseconds.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_core::Time;

struct Entry<E> {
    time: u64,
    sequence: u64,
    event: E,
}

impl<E> Entry<E> {
    fn key(&self) -> (u64, u64) {
        (self.time, self.sequence)
    }
}
impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Days are 2^20 ps long, about a microsecond.
const WIDTH: u32 = 20;
const DAYS: u64 = 1 << 11;

/// The queue.
pub(super) struct Calendar<E> {
    /// The day that is being served.
    today: u64,
    /// Of today, latest first.
    sorted: Vec<Entry<E>>,
    /// Of today, inserted while it was being served.
    late: BinaryHeap<Reverse<Entry<E>>>,
    /// Of the days after today.
    days: Vec<Vec<Entry<E>>>,
    in_days: usize,
    /// Beyond them.
    far: BinaryHeap<Reverse<Entry<E>>>,
    sequence: u64,
}

impl<E> Calendar<E> {
    pub(super) fn new() -> Self {
        Self {
            today: 0,
            sorted: Vec::new(),
            late: BinaryHeap::new(),
            days: (0..DAYS).map(|_| Vec::new()).collect(),
            in_days: 0,
            far: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Adds an event; not before those that were taken out.
    pub(super) fn push(&mut self, time: Time, event: E) {
        let entry = Entry { time: time.as_ps(), sequence: self.sequence, event };
        self.sequence += 1;
        let day = entry.time >> WIDTH;
        if day <= self.today {
            self.late.push(Reverse(entry));
        } else if day < self.today + DAYS {
            self.days[(day % DAYS) as usize].push(entry);
            self.in_days += 1;
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// Goes on to the next day that has events, if today is over.
    fn turn(&mut self) {
        while self.sorted.is_empty() && self.late.is_empty() {
            let far = self.far.peek().map(|Reverse(entry)| entry.time >> WIDTH);
            let day = if self.in_days > 0 {
                let next = (self.today + 1..self.today + DAYS)
                    .find(|day| !self.days[(day % DAYS) as usize].is_empty());
                let next = next.expect("a day that is counted");
                far.map_or(next, |far| far.min(next))
            } else {
                let Some(far) = far else { return };
                far
            };
            self.today = day;
            // Days that the ring reaches now.
            while self.far.peek().is_some_and(|Reverse(e)| e.time >> WIDTH < day + DAYS) {
                let Some(Reverse(entry)) = self.far.pop() else { break };
                self.days[((entry.time >> WIDTH) % DAYS) as usize].push(entry);
                self.in_days += 1;
            }
            std::mem::swap(&mut self.sorted, &mut self.days[(day % DAYS) as usize]);
            self.in_days -= self.sorted.len();
            self.sorted.sort_unstable_by_key(|entry| Reverse(entry.key()));
        }
    }

    /// When the earliest event is.
    pub(super) fn next_time(&mut self) -> Option<Time> {
        self.turn();
        let sorted = self.sorted.last().map(|entry| entry.time);
        let late = self.late.peek().map(|Reverse(entry)| entry.time);
        [sorted, late].into_iter().flatten().min().map(Time::from_ps)
    }

    /// Takes out the earliest event.
    pub(super) fn pop(&mut self) -> Option<(Time, E)> {
        self.turn();
        let is_late = match (self.sorted.last(), self.late.peek()) {
            (Some(sorted), Some(Reverse(late))) => late.key() < sorted.key(),
            (None, Some(_)) => true,
            _ => false,
        };
        let entry = if is_late { self.late.pop().map(|Reverse(e)| e) } else { self.sorted.pop() };
        entry.map(|entry| (Time::from_ps(entry.time), entry.event))
    }

    /// Takes out all events, in order.
    pub(super) fn drain(&mut self) -> Vec<(Time, E)> {
        let mut all: Vec<Entry<E>> = self.sorted.drain(..).collect();
        all.extend(self.late.drain().map(|Reverse(entry)| entry));
        all.extend(self.days.iter_mut().flat_map(|day| day.drain(..)));
        all.extend(self.far.drain().map(|Reverse(entry)| entry));
        self.in_days = 0;
        all.sort_unstable_by_key(Entry::key);
        all.into_iter().map(|entry| (Time::from_ps(entry.time), entry.event)).collect()
    }
}

#[cfg(test)]
mod tests {
    use allrail_core::EventQueue;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The oracle: the event queue.
        #[test]
        fn it_is_an_event_queue(
            steps in prop::collection::vec((0u64..3, 0u64..5_000_000_000, 0u8..4), 1..200),
        ) {
            let (mut calendar, mut queue) = (Calendar::new(), EventQueue::new());
            let mut now = Time::ZERO;
            for (number, (scale, after, pops)) in steps.into_iter().enumerate() {
                let at = now + Time::from_ps(after >> (12 * scale));
                calendar.push(at, number);
                queue.push(at, 0, number);
                for _ in 0..pops {
                    prop_assert_eq!(calendar.next_time(), queue.next_time());
                    let taken = calendar.pop();
                    prop_assert_eq!(taken, queue.pop());
                    now = taken.map_or(now, |(time, _)| time);
                }
            }
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(calendar.drain(), rest);
        }
    }
}
