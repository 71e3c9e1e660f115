//! What an engine says of itself, and nothing changes.

use allrail_core::Time;
use allrail_schedule::{Key, OperationName};

use super::Engine;
use super::event::{CallReport, Home, Slice, TensorReport};
use super::named::NamedCalls;
use super::rounds::Rounds;
use super::running::Running;
use crate::{Broken, CollectiveId, UnderWay};

impl Engine {
    /// When [`Event::Time`](super::Event::Time) is due, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.running.as_ref()?.timers.deadline()
    }

    /// The elements of an operation under way, in the order in which they lie in its buffer.
    ///
    /// # Errors
    /// [`Broken::UnknownCollective`].
    pub fn slices(&self, id: CollectiveId) -> Result<&[Slice], Broken> {
        let running = self.running.as_ref();
        running.and_then(|one| one.operations.slices(id)).ok_or(Broken::UnknownCollective(id))
    }

    /// Where a frame of this operation belongs now.
    ///
    /// # Errors
    /// [`Broken::Epoch`], [`Broken::Old`]: what is left of another life of the job, or of an operation
    /// that is over here. [`Broken::UnknownTensor`], [`Broken::UnknownOperation`].
    pub fn home(&self, operation: &OperationName) -> Result<Home, Broken> {
        match &self.running {
            Some(running) => running.home(&self.settings, operation),
            None => Err(Broken::OutOfTurn { call: "a frame", when: "before" }),
        }
    }

    /// Whether launches follow a frozen order, and nobody coordinates.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        let rounds = self.running.as_ref().and_then(|running| running.rounds.as_ref());
        rounds.is_some_and(Rounds::is_frozen)
    }

    /// In a frozen order: a tensor that this rank has not submitted, and that goes before what is left of
    /// this one. Who waits for this one before it submits that waits for ever.
    #[must_use]
    pub fn blocked(&self, key: Key) -> Option<Key> {
        self.running.as_ref()?.blocked(key)
    }

    /// Every chunk that is not over, for the report of a stall.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay> + '_ {
        self.running.iter().flat_map(|running| running.executor.under_way())
    }

    /// How many frames of earlier epochs were told, and dropped.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Where every tensor is, by number.
    #[must_use]
    pub fn report(&self) -> Vec<TensorReport> {
        self.running.as_ref().map_or_else(Vec::new, |running| running.tensors.report())
    }

    /// How many calls were made, and which of them are not over.
    #[must_use]
    pub fn calls(&self) -> CallReport {
        self.running.as_ref().map_or_else(CallReport::default, |running| running.calls.report())
    }

    /// How many names of calls are known.
    #[must_use]
    pub fn names(&self) -> usize {
        self.running.as_ref().map_or(0, Running::names)
    }

    /// How many calls of each name that is known are over.
    pub fn named_calls(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let named = self.running.iter().filter_map(|running| running.named.as_ref());
        named.flat_map(NamedCalls::done)
    }

    /// How many calls of this name were begun, as long as it is known.
    #[must_use]
    pub fn begun(&self, key: Key) -> Option<u64> {
        self.running.as_ref()?.named.as_ref()?.begun_of(key)
    }

    /// Whether a call of this name has to wait, as [`Broken::Undecided`] says.
    #[must_use]
    pub fn is_undecided(&self, name: &str) -> bool {
        let named = self.running.as_ref().and_then(|running| running.named.as_ref());
        named.is_some_and(|named| named.is_undecided(Key::of(name)))
    }
}
