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
use allrail_core::FieldError;
use allrail_schedule::OperationName;

use super::event::{CallReport, Home};
use crate::signature_hash::SignatureHash;
use crate::{Broken, CollectiveId};

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
    pub(super) fn elements(&self) -> Result<u64, Broken> {
        let mut sides = self.shape.iter();
        let elements = sides.try_fold(1u64, |product, side| product.checked_mul(*side));
        elements.ok_or_else(|| {
            Broken::Setting(FieldError::new(
                "shape",
                format!("{:?}", self.shape),
                "it has 2^64 elements or more",
                "the shape of the whole buffer",
            ))
        })
    }
}

/// Of how many calls that are over it is remembered what they were.
const KNOWN: usize = 1024;

/// The calls of a group.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// All before it are over.
    pub(super) first: u64,
    /// From that on: what is under way, or that it is over.
    pub(super) window: VecDeque<Option<CollectiveId>>,
    /// Of the calls up to the next one.
    signatures: VecDeque<SignatureHash>,
    /// What was the next one when the timer was set, and the next of those with a name: a call before it has
    /// waited since then.
    pub(super) asked: Option<(u64, u64)>,
}

impl Calls {
    /// The number of the next one.
    pub(super) fn next(&self) -> u64 {
        self.first + self.window.len() as u64
    }

    pub(super) fn begin(&mut self, id: CollectiveId, signature: SignatureHash) {
        self.window.push_back(Some(id));
        self.signatures.push_back(signature);
        while self.signatures.len() > self.window.len() + KNOWN {
            self.signatures.pop_front();
        }
    }

    /// What a call is or was, if it is known.
    pub(super) fn signature(&self, number: u64) -> Option<SignatureHash> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_schedule::Key;

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
