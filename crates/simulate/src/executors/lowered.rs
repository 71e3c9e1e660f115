//! What is carried, lowered: for every rank that takes part, the stages that its executor runs, and
//! what a stage is to the network model.
//!
//! In `dims` a stage is one transfer of the rank, or class of ranks, to itself. Elsewhere it is the
//! steps of its algorithm: a step sends messages, and is over when the rank has received as many as
//! it expects.

use std::sync::Arc;

use allrail_collective::dataflow::RankMessages;
use allrail_collective::{Pace, StageRef};
use allrail_core::{Bytes, Time};
use allrail_engine::Stages;

/// A message that a step sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// To which position.
    pub to: u32,
    /// Whose step it completes: its receiver's, but of a lone message its sender's.
    pub heard_by: u32,
    /// The dimension on which it counts.
    pub dimension: u32,
    /// How much.
    pub bytes: Bytes,
    /// Whether the sender's port is free for another stage only after it.
    pub last_on_link: bool,
}

/// The steps of stages as messages. Positions number the ranks that take part.
pub trait MessageSteps {
    /// How many steps a stage has.
    fn steps(&self, at: StageRef) -> u32;

    /// How many steps the stages before it have.
    fn first(&self, at: StageRef) -> u64;

    /// Appends what a position sends in a step.
    fn sends(&self, position: u32, at: StageRef, step: u32, out: &mut Vec<Outgoing>);

    /// How many messages a position receives in a step.
    fn expected(&self, position: u32, at: StageRef, step: u32) -> u32;

    /// How long an endpoint takes over a step, if not as long as usual.
    fn endpoint_delay(&self) -> Option<Time> {
        None
    }

    /// Where a stage's messages leave one by one, how; else those of a step leave at once.
    fn pace(&self, at: StageRef) -> Option<Pace> {
        let _ = at;
        None
    }

    /// Whether any stage's messages wait for their own blocks only.
    fn has_dataflow(&self) -> bool {
        false
    }

    /// Where a stage's messages wait for their own blocks only: a position's; else those of a step wait for the
    /// steps before.
    fn dataflow(&self, position: u32, at: StageRef) -> Option<&RankMessages> {
        let _ = (position, at);
        None
    }

    /// A message that a position sends in a stage of [dataflow](Self::dataflow), by its number.
    ///
    /// # Panics
    /// The stage is none.
    fn message(&self, position: u32, at: StageRef, number: u32) -> Outgoing {
        unreachable!("position {position} has no message {number} of its own in {at:?}")
    }

    /// The switches that such a message passes, if it is said.
    fn via(&self, position: u32, at: StageRef, number: u32) -> Option<&[u32]> {
        let _ = (position, at, number);
        None
    }

    /// How long a position takes to combine a message that it has received in such a stage.
    fn combining(&self, position: u32, at: StageRef, number: u32) -> Time {
        let _ = (position, at, number);
        Time::ZERO
    }

    /// How long a position reduces what it has received in a step, before the next begins.
    fn reducing(&self, position: u32, at: StageRef, step: u32) -> Time {
        let _ = (position, at, step);
        Time::ZERO
    }
}

/// A stage as one transfer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTimes {
    /// Until the port can serve another.
    pub occupancy: Time,
    /// From then to its end.
    pub latency: Time,
    /// How long its bytes take.
    pub served: Time,
    /// Its bytes: a mean.
    pub sent: f64,
}

/// What stages are to the network model.
pub enum Carried {
    /// Of every task its times.
    Stages(Vec<StageTimes>),
    /// Messages.
    Messages(Box<dyn MessageSteps>),
}

/// A collective, or whatever else has stages, lowered.
pub struct Lowered {
    /// By kind of rank.
    stages: Vec<Arc<Stages>>,
    /// By position; all are of kind 0 where it is empty.
    kinds: Vec<u32>,
    /// What a stage is to the network model.
    pub carried: Carried,
    /// From its last stage's end to its own.
    pub added: Time,
}

impl Lowered {
    /// For ranks that are all alike.
    #[must_use]
    pub fn alike(stages: Stages, carried: Carried) -> Self {
        Self { stages: vec![Arc::new(stages)], kinds: Vec::new(), carried, added: Time::ZERO }
    }

    /// For ranks of several kinds; `kinds` says which each position is.
    #[must_use]
    pub(crate) fn of_kinds(stages: Vec<Stages>, kinds: Vec<u32>, carried: Carried) -> Self {
        let stages = stages.into_iter().map(Arc::new).collect();
        Self { stages, kinds, carried, added: Time::ZERO }
    }

    /// Ends later.
    #[must_use]
    pub fn later(self, added: Time) -> Self {
        Self { added, ..self }
    }

    /// The stages of the rank at a position.
    #[must_use]
    pub fn stages(&self, position: u32) -> &Arc<Stages> {
        let kind = self.kinds.get(position as usize).copied().unwrap_or(0);
        &self.stages[kind as usize]
    }

    /// How many chunks.
    #[must_use]
    pub fn chunks(&self) -> u32 {
        self.stages.first().map_or(0, |stages| stages.chunks())
    }
}
