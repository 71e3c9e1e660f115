//! How a call is made and waited for.

use allrail_engine::engine::Call;
use allrail_engine::{Broken, Dtype};
use allrail_schedule::Key;

use super::State;
use super::calls::Open;
use crate::error::RuntimeError;
use crate::memory::Memory;
use crate::record::What;

impl State {
    /// The next call, of a name if it has one, in this memory; returns its ticket.
    pub(crate) fn call(
        &mut self,
        (call, name): (&Call<'_>, Option<&str>),
        dtype: Dtype,
        memory: Memory,
    ) -> Result<u64, RuntimeError> {
        if let Some(fault) = self.fault() {
            return Err(fault.clone().into());
        }
        let (ticket, key) = self.calls.next(name);
        if let Some(named) = self.calls.of_name(key) {
            let (name, generation) = (named.name.clone(), named.count - 1);
            return Err(Broken::NotDone { name, generation }.into());
        }
        if self.in_use.take(memory, key).is_err() {
            let why = "another exchange that is under way has some of this memory";
            let at = name.map_or_else(|| format!("call {ticket}"), str::to_owned);
            return Err(RuntimeError::setting("memory", at, why, "wait for that one first"));
        }
        let (operation, elements) = (call.operation, call.shape.iter().product());
        let ranks = u32::try_from(self.group.peers.len()).unwrap_or(u32::MAX);
        let asked = call.signature.map(|signature| signature.told(ranks));
        let count = self.engine.begun(key).unwrap_or(0) + 1;
        let open = Open { memory, operation, elements, dtype, asked };
        self.calls.begin(open, name.map(|name| (name, count)), self.clock.machine());
        if self.group.is_alone() {
            self.call_done(key);
            return Ok(ticket);
        }
        if let Err(broken) = self.begin_call((call, name), (dtype, elements), memory) {
            self.calls.withdraw(ticket, name);
            self.in_use.give_back(memory);
            return Err(broken.into());
        }
        self.settle();
        if self.ending.has_anybody_left() {
            self.check_calls_left();
        }
        Ok(ticket)
    }

    /// Tells the engine of a call, and does what it wants.
    fn begin_call(
        &mut self,
        (call, name): (&Call<'_>, Option<&str>),
        (dtype, elements): (Dtype, u64),
        memory: Memory,
    ) -> Result<(), Broken> {
        self.calls.beginning = Some((memory, dtype));
        let mut todo = std::mem::take(&mut self.todo);
        let now = self.clock.now();
        let made = match name {
            None => self.engine.call(now, call, &mut todo),
            Some(name) => self.engine.call_named(now, (name, call), &mut todo),
        };
        if made.is_ok() {
            let Call { operation, root, priority, signature, .. } = *call;
            let name = name.map(str::to_owned);
            let called =
                What::Called { name, operation, root, dtype, elements, priority, signature };
            self.log.records.push_all(now, called, &todo);
        }
        self.carry_out(&mut todo);
        self.todo = todo;
        self.calls.beginning = None;
        made.map(|_| ())
    }

    /// Whether the next call of a name has to wait.
    pub(crate) fn is_undecided(&self, name: &str) -> bool {
        !self.ending.is_over() && self.engine.is_undecided(name)
    }

    pub(super) fn call_done(&mut self, key: Key) {
        if let Some(memory) = self.calls.done(key) {
            memory.into_iter().for_each(|memory| self.in_use.give_back(memory));
            self.wakes.waiters = true;
        }
    }

    /// Whether a call is over; an error where it never will be.
    pub(crate) fn poll_call(&self, ticket: u64) -> Result<bool, RuntimeError> {
        if !self.calls.is_open(ticket)? {
            return Ok(true);
        }
        match self.fault() {
            Some(fault) if self.is_quiet() => Err(fault.clone().into()),
            Some(_) | None => Ok(false),
        }
    }
}
