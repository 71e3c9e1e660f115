//! What the executor has to know of a collective: for every chunk its stages, the port of each, and
//! the sizes that queues go by. Alike ranks share one.

use allrail_collective::{Operation, StageRef};
use allrail_core::Bytes;
use allrail_schedule::room::Share;

/// One stage of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageTask {
    /// Its index within the chunk, in the plan: a rank that a stage does not concern leaves it out.
    pub stage: u32,
    /// The dimension on which it runs.
    pub port: u32,
    /// What it does there.
    pub operation: Operation,
    /// The buffer that it handles: before a reduce-scatter, after an all-gather.
    pub buffer: Bytes,
    /// What the rank brings to it.
    pub brought: Bytes,
    /// How much of the port it takes, in a unit that all stages on it share: communicators take turns by it.
    pub load: u64,
    /// What it uses of the port's bandwidth when it runs alone.
    pub share: Share,
}

/// The stages of a collective on one rank, or on ranks that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    tasks: Vec<StageTask>,
    /// `starts[chunk]..starts[chunk + 1]` are its tasks.
    starts: Vec<u32>,
    /// For each port the order in which it runs them, where queues keep to plans.
    planned: Vec<Vec<StageRef>>,
    /// The ports that it needs are below this.
    ports: u32,
    /// How many chunks have stages.
    with_stages: u32,
}

impl Stages {
    /// Without chunks; `planned` is empty, or has an order for every port.
    #[must_use]
    pub fn new(planned: Vec<Vec<StageRef>>) -> Self {
        Self { tasks: Vec::new(), starts: vec![0], planned, ports: 0, with_stages: 0 }
    }

    /// Adds a chunk.
    ///
    /// # Panics
    /// Beyond 2^32 stages.
    pub fn push(&mut self, chunk: impl IntoIterator<Item = StageTask>) {
        let before = self.tasks.len();
        self.tasks.extend(chunk);
        for task in &self.tasks[before..] {
            self.ports = self.ports.max(task.port.saturating_add(1));
        }
        self.with_stages += u32::from(self.tasks.len() > before);
        self.starts.push(u32::try_from(self.tasks.len()).expect("fewer than 2^32 stages"));
    }

    /// How many ports a rank must have to run them.
    #[must_use]
    pub fn ports(&self) -> u32 {
        self.ports
    }

    /// How many chunks have stages.
    #[must_use]
    pub(crate) fn with_stages(&self) -> u32 {
        self.with_stages
    }

    /// How many chunks.
    #[must_use]
    #[inline]
    pub fn chunks(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).expect("fewer than 2^32 chunks")
    }

    /// The tasks of a chunk, as places in [`Stages::tasks`].
    #[must_use]
    #[inline]
    pub fn chunk(&self, chunk: u32) -> std::ops::Range<u32> {
        self.starts[chunk as usize]..self.starts[chunk as usize + 1]
    }

    /// All tasks, chunk by chunk.
    #[must_use]
    #[inline]
    pub fn tasks(&self) -> &[StageTask] {
        &self.tasks
    }

    /// For each port the planned order; empty where queues decide for themselves.
    #[must_use]
    pub fn planned(&self) -> &[Vec<StageRef>] {
        &self.planned
    }
}
