//! What a caller is told: a mistake in what it asked for, a job that could not be joined, or the end of one.

use std::fmt;

use allrail_core::FieldError;
use allrail_engine::Broken;
use allrail_schedule::ScheduleError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::files;

/// Why a call of a node was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuntimeError {
    /// Something that was given cannot be.
    #[error(transparent)]
    Setting(#[from] FieldError),
    /// The ranks of the job did not find each other, or are not of one job.
    #[error("{what}")]
    Connect {
        /// Who is meant.
        rank: Option<u32>,
        /// What is wrong.
        what: String,
        /// What to do.
        hint: String,
    },
    /// The call is out of turn.
    #[error("{call} comes {when}")]
    OutOfTurn {
        /// Which call.
        call: &'static str,
        /// When it came.
        when: &'static str,
    },
    /// A rule of the engine was broken; nothing has changed.
    #[error(transparent)]
    Engine(#[from] Broken),
    /// The job is over on this rank.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The caller wanted to wait no longer.
    #[error("interrupted")]
    Interrupted,
    /// The operating system refused something that it does not usually.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        why: String,
        /// What to do, where that is known.
        hint: Option<String>,
    },
}

impl RuntimeError {
    pub(crate) fn setting(
        field: impl Into<String>,
        value: impl fmt::Display,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        FieldError::new(field, value, why, hint).into()
    }

    pub(crate) fn system(what: impl Into<String>, why: &std::io::Error) -> Self {
        Self::System { what: what.into(), why: why.to_string(), hint: files::hint(why) }
    }

    /// A schedule, a plan or an algorithm that cannot be.
    pub(crate) fn schedule(error: &ScheduleError) -> Self {
        match error {
            ScheduleError::Field(error) => error.clone().into(),
            ScheduleError::Collective(error) => {
                let hint =
                    "name others, or `auto`: `allrail plan` of such a scenario says which go";
                Self::setting("schedule.algorithms", "...", error.to_string(), hint)
            }
            other => Self::setting("schedule.policy", "...", other.to_string(), "another policy"),
        }
    }

    /// What to do, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Setting(FieldError { hint, .. }) | Self::Connect { hint, .. } => Some(hint),
            Self::OutOfTurn { .. } => {
                Some("the order is: bind, connect, register, start, submit and wait, close")
            }
            Self::Engine(broken) => broken.hint(),
            Self::Fault(fault) => Some(fault.kind.hint()),
            Self::System { hint, .. } => hint.as_deref(),
            Self::Interrupted => None,
        }
    }
}

/// What has ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A rank's process has ended without a word.
    Died,
    /// Nothing comes through to a rank any more.
    Link,
    /// A rank's process is there and its threads do not answer.
    Silent,
    /// A rank has left, and others still need it.
    Left,
    /// Ranks submit different things under one name, or not the same things.
    Differs,
    /// A peer sends what no plan knows.
    BadFrame,
    /// What has come from a peer is not what it has sent: a checksum differs.
    Damaged,
    /// Ranks answer, and some have not submitted what others wait for, for `timeouts.stalled`.
    Stalled,
    /// A rank has stopped, as its caller or its engine wanted.
    Stopped,
    /// This node was closed.
    Closed,
}

impl FaultKind {
    fn hint(self) -> &'static str {
        match self {
            Self::Died => "see that rank's own output for why, and restart the job",
            Self::Link => "check the network between the two machines, and restart the job",
            Self::Silent => {
                "its process is stopped or hangs outside of allrail: look at its stack, or raise \
                 `timeouts.silent`"
            }
            Self::Left => "every rank must submit the same tensors as often before it closes",
            Self::Differs => {
                "every rank makes the same calls in the same order, with the same sizes and types: print them on \
                 these two ranks before this one"
            }
            Self::BadFrame => {
                "every rank must submit the same tensors, of the same names, types and shapes, in the \
                 same build of allrail"
            }
            Self::Damaged => {
                "bits have changed between these two ranks, or memory was written to while it was sent: check \
                 their cables, NICs and memory (`ethtool -S`), and go on from a checkpoint"
            }
            Self::Stalled => {
                "look at what that rank does (saving, compiling, a debugger, another branch of the script), or \
                 raise `timeouts.stalled`"
            }
            Self::Stopped => "see that rank's own error",
            Self::Closed => "a closed node takes no more calls",
        }
    }
}

/// The end of a job: said in the same words on every rank.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{what}")]
pub struct Fault {
    /// Of what sort.
    pub kind: FaultKind,
    /// Whose fault it is, if anyone's.
    pub rank: Option<u32>,
    /// The tensor that it was about, if any.
    pub tensor: Option<String>,
    /// All of it, for people.
    pub what: String,
}
