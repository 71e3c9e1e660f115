//! All ranks of a job in one process, with real buffers, and what must hold whatever is delivered when.
//!
//! A [`Job`] says what is exchanged and in which order each rank submits it; a [`Driver`] carries it out and
//! says in its [`Outcome`] what every rank holds and launched. The laws are written against the trait, so
//! that they are those of any other driver too. [`Loopback`] is the plainest: one thread, no socket, and an
//! adversary that decides from a seed what happens next.

mod adversary;
mod bare;
mod clock;
mod contents;
mod decider;
mod draw;
mod engines;
mod faults;
mod frame;
mod job;
mod laws;
mod matcher;
mod network;
mod node;
mod plans;
#[path = "../../../../collective/tests/it/msccl/programs.rs"]
mod programs;

use allrail_collective::StageRef;
use allrail_engine::engine::Stopped;
use allrail_schedule::operation::OperationName;

pub(crate) use job::{Job, Transport};
pub(crate) use network::Loopback;

/// Carries jobs out.
pub(crate) trait Driver {
    /// The same job has the same result, whatever else this driver does with it.
    fn run(&mut self, job: &Job) -> Outcome;
}

/// What a rank launched on one of its ports.
pub(crate) type Launch = (OperationName, StageRef);

/// What became of a rank.
#[derive(Debug, PartialEq)]
pub(crate) struct RankOutcome {
    /// Of each tensor what its memory was after each exchange, with the guards before and behind it.
    pub(crate) results: Vec<Vec<Vec<u8>>>,
    /// What it launched on each port, in this order.
    pub(crate) launched: Vec<Vec<Launch>>,
    /// Every error that it was told, or found.
    pub(crate) errors: Vec<String>,
    /// Why it has stopped.
    pub(crate) stopped: Option<Stopped>,
    /// And the memory of each tensor then.
    pub(crate) left: Vec<Vec<u8>>,
    /// Whether several tensors have lain in one buffer.
    pub(crate) packed: bool,
    /// How many exchanges were done in a frozen order, and what was said meanwhile, but that it ends.
    pub(crate) frozen: (u64, u64),
    /// How often a name that was used before was a new one.
    pub(crate) renewed: u64,
}

/// What has gone wrong on the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Injected {
    /// Who sent the frame, or where the operation failed.
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// By the frame's name, if it has one.
    pub(crate) operation: Option<OperationName>,
}

/// What became of a job.
pub(crate) struct Outcome {
    pub(crate) ranks: Vec<RankOutcome>,
    /// Ranks that were lost.
    pub(crate) dead: Vec<u32>,
    /// The frame that the network has added, or the operation that it let fail.
    pub(crate) injected: Option<Injected>,
    /// Pairs of launches that met and were not of one stage.
    pub(crate) mismatches: Vec<String>,
    /// How often an engine was told something.
    pub(crate) events: u64,
}
