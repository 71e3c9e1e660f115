//! Cycles of all ranks of a process as waves: up a tree and down again, without messages in between.
//!
//! In such a cycle every rank speaks once to its parent in one tree, after its own clock and its
//! children, and hears from it once. Votes are combined in any order to the same, so who runs all ranks
//! combines them as they are made, and tells a rank only when the last of those below it is there. The
//! ranks are the state machines that take events, and are after each call as the events would have left them:
//! between two calls any of them may be told an event.
//!
//! Whoever calls sees to it that every rank is between two cycles when the wave begins, and that what a rank
//! hears is what came of all votes: nothing of it is checked again.

use std::sync::Arc;

use allrail_core::Time;

use super::broken::Broken;
use super::messages::{Verdict, Vote};
use super::{Action, Place};

/// What a rank does at the end of its cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When its next cycle begins.
    pub next: Time,
    /// Whether it launches what rank 0 has launched.
    pub launches: bool,
}

/// The ranks of a process in cycles that are waves. In the order of the calls in a cycle.
pub trait Waves {
    /// Where a rank stands in the tree.
    fn place(&self, rank: u32) -> Place;

    /// A rank's cycle begins: its own vote is written over `vote`. If nobody is below it, it has spoken
    /// to its parent then.
    fn vote(&mut self, rank: u32, now: Time, vote: &mut Vote, actions: &mut Vec<Action>);

    /// A rank has heard the last of those below it, and has spoken to its parent.
    fn pass_on(&mut self, rank: u32, now: Time, actions: &mut Vec<Action>);

    /// Rank 0 has heard the last: what all votes come to. It acts as after any message.
    ///
    /// # Errors
    /// As [`super::Coordinator::on`].
    fn decide(&mut self, now: Time, vote: Vote, actions: &mut Vec<Action>) -> Result<(), Broken>;

    /// What rank 0 has decided comes to a rank, and ends its cycle. `None` if there is more to it than that:
    /// nothing is done then, and it is to be told as by any message.
    fn end(&mut self, rank: u32, now: Time, verdict: &Arc<Verdict>) -> Option<Ended>;
}
