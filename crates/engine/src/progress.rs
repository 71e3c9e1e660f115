//! A collective on an executor: its number, the stages of it that run or wait, and how far it is.

use allrail_collective::StageRef;

/// The communicator of an executor that has one only.
pub const ALONE: u32 = 0;

/// A collective on an executor. Numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectiveId {
    /// Its place; given again once it is over.
    pub slot: u32,
    /// How often the place was given before.
    pub generation: u32,
}

/// A stage to be run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Whose.
    pub collective: CollectiveId,
    /// Which.
    pub at: StageRef,
    /// Its place in the collective's [`Stages::tasks`](crate::Stages::tasks).
    pub task: u32,
    /// Where; the port is taken from now on.
    pub port: u32,
}

/// A chunk that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// Whose.
    pub collective: CollectiveId,
    /// Its stage.
    pub at: StageRef,
    /// Its place in the collective's [`Stages::tasks`](crate::Stages::tasks).
    pub task: u32,
    /// Whether that runs; else it waits in a queue.
    pub running: bool,
}

/// How far a collective is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Under way.
    Running,
    /// Over on this rank; its place may be given again.
    Over,
}
