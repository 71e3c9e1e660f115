//! An NPU's messages that are not all in packets, in line.
//!
//! Those that may give the next packet stand in an array; the others behind them are a list within the
//! messages. Of each in the array is known which cables its packets may take, once it was asked: so
//! one that could take none that is open is passed over.

use super::message::Message;
use super::state::NONE;

/// An NPU looks for a packet in so many of its messages that stand first.
pub(super) const LOOKAHEAD: usize = 16;
/// A message that has given a packet stands behind so many others less one: so many are sent in turns,
/// as `HammingMesh` (SC'22, Table III) has four send machines an NPU.
const TURNS: usize = 4;

/// Cables of an NPU, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cables(pub(super) u64);

impl Cables {
    /// All, or nothing is known.
    pub(super) const ALL: Self = Self(u64::MAX);

    /// The cable `number` of `count`; none if there are too many for a bit each.
    pub(super) const fn one(number: usize, count: usize) -> Self {
        Self(if count <= u64::BITS as usize { 1 << number } else { 0 })
    }
}

/// One of those that stand first.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    pub(super) message: u32,
    pub(super) destination: u32,
    /// What its packets may take.
    pub(super) cables: Cables,
}

/// See the module.
pub(super) struct Line {
    /// [`LOOKAHEAD`] at most.
    first: Vec<Standing>,
    /// The first and the last of the others.
    others: [u32; 2],
}

impl Line {
    pub(super) fn new() -> Self {
        Self { first: Vec::new(), others: [NONE; 2] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    pub(super) fn get(&self, place: usize) -> Option<Standing> {
        self.first.get(place).copied()
    }

    /// The one at `place` may take these and no others.
    pub(super) fn know(&mut self, place: usize, cables: Cables) {
        self.first[place].cables = cables;
    }

    /// Message `id` takes its place at the end: which, if it is among the first.
    pub(super) fn push(&mut self, messages: &mut [Message], id: u32) -> Option<usize> {
        if self.first.len() < LOOKAHEAD {
            self.first.push(standing(messages, id));
            return Some(self.first.len() - 1);
        }
        let [first, last] = &mut self.others;
        if *first == NONE {
            *first = id;
        } else {
            messages[*last as usize].next = id;
        }
        *last = id;
        None
    }

    /// The one at `place` lets the next ones pass.
    pub(super) fn step_back(&mut self, messages: &mut [Message], place: usize) {
        let goal = place + TURNS - 1;
        let [next, _] = self.others;
        if goal < self.first.len() || next == NONE {
            let goal = goal.min(self.first.len() - 1);
            self.first[place..=goal].rotate_left(1);
            return;
        }
        // It stands among the others; the first of them comes up.
        let id = self.first.remove(place).message;
        let mut before = next;
        for _ in LOOKAHEAD..goal {
            match messages[before as usize].next {
                NONE => break,
                next => before = next,
            }
        }
        messages[id as usize].next = messages[before as usize].next;
        messages[before as usize].next = id;
        if self.others[1] == before {
            self.others[1] = id;
        }
        self.come_up(messages);
    }

    /// The one at `place` leaves.
    pub(super) fn remove(&mut self, messages: &mut [Message], place: usize) {
        self.first.remove(place);
        self.come_up(messages);
    }

    /// Message `id`, which stands somewhere in line, leaves.
    pub(super) fn withdraw(&mut self, messages: &mut [Message], id: u32) {
        if let Some(place) = self.first.iter().position(|one| one.message == id) {
            return self.remove(messages, place);
        }
        let (mut before, mut other) = (NONE, self.others[0]);
        while other != id {
            (before, other) = (other, messages[other as usize].next);
        }
        let next = std::mem::replace(&mut messages[id as usize].next, NONE);
        match before {
            NONE => self.others[0] = next,
            before => messages[before as usize].next = next,
        }
        if self.others[1] == id {
            self.others[1] = before;
        }
    }

    fn come_up(&mut self, messages: &mut [Message]) {
        let id = self.others[0];
        if id != NONE {
            self.others[0] = std::mem::replace(&mut messages[id as usize].next, NONE);
            self.first.push(standing(messages, id));
        }
    }
}

fn standing(messages: &[Message], id: u32) -> Standing {
    let destination = messages[id as usize].destination;
    Standing { message: id, destination, cables: Cables::ALL }
}
