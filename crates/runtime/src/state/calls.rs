//! Calls without a name: the k-th of every rank is the same operation.

use std::collections::{BTreeMap, VecDeque};

use allrail_engine::Dtype;
use allrail_engine::engine::Call;
use allrail_schedule::Key;

use super::progress::Times;
use super::{CALLS, State};
use crate::memory::Memory;
use crate::record::What;
use crate::{Fault, FaultKind, RuntimeError};

/// How many calls that are over wait for [`State::take_completions`]; of older ones only waiting tells.
const MOST_FINISHED: usize = 1 << 16;

/// The calls of this rank.
#[derive(Default)]
pub(super) struct Calls {
    made: u64,
    /// Those that are not over, with their memory.
    open: BTreeMap<u64, Memory>,
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
        self.open.keys().next().copied().unwrap_or(self.made)
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
    /// The next call, in this memory; returns its number.
    pub(crate) fn call(
        &mut self,
        call: &Call<'_>,
        dtype: Dtype,
        memory: Memory,
    ) -> Result<u64, RuntimeError> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone().into());
        }
        let number = self.calls.made;
        if self.in_use.take(memory, Key::call(number)).is_err() {
            let why = "another exchange that is under way has some of this memory";
            let at = format!("call {number}");
            return Err(RuntimeError::setting("memory", at, why, "wait for that one first"));
        }
        self.calls.open.insert(number, memory);
        self.calls.made += 1;
        self.calls.times.push(self.clock.machine());
        if self.peers.len() == 1 {
            self.call_done(number);
            return Ok(number);
        }
        self.calls.beginning = Some((memory, dtype));
        let mut todo = std::mem::take(&mut self.todo);
        let now = self.clock.now();
        let made = self.engine.call(now, call, &mut todo);
        if made.is_ok() {
            let (operation, root, priority) = (call.operation, call.root, call.priority);
            let elements = call.shape.iter().product();
            let called = What::Called { operation, root, dtype, elements, priority };
            self.records.push_all(now, called, &todo);
        }
        self.carry_out(&mut todo);
        self.todo = todo;
        self.calls.beginning = None;
        if let Err(broken) = made {
            self.calls.open.remove(&number);
            self.calls.made = number;
            self.calls.times.pop();
            self.in_use.give_back(memory);
            return Err(broken.into());
        }
        self.settle();
        self.check_calls_left();
        Ok(number)
    }

    pub(super) fn call_done(&mut self, number: u64) {
        if let Some(memory) = self.calls.open.remove(&number) {
            self.in_use.give_back(memory);
        }
        if self.calls.finished.len() >= MOST_FINISHED {
            self.calls.finished.pop_front();
        }
        self.calls.finished.push_back(number);
        self.wakes.waiters = true;
    }

    /// Whether a call is over; an error where it never will be.
    pub(crate) fn poll_call(&self, number: u64) -> Result<bool, RuntimeError> {
        if number >= self.calls.made {
            let why = format!("{} calls were made", self.calls.made);
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
        let Some(newest) = self.calls.open.keys().next_back().copied() else { return };
        let short = |done: &BTreeMap<Key, u64>| done.get(&CALLS).is_none_or(|n| *n <= newest);
        let gone = self.left.iter().find(|(peer, done)| self.peers.contains(peer) && short(done));
        if let Some(peer) = gone.map(|(peer, _)| *peer) {
            let what = format!("rank {peer} has closed its node, and call {newest} needs it");
            self.end(Fault { kind: FaultKind::Left, rank: Some(peer), tensor: None, what });
        }
    }
}
