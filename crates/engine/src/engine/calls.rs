//! Calls without a name, as process groups make them: the k-th call of every rank on a group is the same
//! operation, so its number is its name.
//!
//! A call is not registered and waits for no scheduler: it begins at once, as often as the caller likes, any
//! number at a time, and each is over when it is over. Its kind, root, dtype and shape go along in its
//! [`SignatureHash`]: where two ranks' k-th calls differ, the first frame between them says so and all end in
//! one error. Where no frame is sent (broadcasts of two ranks from different roots, an empty call where others
//! are not) a call waits, and after [`Settings::ask_after`](super::Settings::ask_after) its rank says to all
//! others what it waits for, and again after as long; who has, or had, another call of that number ends the
//! job. Who has not made it yet says nothing: it is late, no more.
//!
//! What is kept is the calls from the oldest that is not over, and the signatures of [`KNOWN`] before; so it
//! does not grow with time.

use std::collections::VecDeque;

use allrail_collective::Operation;
use allrail_core::Time;
use allrail_schedule::coordinate::Payload;
use allrail_schedule::coordinate::messages::Waits;
use allrail_schedule::{Key, OperationName};

use super::event::{Action, CallReport, Home};
use super::named::NamedCalls;
use super::parts::{Parts, Wanted};
use super::running::Running;
use crate::signature_hash::{Differs, SignatureHash};
use crate::{ALONE, Broken, CollectiveId, Progress};

/// What a call does, alike on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Of which kind. There must be a plan for it and its size.
    pub operation: Operation,
    /// Of a broadcast: the place in the group that has what all get. 0 for others.
    pub root: u32,
    /// The element type, as the framework calls it.
    pub dtype: &'a str,
    /// Of the whole buffer, without gaps: before a reduce-scatter, after an all-gather.
    pub shape: &'a [u64],
    /// Bytes of an element.
    pub width: u32,
    /// Of several that wait for a port, the highest goes first.
    pub priority: i64,
    /// What ranks compare, where that is more than the above says ([`Asked`](crate::Asked)).
    pub signature: Option<SignatureHash>,
}

impl Call<'_> {
    fn elements(&self) -> Result<u64, Broken> {
        let mut sides = self.shape.iter();
        let elements = sides.try_fold(1u64, |product, side| product.checked_mul(*side));
        elements.ok_or_else(|| Broken::Setting {
            field: "shape",
            value: format!("{:?}", self.shape),
            why: "it has 2^64 elements or more".to_owned(),
            hint: "the shape of the whole buffer".to_owned(),
        })
    }
}

/// Of how many calls that are over it is remembered what they were.
const KNOWN: usize = 1024;

/// The calls of a group.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// All before it are over.
    first: u64,
    /// From that on: what is under way, or that it is over.
    window: VecDeque<Option<CollectiveId>>,
    /// Of the calls up to the next one.
    signatures: VecDeque<SignatureHash>,
    /// What was the next one when the timer was set, and the next of those with a name: a call before it has
    /// waited since then.
    asked: Option<(u64, u64)>,
}

impl Calls {
    /// The number of the next one.
    fn next(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    fn begin(&mut self, id: CollectiveId, signature: SignatureHash) {
        self.window.push_back(Some(id));
        self.signatures.push_back(signature);
        while self.signatures.len() > self.window.len() + KNOWN {
            self.signatures.pop_front();
        }
    }

    /// What a call is or was, if it is known.
    fn signature(&self, number: u64) -> Option<SignatureHash> {
        let after =
            self.next().checked_sub(number).and_then(|after| usize::try_from(after).ok())?;
        self.signatures.get(self.signatures.len().checked_sub(after)?).copied()
    }

    /// A call is over.
    pub(super) fn over(&mut self, number: u64) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(one) = place.and_then(|place| self.window.get_mut(place)) {
            *one = None;
        }
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.first += 1;
        }
    }

    /// Where frames of a call belong.
    pub(super) fn home(&self, number: u64, operation: &OperationName) -> Result<Home, Broken> {
        if (operation.generation, operation.part) != (0, 0) {
            return Err(Broken::UnknownOperation(*operation));
        }
        let Some(place) = number.checked_sub(self.first) else {
            return Err(Broken::Old(*operation));
        };
        match usize::try_from(place).ok().and_then(|place| self.window.get(place)) {
            Some(Some(id)) => Ok(Home::Running(*id)),
            Some(None) => Err(Broken::Old(*operation)),
            None => Ok(Home::Early),
        }
    }

    pub(super) fn report(&self) -> CallReport {
        let open = (self.first..).zip(&self.window).filter(|(_, one)| one.is_some());
        CallReport { made: self.next(), unfinished: open.map(|(number, _)| number).collect() }
    }
}

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
            return Err(Broken::Setting {
                field: "ordering",
                value: "common".to_owned(),
                why: "launches keep to the order that a coordinator makes of tensors, and a call is none"
                    .to_owned(),
                hint: "give the call to the transport itself, which pairs the k-th call of every rank; \
                       or `ordering: tagged`"
                    .to_owned(),
            });
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
        Err(Broken::Setting {
            field: "calls",
            value: number.to_string(),
            why: "so many have names in one epoch".to_owned(),
            hint: "begin another epoch: `Event::Membership`".to_owned(),
        })
    }

    fn next_of(&self, name: &str) -> Result<(Key, u64), Broken> {
        let refuse = |why: &str, hint: &str| {
            let (value, why, hint) = (name.to_owned(), why.to_owned(), hint.to_owned());
            Err(Broken::Setting { field: "name", value, why, hint })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_begins_with_the_oldest_that_is_not_over() {
        let name = |count| OperationName { key: Key::call(count), ..OperationName::default() };
        let mut calls = Calls::default();
        for slot in 0..3 {
            let id = CollectiveId { slot, generation: 0 };
            calls.begin(id, SignatureHash(slot.into()));
        }
        calls.over(1);
        assert_eq!(calls.report(), CallReport { made: 3, unfinished: vec![0, 2] });
        assert_eq!(calls.home(1, &name(1)), Err(Broken::Old(name(1))));
        assert_eq!(calls.home(3, &name(3)), Ok(Home::Early));
        let second = OperationName { part: 1, ..name(2) };
        assert_eq!(calls.home(2, &second), Err(Broken::UnknownOperation(second)));
        calls.over(0);
        assert_eq!((calls.first, calls.window.len()), (2, 1));
        assert_eq!(calls.home(0, &name(0)), Err(Broken::Old(name(0))));
        calls.over(0);
        assert_eq!((calls.next(), calls.window.len()), (3, 1), "said again, it changes nothing");
        let known = [0, 2, 3].map(|number| calls.signature(number));
        assert_eq!(known, [Some(SignatureHash(0)), Some(SignatureHash(2)), None]);
        calls.over(2);
        for number in 3..2 * KNOWN as u64 {
            calls.begin(CollectiveId { slot: 0, generation: 0 }, SignatureHash(number));
            calls.over(number);
        }
        let kept = KNOWN as u64;
        let known = [kept - 2, kept, 2 * kept - 1].map(|number| calls.signature(number));
        assert_eq!(known, [None, Some(SignatureHash(kept)), Some(SignatureHash(2 * kept - 1))]);
        assert!(calls.signatures.len() <= KNOWN + 1 && calls.window.is_empty());
    }
}
