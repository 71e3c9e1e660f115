//! The event queue of `packets`: a calendar of buckets, in the order of (time, class, insertion).
//!
//! An event is an action on a link. Almost all of them lie within a few packet times of now, so each
//! goes into a bucket of `2^shift` ps; a bucket is sorted once, when its turn comes. What lies beyond
//! the last bucket waits in a heap. The order is that of `allrail_core::EventQueue`, which a test
//! compares it with.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens; of the actions of one time, the upper ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// The first packet on the link reaches its far end.
    Arrive,
    /// The far end of the link can send another packet through its crossbar.
    InputFree,
    /// The link may take another packet from the crossbar, or has got credit back.
    OutputFree,
    /// The last byte of an NPU's own packet has left on the link.
    SourceFree,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Four times the time in picoseconds, plus the class.
    key: u64,
    pub(super) link: u32,
    pub(super) action: Action,
}

impl Entry {
    /// An action is its own class.
    fn new(time: u64, link: u32, action: Action) -> Self {
        Self { key: time.min(LAST) << CLASS_BITS | action as u64, link, action }
    }

    pub(super) const fn time(self) -> u64 {
        self.key >> CLASS_BITS
    }
}

const CLASS_BITS: u32 = 2;
/// Nothing is later, in picoseconds (53 days): drivers break off before.
const LAST: u64 = u64::MAX >> CLASS_BITS;

const BUCKETS: u64 = 2048;

/// See the module.
pub(super) struct Calendar {
    shift: u32,
    /// The number of the bucket that is being emptied.
    base: u64,
    /// That bucket, sorted; what is before `position` has been taken.
    current: Vec<Entry>,
    position: usize,
    /// The buckets `base + 1 .. base + BUCKETS`, each in the order of insertion.
    buckets: Vec<Vec<Entry>>,
    /// A bit for each bucket that is not empty.
    occupied: [u64; BUCKETS as usize / 64],
    /// Everything later, with the order of insertion.
    later: BinaryHeap<Reverse<(u64, u64, Entry)>>,
    sequence: u64,
}

impl Calendar {
    /// An empty calendar for events that mostly lie less than `reach` ps ahead.
    pub(super) fn new(reach: u64) -> Self {
        let width = (reach / BUCKETS).max(1);
        Self {
            shift: u64::BITS - 1 - width.leading_zeros(),
            base: 0,
            current: Vec::new(),
            position: 0,
            buckets: vec![Vec::new(); BUCKETS as usize],
            occupied: [0; BUCKETS as usize / 64],
            later: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub(super) fn push(&mut self, time: u64, link: u32, action: Action) {
        let entry = Entry::new(time, link, action);
        let bucket = time >> self.shift;
        if bucket <= self.base {
            let rest = &self.current[self.position..];
            let place = if rest.last().is_none_or(|last| last.key <= entry.key) {
                rest.len()
            } else {
                rest.partition_point(|other| other.key <= entry.key)
            };
            self.current.insert(self.position + place, entry);
        } else if bucket < self.base + BUCKETS {
            self.put(bucket, entry);
        } else {
            self.later.push(Reverse((entry.key, self.sequence, entry)));
            self.sequence += 1;
        }
    }

    fn put(&mut self, bucket: u64, entry: Entry) {
        let place = bucket % BUCKETS;
        self.buckets[place as usize].push(entry);
        self.occupied[place as usize / 64] |= 1 << (place % 64);
    }

    /// The next event, if it is at `until` or before.
    pub(super) fn pop(&mut self, until: u64) -> Option<Entry> {
        while self.position == self.current.len() {
            let next = self.next_bucket()?;
            if next << self.shift > until {
                return None;
            }
            self.turn_to(next);
        }
        let entry = self.current[self.position];
        if entry.time() > until {
            return None;
        }
        self.position += 1;
        Some(entry)
    }

    /// The link of an event so many ahead, if its bucket is being emptied.
    pub(super) fn ahead(&self, events: usize) -> Option<u32> {
        self.current.get(self.position + events).map(|entry| entry.link)
    }

    /// When the next event happens.
    pub(super) fn next_time(&self) -> Option<u64> {
        if let Some(entry) = self.current.get(self.position) {
            return Some(entry.time());
        }
        let next = self.next_bucket()?;
        let near = if next < self.base + BUCKETS {
            self.buckets[(next % BUCKETS) as usize].iter().map(|entry| entry.time()).min()
        } else {
            None
        };
        near.or_else(|| self.later.peek().map(|Reverse((key, ..))| key >> CLASS_BITS))
    }

    /// The number of the next bucket that holds anything; beyond the calendar, of the first of
    /// `later`.
    fn next_bucket(&self) -> Option<u64> {
        let words = self.occupied.len() as u64;
        let start = (self.base + 1) % BUCKETS;
        // The word of `start` is looked at twice: its upper bits first, its lower ones last.
        for step in 0..=words {
            let word = (start / 64 + step) % words;
            let mut bits = self.occupied[word as usize];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let place = word * 64 + u64::from(bits.trailing_zeros());
                return Some(self.base + 1 + (place + BUCKETS - start) % BUCKETS);
            }
        }
        self.later.peek().map(|Reverse((key, ..))| (key >> CLASS_BITS) >> self.shift)
    }

    fn turn_to(&mut self, bucket: u64) {
        self.base = bucket;
        self.current.clear();
        self.position = 0;
        // What comes into reach goes in before anything that is pushed from now on.
        while let Some(&Reverse((key, _, entry))) = self.later.peek() {
            let number = (key >> CLASS_BITS) >> self.shift;
            if number >= self.base + BUCKETS {
                break;
            }
            self.later.pop();
            self.put(number, entry);
        }
        let place = bucket % BUCKETS;
        std::mem::swap(&mut self.current, &mut self.buckets[place as usize]);
        self.occupied[place as usize / 64] &= !(1 << (place % 64));
        // Stable: insertion decides between equal keys.
        self.current.sort_by_key(|entry| entry.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_core::{EventQueue, Time};
    use proptest::prelude::*;

    proptest! {
        /// The oracle: the event queue of every other simulation. Delays reach far beyond the
        /// calendar; some pops stop early.
        #[test]
        fn leaves_in_the_order_of_the_event_queue(
            reach in 1u64..100_000,
            steps in prop::collection::vec(
                (prop::collection::vec((0u64..12, 0u32..24, 0usize..4), 0..4), 0u64..50_000), 1..120)
        ) {
            let mut calendar = Calendar::new(reach);
            let mut queue = EventQueue::new();
            let (mut now, mut link) = (0, 0);
            for (pushes, ahead) in steps {
                for (mantissa, exponent, class) in pushes {
                    let time = now + (mantissa << exponent >> 4);
                    let action = [
                        Action::Arrive,
                        Action::InputFree,
                        Action::OutputFree,
                        Action::SourceFree,
                    ][class];
                    calendar.push(time, link, action);
                    queue.push(Time::from_ps(time), class as u8, (time, link));
                    link += 1;
                }
                prop_assert_eq!(calendar.next_time(), queue.next_time().map(Time::as_ps));
                let until = now + ahead;
                let got = calendar.pop(until).map(|entry| (entry.time(), entry.link));
                let due = queue.next_time().is_some_and(|time| time.as_ps() <= until);
                let expected = if due { queue.pop().map(|(_, event)| event) } else { None };
                prop_assert_eq!(got, expected);
                now = got.map_or(until, |(time, _)| time);
            }
        }
    }
}
