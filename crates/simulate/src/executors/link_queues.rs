//! The messages that wait for a link between two ranks, where each leaves once its own blocks are there.
//!
//! A link sends one at a time. Of those that may leave, the one goes first whose collective has the higher priority or
//! began earlier, then the one of the earlier chunk, then of the earlier step.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Marks a departure as a link's: no other tag has this bit.
const LINK: u64 = 1 << 63;

/// A message that may leave, in the order in which links send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    /// Of its collective: higher goes first.
    pub(super) priority: Reverse<i64>,
    /// How many collectives had begun before its own.
    pub(super) begun: u64,
    /// Its chunk.
    pub(super) chunk: u32,
    /// Its number among the messages of its stage on the sender.
    pub(super) number: u32,
    /// What it is of.
    pub(super) flight: u32,
    /// The sender's position there.
    pub(super) position: u32,
}

/// From one actor to another, by a way that messages name or by none.
pub(super) type Link = (u32, u32, Option<u32>);

#[derive(Default)]
struct Queue {
    under_way: Option<Waiting>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// Whether it is among `idle`.
    idle: bool,
}

/// The queues of all links that have had messages.
#[derive(Default)]
pub(super) struct LinkQueues {
    of: HashMap<Link, u32>,
    queues: Vec<Queue>,
    /// Links that have nothing under way and something to send.
    idle: Vec<u32>,
}

impl LinkQueues {
    /// A message may leave.
    pub(super) fn push(&mut self, along: Link, message: Waiting) {
        let next = u32::try_from(self.queues.len()).expect("fewer than 2^32 links");
        let link = *self.of.entry(along).or_insert(next);
        if link == next {
            self.queues.push(Queue::default());
        }
        self.queues[link as usize].waiting.push(Reverse(message));
        self.look(link);
    }

    /// What a departure that is a link's has sent; the link may send again.
    pub(super) fn left(&mut self, tag: u64) -> Option<Waiting> {
        let link = Self::is_link(tag).then_some((tag & !LINK) as u32)?;
        let left = self.queues[link as usize].under_way.take();
        self.look(link);
        left
    }

    /// Whether a departure is a link's.
    pub(super) fn is_link(tag: u64) -> bool {
        tag & LINK != 0
    }

    fn look(&mut self, link: u32) {
        let queue = &mut self.queues[link as usize];
        if !queue.idle && queue.under_way.is_none() && !queue.waiting.is_empty() {
            queue.idle = true;
            self.idle.push(link);
        }
    }

    /// Whether no link could send.
    pub(super) fn are_settled(&self) -> bool {
        self.idle.is_empty()
    }

    /// What the next idle link sends, and the tag of its departure.
    pub(super) fn next(&mut self) -> Option<(Waiting, u64)> {
        let link = self.idle.pop()?;
        let queue = &mut self.queues[link as usize];
        queue.idle = false;
        let Reverse(first) = queue.waiting.pop()?;
        queue.under_way = Some(first);
        Some((first, LINK | u64::from(link)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_earlier_chunk_first() {
        let message = |chunk, number| Waiting {
            priority: Reverse(0),
            begun: 0,
            chunk,
            number,
            flight: 0,
            position: 0,
        };
        let mut links = LinkQueues::default();
        for (chunk, number) in [(2, 0), (1, 5), (1, 3)] {
            links.push((0, 1, None), message(chunk, number));
        }
        let (first, tag) = links.next().expect("idle");
        assert_eq!((first.chunk, first.number), (1, 3));
        assert!(links.are_settled() && links.next().is_none());
        assert_eq!(links.left(tag), Some(first));
        assert_eq!(links.left(7), None);
        let rest: Vec<u32> = std::iter::from_fn(|| {
            let (next, tag) = links.next()?;
            links.left(tag);
            Some(next.chunk)
        })
        .collect();
        assert_eq!(rest, [1, 2]);
    }
}
