//! Which of a program's messages wait for which, where sends wait for their own blocks only ([`Waits::Blocks`](crate::program::Waits::Blocks)).
//!
//! A message is *done* when it has left, or has come and is combined. It may be once all before it, in the order of
//! steps, that touch its blocks are done: a send after the receives that it passes on, a receive after the receives
//! that it is added to and after the sends of what it replaces. Nothing else is waited for, so trees that share
//! ranks do not hold each other up; the sums are those of the steps.
//!
//! A [rank's part](crate::rank) of a plan has the same rule on elements, whatever a program says: bytes are always
//! carried so. What a program says is how it is predicted.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Program;
use crate::program::{Blocks, Combine, Step};
use crate::waits::{Lists, Touch, waits};

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It leaves for the peer, to whom it is the message of this number.
    Sends(u32),
    /// It comes from the peer.
    Receives(Combine),
}

/// A message of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: u32,
    /// How many blocks.
    pub blocks: u32,
    /// Which way.
    pub does: Does,
    /// Of a send, the number of the switches that it passes in [`Dataflow::ways`]; `None` for any shortest way.
    pub way: Option<u32>,
}

/// The messages of one rank, by number: in the order of steps, the sends of one before its receives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankMessages {
    messages: Vec<Message>,
    before: Vec<u32>,
    after: Lists,
}

impl RankMessages {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Message] {
        &self.messages
    }

    /// For how many others each waits.
    #[must_use]
    pub fn waits_for(&self) -> &[u32] {
        &self.before
    }

    /// Those that wait for one.
    #[must_use]
    pub fn frees(&self, number: u32) -> &[u32] {
        self.after.of(number)
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dataflow {
    /// By rank.
    pub ranks: Vec<RankMessages>,
    /// The switches of each way that a send names.
    pub ways: Vec<Box<[u32]>>,
}

impl Dataflow {
    /// Of a program that is right ([`crate::verify`]).
    ///
    /// # Panics
    /// A send of a program that is wrong may have no receive.
    #[must_use]
    pub fn of(program: &Program) -> Self {
        // To the receiver, by step, sender and receiver: the numbers of what comes, in order.
        let mut numbers: BTreeMap<(usize, u32, u32), std::vec::IntoIter<u32>> = BTreeMap::new();
        for (rank, steps) in (0u32..).zip(&program.steps) {
            let mut number = 0u32;
            let mut of_rank: BTreeMap<(usize, u32), Vec<u32>> = BTreeMap::new();
            for (at, Step { sends, receives }) in steps.iter().enumerate() {
                number += u32::try_from(sends.len()).expect("fewer than 2^32 messages");
                for receive in receives {
                    of_rank.entry((at, receive.from)).or_default().push(number);
                    number += 1;
                }
            }
            let keyed = of_rank.into_iter().map(|((at, from), list)| ((at, from, rank), list));
            numbers.extend(keyed.map(|(key, list)| (key, list.into_iter())));
        }
        let mut heard_as = |at: usize, from: u32, to: u32| {
            let next = numbers.get_mut(&(at, from, to)).and_then(Iterator::next);
            next.expect("the program is right: each send is awaited")
        };
        let mut ways = Ways::default();
        let ranks = (0u32..)
            .zip(&program.steps)
            .map(|(rank, steps)| of_rank(program.blocks, rank, steps, &mut heard_as, &mut ways));
        Self { ranks: ranks.collect(), ways: ways.list }
    }

    /// How many messages the rank with the most has.
    #[must_use]
    pub fn most(&self) -> u32 {
        let most = self.ranks.iter().map(|rank| rank.messages.len()).max().unwrap_or(0);
        u32::try_from(most).expect("fewer than 2^32 messages")
    }
}

/// The ways that sends name, each once.
#[derive(Default)]
struct Ways {
    list: Vec<Box<[u32]>>,
    numbers: BTreeMap<Box<[u32]>, u32>,
}

impl Ways {
    fn number(&mut self, via: &[u32]) -> Option<u32> {
        if via.is_empty() {
            return None;
        }
        if let Some(known) = self.numbers.get(via) {
            return Some(*known);
        }
        let number = u32::try_from(self.list.len()).expect("fewer than 2^32 ways");
        self.list.push(via.into());
        self.numbers.insert(via.into(), number);
        Some(number)
    }
}

fn of_rank(
    total: u32,
    rank: u32,
    steps: &[Step],
    heard_as: &mut impl FnMut(usize, u32, u32) -> u32,
    ways: &mut Ways,
) -> RankMessages {
    let (mut messages, mut ranges, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for (at, Step { sends, receives }) in steps.iter().enumerate() {
        for send in sends {
            let does = Does::Sends(heard_as(at, rank, send.to));
            let (blocks, way) = (send.blocks.len(), ways.number(&send.via));
            messages.push(Message { peer: send.to, blocks, does, way });
            touched(&send.blocks, total, &mut ranges);
            ends.push(ranges.len());
        }
        for receive in receives {
            let does = Does::Receives(receive.combine);
            let (peer, blocks) = (receive.from, receive.blocks.len());
            messages.push(Message { peer, blocks, does, way: None });
            touched(&receive.blocks, total, &mut ranges);
            ends.push(ranges.len());
        }
    }
    let touch = messages.iter().enumerate().map(|(number, message)| {
        let first = number.checked_sub(1).map_or(0, |before| ends[before]);
        let sends = matches!(message.does, Does::Sends(_));
        Touch { sends, ranges: &ranges[first..ends[number]] }
    });
    let (before, after) = waits(touch, &ranges);
    let count = |number: usize| {
        let list = before.of(u32::try_from(number).expect("fewer than 2^32 messages"));
        u32::try_from(list.len()).expect("fewer than 2^32 messages")
    };
    let before = (0..messages.len()).map(count).collect();
    RankMessages { messages, before, after }
}

/// Appends the blocks as ranges of a buffer of `total`.
fn touched(blocks: &Blocks, total: u32, out: &mut Vec<Range<u64>>) {
    let first = out.len();
    for block in blocks.iter(total).map(u64::from) {
        match out[first..].last_mut() {
            Some(range) if range.end == block => range.end += 1,
            _ => out.push(block..block + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rank 1 passes block 0 on, and has nothing to do with block 1 but to receive it.
    #[test]
    fn a_send_waits_for_its_own_blocks_alone() {
        let mut program = Program::empty(3, 2, 2);
        let one = |block: u32| Blocks::range(block..block + 1);
        program.message(0, (0, one(0)), (1, one(0)), Combine::Replace);
        program.message(0, (2, one(1)), (1, one(1)), Combine::Replace);
        program.message(1, (1, one(0)), (2, one(0)), Combine::Replace);
        let Dataflow { ranks, .. } = Dataflow::of(&program);
        assert_eq!(ranks[1].waits_for(), [0, 0, 1]);
        assert_eq!((ranks[1].frees(0), ranks[1].frees(1)), (&[2][..], &[][..]));
        assert_eq!(ranks[1].all()[2].does, Does::Sends(1));
        assert_eq!(ranks[2].all()[1].does, Does::Receives(Combine::Replace));
    }

    #[test]
    fn sums_are_made_in_the_order_of_steps() {
        let mut program = Program::empty(3, 1, 2);
        for (step, from) in [(0, 1), (1, 2)] {
            let all = Blocks::range(0..1);
            program.message(step, (from, all.clone()), (0, all), Combine::Reduce);
        }
        let Dataflow { ranks, .. } = Dataflow::of(&program);
        assert_eq!(ranks[0].waits_for(), [0, 1]);
    }
}
