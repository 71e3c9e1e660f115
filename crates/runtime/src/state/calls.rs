//! Calls: the k-th without a name, and the k-th of each name, is the same operation on every rank.
//!
//! A caller knows a call by its ticket: its number, or, where it has a name, one above all numbers. Of names only
//! those with a call under way are known here: the engine counts, and forgets.

use std::collections::{BTreeMap, VecDeque};

use allrail_collective::Operation;
use allrail_core::counted;
use allrail_engine::engine::Call;
use allrail_engine::{Broken, Dtype};
use allrail_schedule::Key;

use super::progress::Times;
use super::{CALLS, State};
use crate::memory::Memory;
use crate::record::What;
use crate::{Fault, FaultKind, RuntimeError};

/// How many calls that are over wait for [`State::take_completions`]; of older ones only waiting tells.
const MOST_FINISHED: usize = 1 << 16;

/// The ticket of the first call with a name.
const NAMED: u64 = Key::CALLS;

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
struct Open {
    memory: Memory,
    operation: Operation,
    elements: u64,
    dtype: Dtype,
    /// What was asked for, where that is something else, for people.
    asked: Option<String>,
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
    beginning: Option<(Memory, Dtype)>,
}

impl Calls {
    pub(super) fn beginning(&self) -> Option<(Memory, Dtype)> {
        self.beginning
    }

    /// All calls before this one are over.
    pub(super) fn all_before(&self) -> u64 {
        self.open.range(..NAMED).next().map_or(self.made, |(number, _)| *number)
    }

    /// Names with a call under way.
    pub(super) fn named(&self) -> impl Iterator<Item = (Key, &Named)> + '_ {
        self.named.iter().map(|(key, one)| (*key, one))
    }

    /// The name of a key, while a call of it is under way.
    pub(super) fn name(&self, key: Key) -> Option<&str> {
        self.named.get(&key).map(|one| one.name.as_str())
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

    /// How many were made, and when the last ones were.
    pub(super) fn made(&self) -> (u64, &Times) {
        (self.made, &self.times)
    }

    pub(super) fn take_finished(&mut self) -> impl Iterator<Item = u64> + '_ {
        self.finished.drain(..)
    }
}

impl State {
    /// The next call, of a name if it has one, in this memory; returns its ticket.
    pub(crate) fn call(
        &mut self,
        (call, name): (&Call<'_>, Option<&str>),
        dtype: Dtype,
        memory: Memory,
    ) -> Result<u64, RuntimeError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone().into());
        }
        let (ticket, key) = match name {
            None => (self.calls.made, Key::call(self.calls.made)),
            Some(name) => (NAMED + self.calls.made_named, Key::of(name)),
        };
        if let Some(Named { name, count, .. }) = self.calls.named.get(&key) {
            return Err(Broken::NotDone { name: name.clone(), generation: count - 1 }.into());
        }
        if self.in_use.take(memory, key).is_err() {
            let why = "another exchange that is under way has some of this memory";
            let at = name.map_or_else(|| format!("call {ticket}"), str::to_owned);
            return Err(RuntimeError::setting("memory", at, why, "wait for that one first"));
        }
        let (operation, elements, at) =
            (call.operation, call.shape.iter().product(), self.clock.machine());
        let ranks = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        let asked = call.signature.map(|signature| signature.told(ranks));
        self.calls.open.insert(ticket, Open { memory, operation, elements, dtype, asked });
        match name {
            None => {
                self.calls.made += 1;
                self.calls.times.push(at);
            }
            Some(name) => {
                let count = self.engine.begun(key).unwrap_or(0) + 1;
                self.calls.named.insert(key, Named { name: name.to_owned(), ticket, count, at });
                self.calls.made_named += 1;
            }
        }
        if self.peers.len() == 1 {
            self.call_done(key);
            return Ok(ticket);
        }
        self.calls.beginning = Some((memory, dtype));
        let mut todo = std::mem::take(&mut self.todo);
        let now = self.clock.now();
        let made = match name {
            None => self.engine.call(now, call, &mut todo),
            Some(name) => self.engine.call_named(now, (name, call), &mut todo),
        };
        if made.is_ok() {
            let (root, priority) = (call.root, call.priority);
            let name = name.map(str::to_owned);
            let signature = call.signature;
            let called =
                What::Called { name, operation, root, dtype, elements, priority, signature };
            self.records.push_all(now, called, &todo);
        }
        self.carry_out(&mut todo);
        self.todo = todo;
        self.calls.beginning = None;
        if let Err(broken) = made {
            self.calls.open.remove(&ticket);
            match name {
                None => {
                    self.calls.made -= 1;
                    self.calls.times.pop();
                }
                Some(_) => {
                    self.calls.made_named -= 1;
                    self.calls.named.remove(&key);
                }
            }
            self.in_use.give_back(memory);
            return Err(broken.into());
        }
        self.settle();
        if !self.left.is_empty() {
            self.check_calls_left();
        }
        Ok(ticket)
    }

    /// Whether the next call of a name has to wait.
    pub(crate) fn is_undecided(&self, name: &str) -> bool {
        self.fault.is_none() && self.engine.is_undecided(name)
    }

    /// Whether an exchange of this key is a call.
    pub(super) fn is_call(&self, key: Key) -> bool {
        self.calls.ticket_of(key).is_some()
    }

    pub(super) fn call_done(&mut self, key: Key) {
        let Some(number) = self.calls.ticket_of(key) else { return };
        self.calls.named.remove(&key);
        if let Some(open) = self.calls.open.remove(&number) {
            self.in_use.give_back(open.memory);
        }
        if self.calls.finished.len() >= MOST_FINISHED {
            self.calls.finished.pop_front();
        }
        self.calls.finished.push_back(number);
        self.wakes.waiters = true;
    }

    /// Whether a call is over; an error where it never will be.
    pub(crate) fn poll_call(&self, number: u64) -> Result<bool, RuntimeError> {
        let named = number.checked_sub(NAMED);
        if named.map_or(number >= self.calls.made, |number| number >= self.calls.made_named) {
            let why = format!("{} calls were made", self.calls.made + self.calls.made_named);
            let hint = "wait for what `call` has returned";
            return Err(RuntimeError::setting("call", number, why, hint));
        }
        if !self.calls.open.contains_key(&number) {
            return Ok(true);
        }
        match &self.fault {
            Some(fault) if self.is_quiet() => Err(fault.clone().into()),
            Some(_) | None => Ok(false),
        }
    }

    /// Whether everyone whom the calls under way need is there.
    pub(super) fn check_calls_left(&mut self) {
        let named: Vec<(Key, u64)> =
            self.calls.named.iter().map(|(key, one)| (*key, one.count)).collect();
        named.into_iter().for_each(|(key, count)| self.check_left(key, count));
        let newest = self.calls.open.range(..NAMED).next_back();
        let Some(newest) = newest.map(|(number, _)| *number) else { return };
        let short = |done: &BTreeMap<Key, u64>| done.get(&CALLS).is_none_or(|n| *n <= newest);
        let gone = self.left.iter().find(|(peer, done)| self.peers.contains(peer) && short(done));
        if let Some(peer) = gone.map(|(peer, _)| *peer) {
            let what = format!("rank {peer} has closed its node, and call {newest} needs it");
            self.end(Fault { kind: FaultKind::Left, rank: Some(peer), tensor: None, what });
        }
    }
}
