//! What a caller or a peer did that cannot be.

use allrail_collective::StageRef;
use thiserror::Error;

use crate::CollectiveId;

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
    #[error("a message for step {step} has come, and {over} steps are over")]
    Late {
        /// Its step.
        step: u64,
        /// How many are over.
        over: u64,
    },
}
