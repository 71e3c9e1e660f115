//! How an engine makes a call, with a name or without, and asks after those that it has waited for.

use allrail_coordinate::Payload;
use allrail_coordinate::messages::Waits;
use allrail_core::{FieldError, Time};
use allrail_schedule::{Key, OperationName};

use super::calls::Call;
use super::event::Action;
use super::named::NamedCalls;
use super::parts::{Parts, Wanted};
use super::running::Running;
use crate::signature_hash::{Differs, SignatureHash};
use crate::{ALONE, Broken, Progress};

impl Running {
    /// This rank's next call, of a name if it has one.
    pub(super) fn call(
        &mut self,
        now: Time,
        (call, called): (&Call<'_>, Option<&str>),
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        if self.common {
            return Err(FieldError::new("ordering", "common", "launches keep to the order that a coordinator makes of tensors, and a call is none", "give the call to the transport itself, which pairs the k-th call of every rank; \
                       or `ordering: tagged`").into());
        }
        let (key, generation) = match called {
            None => (self.key_of_next_call()?, 0),
            Some(name) => self.next_of(name)?,
        };
        let Call { operation, root, dtype, shape, width, priority, signature } = *call;
        let elements = call.elements()?;
        let of_size = parts.of(Wanted { operation, root, turn: 0, elements, width })?;
        let (id, progress) = self.executor.issue(of_size.stages, ALONE, priority)?;
        let (epoch, group) = (self.epoch, self.group);
        let name = OperationName { epoch, group, key, generation, part: 0 };
        let signature =
            signature.unwrap_or_else(|| SignatureHash::new(operation, root, dtype, shape, &[]));
        self.operations.begin(id, name, None, std::iter::empty());
        match called {
            None => self.calls.begin(id, signature),
            Some(called) => {
                self.named.iter_mut().for_each(|named| named.begin(key, called, (id, signature)));
            }
        }
        let (operation, priority, part) = (name, call.priority, of_size.plan);
        out.push(Action::Begin { id, operation, priority, signature, part });
        if progress == Progress::Over {
            self.collective_over(id, out);
        } else if self.calls.asked.is_none() {
            self.ask_later(now);
        }
        if called.is_some() {
            self.look_for_idle(out);
        }
        Ok(name)
    }

    fn key_of_next_call(&self) -> Result<Key, Broken> {
        let number = self.calls.next();
        let key = Key::call(number);
        if key.number_of_call().is_some() {
            return Ok(key);
        }
        Err(Broken::Setting(FieldError::new(
            "calls",
            number,
            "so many have names in one epoch",
            "begin another epoch: `Event::Membership`",
        )))
    }

    fn next_of(&self, name: &str) -> Result<(Key, u64), Broken> {
        let refuse = |why: &str, hint: &str| {
            let (value, why, hint) = (name.to_owned(), why.to_owned(), hint.to_owned());
            Err(Broken::Setting(FieldError::new("name", value, why, hint)))
        };
        match &self.named {
            None => refuse("calls of this group have no names", "the setting `named_calls`"),
            Some(_) if self.tensors.of_key(Key::of(name)).is_ok() => {
                refuse("a tensor has this name", "another name, or submit it as that tensor")
            }
            Some(named) => named.next(name),
        }
    }

    fn ask_later(&mut self, now: Time) {
        let named = self.named.as_ref().map_or(0, NamedCalls::begun);
        self.calls.asked = Some((self.calls.next(), named));
        self.timers.of_calls(now.checked_add(self.ask_after).unwrap_or(Time::MAX));
    }

    /// Its timer has fired: says what this rank has waited for since it was set.
    pub(super) fn ask(&mut self, now: Time, out: &mut Vec<Action>) {
        let (next, next_named) = self.calls.asked.take().unwrap_or_default();
        let mut says: Vec<Waits> = Vec::new();
        let oldest = self.calls.first;
        if let Some(signature) = self.calls.signature(oldest).filter(|_| oldest < next) {
            says.push(Waits { key: Key::call(oldest), generation: 0, signature: signature.0 });
        }
        says.extend(self.named.iter().flat_map(|named| named.waiting(next_named)));
        for one in says.into_iter().map(Box::new) {
            let others = (0..self.ranks).filter(|rank| *rank != self.rank);
            out.extend(others.map(|to| Action::Send { to, payload: Payload::Waits(one.clone()) }));
        }
        let waits = self.named.as_ref().is_some_and(NamedCalls::is_waiting);
        if waits || !self.calls.window.is_empty() {
            self.ask_later(now);
        }
    }

    /// A peer waits for a call of its.
    pub(super) fn asked(&mut self, from: u32, waits: Waits, out: &mut Vec<Action>) {
        let Waits { key, generation, signature } = waits;
        let ours = match key.number_of_call() {
            Some(number) => self.calls.signature(number),
            None => self.named.as_ref().and_then(|named| named.signature(key, generation)),
        };
        let theirs = SignatureHash(signature);
        if let Some(ours) = ours.filter(|ours| *ours != theirs) {
            let (epoch, group) = (self.epoch, self.group);
            let operation = OperationName { epoch, group, key, generation, part: 0 };
            self.fail_with(from, operation, Differs { theirs, ours }, out);
        }
    }
}
