//! What a caller or a peer did that cannot be.

use allrail_collective::{CollectiveError, StageRef};
use allrail_coordinate::{self as coordinate, Cause};
use allrail_core::{FieldError, counted, either};
use allrail_schedule::{Key, OperationName, ScheduleError};
use thiserror::Error;

use crate::progress::CollectiveId;

/// A rule of the engine that was broken. The engine is as it was before the call.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// A stage stands on a port that this rank does not have.
    #[error("{at:?} stands on port {port}, and this rank has {ports}")]
    UnknownPort {
        /// The stage.
        at: StageRef,
        /// The port.
        port: u32,
        /// How many there are.
        ports: u32,
    },
    /// A collective is named that is not under way.
    #[error("{0:?} is not under way")]
    UnknownCollective(CollectiveId),
    /// A stage is said to be over that is not running.
    #[error("{at:?} of {collective:?} is not running")]
    NotRunning {
        /// Whose.
        collective: CollectiveId,
        /// Which.
        at: StageRef,
    },
    /// A message belongs to a step that is over.
    #[error(
        "a message for step {step} has come, and {over} {are} over",
        over = counted(*.over, "step"),
        are = either(.over, "is", "are")
    )]
    Late {
        /// Its step.
        step: u64,
        /// How many are over.
        over: u64,
    },
    /// A message has come that is not awaited.
    #[error("message {number} of a stage has come, and is not awaited")]
    Unawaited {
        /// Its number.
        number: u32,
    },
    /// A setting with which an engine cannot run.
    #[error(transparent)]
    Setting(#[from] FieldError),
    /// A schedule that cannot be.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// No plan for a size, or one that this rank cannot carry out.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A rank broke the rules of coordination.
    #[error(transparent)]
    Coordination(#[from] coordinate::Broken),
    /// A tensor is registered twice.
    #[error("tensor `{name}` is registered already{differs}")]
    Registered {
        /// Its name.
        name: String,
        /// What differs from the first time, if anything.
        differs: String,
    },
    /// The call is out of turn: tensors are registered, then the job is started, once.
    #[error("{call} comes {when} the start")]
    OutOfTurn {
        /// Which call.
        call: &'static str,
        /// `before` or `after`.
        when: &'static str,
    },
    /// A tensor that nobody registered.
    #[error("no tensor with key {:016x} is registered", .0.0)]
    UnknownTensor(Key),
    /// A tensor is submitted again before it is done.
    #[error("tensor `{name}` is submitted again, and its generation {generation} is not done")]
    NotDone {
        /// Its name.
        name: String,
        /// What is not done.
        generation: u64,
    },
    /// Ranks decide whether a name is forgotten: until they have, its next call has no number.
    #[error("whether `{name}` is forgotten is not decided")]
    Undecided {
        /// The name.
        name: String,
    },
    /// A tensor is submitted again before another was submitted as often, where an order may freeze.
    #[error("tensor `{name}` is submitted again, and `{other}` was not submitted in this round")]
    NotInRound {
        /// Its name.
        name: String,
        /// The other.
        other: String,
    },
    /// A rank that the group does not have.
    #[error("rank {rank} is none of the group's {ranks}")]
    UnknownPeer {
        /// As given.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A peer coordinates, and this engine has no coordination.
    #[error("rank {from} coordinates, and this rank is set to do without")]
    NoCoordination {
        /// Who.
        from: u32,
    },
    /// Something of another epoch than the job is in.
    #[error("it is of epoch {epoch}, and the job is in epoch {now}")]
    Epoch {
        /// Of what has come.
        epoch: u32,
        /// The job's.
        now: u32,
    },
    /// A frame, or a word, of an operation that is over: of an old step, or said twice.
    #[error("operation {0} is over")]
    Old(OperationName),
    /// The name of an operation that this group cannot have.
    #[error("operation {0} is none of this group's")]
    UnknownOperation(OperationName),
    /// A retuning that some tensor has passed already.
    #[error("generation {at} is to be cut in a new way, and `{name}` has submitted {submitted}")]
    TooLate {
        /// From when on.
        at: u64,
        /// A tensor.
        name: String,
        /// How many generations.
        submitted: u64,
    },
    /// A policy started what cannot be.
    #[error("the policy `{policy}` has started {what}")]
    Policy {
        /// Its tag.
        policy: String,
        /// What is wrong with it.
        what: String,
    },
    /// What ended the job, the same on every rank that is left.
    #[error(transparent)]
    Fault(#[from] Cause),
    /// All ranks stop, because one wanted it.
    #[error("all ranks stop: a rank asked for it")]
    Asked,
    /// Ranks have said nothing for too long.
    #[error("all ranks stop: rank {by} has heard nothing of ranks {ranks:?}")]
    Silent {
        /// Who.
        ranks: Vec<u32>,
        /// Who noticed.
        by: u32,
    },
    /// Ranks have not submitted a tensor for too long.
    #[error("all ranks stop: ranks {missing:?} have not submitted `{name}`")]
    Stalled {
        /// The tensor.
        name: String,
        /// Who.
        missing: Vec<u32>,
    },
    /// A call to an engine that has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

impl Broken {
    /// What to do instead, where that is known.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Setting(error)
            | Self::Schedule(ScheduleError::Field(error))
            | Self::Collective(CollectiveError::Field(error)) => Some(&error.hint),
            Self::OutOfTurn { .. } => Some("register all tensors, then say `Event::Start`, once"),
            Self::NotInRound { .. } => {
                Some("submit every tensor once, or say that it is unused, before any again")
            }
            Self::Undecided { .. } => Some("call again once a frame of a peer was told"),
            Self::NotDone { .. } => Some("wait for its `Action::Done`"),
            Self::TooLate { .. } => Some("name a later generation"),
            _ => None,
        }
    }
}
