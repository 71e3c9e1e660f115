//! Calls: the k-th without a name, and the k-th of each name, is the same operation on every rank.
//!
//! A caller knows a call by its ticket: its number, or, where it has a name, one above all numbers. Of names only
//! those with a call under way are known here: the engine counts, and forgets.

use std::collections::{BTreeMap, VecDeque};

use allrail_collective::Operation;
use allrail_core::counted;
use allrail_engine::Dtype;
use allrail_schedule::Key;

use super::times::Times;
use crate::error::RuntimeError;
use crate::memory::Memory;

/// How many calls that are over wait for [`Calls::take_finished`]; of older ones only waiting tells.
const MOST_FINISHED: usize = 1 << 16;

/// The ticket of the first call with a name.
const NAMED: u64 = Key::CALLS;

/// In the last word of a rank, and in signs of life: how many calls are over there. No tensor has this key.
pub(super) const CALLS: Key = Key(0);

/// A name with a call under way.
pub(super) struct Named {
    pub(super) name: String,
    ticket: u64,
    /// How many calls of the name were begun, with this one.
    pub(super) count: u64,
    /// When this one was, on the machine's clock, in nanoseconds.
    pub(super) at: u64,
}

/// A call under way.
pub(super) struct Open {
    pub(super) memory: Memory,
    pub(super) operation: Operation,
    pub(super) elements: u64,
    pub(super) dtype: Dtype,
    /// What was asked for, where that is something else, for people.
    pub(super) asked: Option<String>,
}

/// The calls of this rank.
#[derive(Default)]
pub(super) struct Calls {
    /// Without a name.
    made: u64,
    made_named: u64,
    named: BTreeMap<Key, Named>,
    /// By ticket.
    open: BTreeMap<u64, Open>,
    finished: VecDeque<u64>,
    times: Times,
    /// What the engine is just told of.
    pub(super) beginning: Option<(Memory, Dtype)>,
}

impl Calls {
    /// The ticket and the key of the next call, of a name if it has one.
    pub(super) fn next(&self, name: Option<&str>) -> (u64, Key) {
        match name {
            None => (self.made, Key::call(self.made)),
            Some(name) => (NAMED + self.made_named, Key::of(name)),
        }
    }

    /// The next call begins: without a name, or as the `count`-th of its name.
    pub(super) fn begin(&mut self, open: Open, named: Option<(&str, u64)>, at: u64) {
        let (ticket, key) = self.next(named.map(|(name, _)| name));
        self.open.insert(ticket, open);
        match named {
            None => {
                self.made += 1;
                self.times.push(at);
            }
            Some((name, count)) => {
                self.named.insert(key, Named { name: name.to_owned(), ticket, count, at });
                self.made_named += 1;
            }
        }
    }

    /// The last call was not begun after all.
    pub(super) fn withdraw(&mut self, ticket: u64, name: Option<&str>) {
        self.open.remove(&ticket);
        match name {
            None => {
                self.made -= 1;
                self.times.pop();
            }
            Some(name) => {
                self.made_named -= 1;
                self.named.remove(&Key::of(name));
            }
        }
    }

    /// A call is over: the memory that it was in, if one of this key was under way.
    pub(super) fn done(&mut self, key: Key) -> Option<Option<Memory>> {
        let number = self.ticket_of(key)?;
        self.named.remove(&key);
        let open = self.open.remove(&number);
        if self.finished.len() >= MOST_FINISHED {
            self.finished.pop_front();
        }
        self.finished.push_back(number);
        Some(open.map(|open| open.memory))
    }

    /// Whether a call is under way.
    ///
    /// # Errors
    /// No call has this ticket.
    pub(super) fn is_open(&self, ticket: u64) -> Result<bool, RuntimeError> {
        let named = ticket.checked_sub(NAMED);
        if named.map_or(ticket >= self.made, |number| number >= self.made_named) {
            let why = format!("{} calls were made", self.made + self.made_named);
            let hint = "wait for what `call` has returned";
            return Err(RuntimeError::setting("call", ticket, why, hint));
        }
        Ok(self.open.contains_key(&ticket))
    }

    /// All calls before this one are over.
    pub(super) fn all_before(&self) -> u64 {
        self.open.range(..NAMED).next().map_or(self.made, |(number, _)| *number)
    }

    /// The last call without a name that is under way.
    pub(super) fn newest(&self) -> Option<u64> {
        self.open.range(..NAMED).next_back().map(|(number, _)| *number)
    }

    /// Names with a call under way.
    pub(super) fn named(&self) -> impl Iterator<Item = (Key, &Named)> + '_ {
        self.named.iter().map(|(key, one)| (*key, one))
    }

    /// The call under way of a name.
    pub(super) fn of_name(&self, key: Key) -> Option<&Named> {
        self.named.get(&key)
    }

    /// The name of a key, while a call of it is under way.
    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.of_name(key).map(|one| one.name.as_str())
    }

    /// What people call a call without a name.
    pub(super) fn called(&self, number: u64) -> String {
        match self.open.get(&number) {
            Some(Open { asked: Some(asked), .. }) => format!("call {number} ({asked})"),
            Some(Open { operation, elements, dtype, .. }) => {
                let (elements, dtype) = (counted(*elements, "element"), dtype.name());
                format!("call {number} ({operation} of {elements} of {dtype})")
            }
            None => format!("call {number}"),
        }
    }

    /// The call under way of this key.
    fn ticket_of(&self, key: Key) -> Option<u64> {
        match key.number_of_call() {
            Some(number) => Some(number),
            None => self.named.get(&key).map(|one| one.ticket),
        }
    }

    /// Whether an exchange of this key is a call.
    pub(super) fn is_call(&self, key: Key) -> bool {
        self.ticket_of(key).is_some()
    }

    /// How many were made, and when the last ones were.
    pub(super) fn made(&self) -> (u64, &Times) {
        (self.made, &self.times)
    }

    pub(super) fn take_finished(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.finished.drain(..)
    }
}
