//! What happened to each node, and what compute engines waited for.

use allrail_core::Time;
use allrail_workload::{NodeId, Pass, Purpose};

/// A node that a player ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// Who.
    pub player: u32,
    /// What.
    pub node: NodeId,
    /// In which iteration.
    pub iteration: u32,
}

/// What happened to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// When it began: of a collective, when the last player had come; of a receive, when the
    /// message was under way and the player there.
    pub start: Time,
    /// When it was over.
    pub finish: Time,
    /// What it waited for last.
    pub cause: Option<Ran>,
}

/// Why a compute engine had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It waited for communication of its own, or for something that waited for that.
    Exposed(Purpose),
    /// It waited for others to come: a pipeline bubble, or a straggler.
    Waiting,
}

/// A time in which a compute engine had nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// From.
    pub start: Time,
    /// To.
    pub end: Time,
    /// Why.
    pub idle: Idle,
    /// Of which pass it waited for something.
    pub pass: Pass,
}

/// Times by pass, in the order of [`Pass::ALL`].
pub(crate) type ByPass = [Time; Pass::ALL.len()];

/// The length of the part of `from..to` within the window.
#[must_use]
pub(crate) fn clipped(from: Time, to: Time, window: (Time, Time)) -> Time {
    to.min(window.1).saturating_sub(from.max(window.0))
}
