//! What decides on a rank: an engine, or an executor alone.

use std::ops::Range;

use allrail_core::Time;
use allrail_engine::engine::{Action, Call, Event, Home};
use allrail_engine::{Broken, CollectiveId};
use allrail_schedule::operation::OperationName;

/// Elements of a tensor, by the number that the job gives it.
pub(crate) type Share = (usize, Range<u64>);

/// See the module; the calls are those of [`allrail_engine::Engine`].
pub(crate) trait Decider {
    fn on(&mut self, now: Time, event: Event, out: &mut Vec<Action>) -> Result<(), Broken>;

    fn settle(&mut self, out: &mut Vec<Action>);

    fn deadline(&self) -> Option<Time> {
        None
    }

    /// What of which tensors lies in the buffer of an operation under way, end to end.
    fn shares(&self, id: CollectiveId) -> Vec<Share>;

    /// The next call without a name.
    fn call(
        &mut self,
        _now: Time,
        call: &Call<'_>,
        _out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        panic!("an executor is not told {call:?}")
    }

    /// The next call of a name.
    fn call_named(
        &mut self,
        _now: Time,
        (name, _): (&str, &Call<'_>),
        _out: &mut Vec<Action>,
    ) -> Result<OperationName, Broken> {
        panic!("an executor is not told of `{name}`")
    }

    /// Where a frame belongs.
    fn home(&self, name: &OperationName) -> Result<Home, Broken>;

    /// Its place among the ranks that it talks with, and their ranks in the fabric.
    fn peers(&self) -> (u32, &[u32]);
}
