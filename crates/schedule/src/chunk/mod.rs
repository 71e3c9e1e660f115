//! Chunk schedulers: which dimension each chunk visits next. One file a policy, one line in
//! [`ALL`].

mod baseline;
mod cut;
mod plugins;
mod round_robin;
mod search;
mod themis;

pub use cut::Cut;
pub(crate) use cut::MAX_CHUNKS;
pub use plugins::Plugins;
#[doc(hidden)]
pub use search::expected_in_links;
#[cfg(test)]
pub(crate) use search::permutations;

use allrail_collective::{Operation, Stage, StageModel};
use allrail_core::{Bytes, DimensionId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ScheduleError;
use crate::queue::Order;
use crate::room::ActiveChunks;

/// What a chunk scheduler knows: nothing but this decides, so every rank decides alike.
pub struct Problem<'a> {
    /// The time of every stage.
    pub model: &'a StageModel,
    /// What the collective does.
    pub operation: Operation,
    /// The dimensions that it spans, innermost first.
    pub dimensions: &'a [DimensionId],
    /// The bytes of every chunk, in the order in which they are issued.
    pub chunks: &'a [Bytes],
    /// How the dimensions will order their stages.
    pub order: Order,
    /// How many stages a dimension runs at once.
    pub active_chunks: Option<ActiveChunks>,
    /// The policies' parameters.
    pub parameters: &'a Parameters,
    /// For policies that draw.
    pub seed: u64,
    /// Told how many of its tries a policy that searches has made, and of how many; it decides nothing.
    pub watch: Watch<'a>,
}

/// Told how much is done, and how much there is.
pub type Watch<'a> = &'a dyn Fn(u64, u64);

/// The parameters of the chunk schedulers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// `themis`: loads that differ by less than the time of a chunk divided by this are equal.
    pub threshold: u32,
    /// `themis`: what the load tracker starts at.
    pub loads: Loads,
    /// `baseline`, `round_robin`, `themis`: how an all-reduce is made of stages.
    pub composition: Composition,
    /// How a buffer is cut into chunks.
    #[serde(skip_serializing_if = "Cut::is_default")]
    pub cut: Cut,
    /// A chunk has so many bytes at least, whatever the buffer has.
    #[serde(skip_serializing_if = "is_nothing")]
    pub smallest_chunk: Bytes,
    /// Whether nobody says how many chunks there are: an algorithm that is made for the network takes as many as it
    /// is best cut into.
    #[serde(skip)]
    pub free_chunks: bool,
}

fn is_nothing(bytes: &Bytes) -> bool {
    *bytes == Bytes::default()
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            threshold: 16,
            loads: Loads::default(),
            composition: Composition::default(),
            cut: Cut::default(),
            smallest_chunk: Bytes::default(),
            free_chunks: false,
        }
    }
}

/// What Themis' load tracker starts at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a start of the loads"))]
pub enum Loads {
    /// Each dimension's fixed delay (the paper's Algorithm 1).
    #[default]
    FixedDelay,
    /// Zero (ASTRA-sim's implementation).
    Zero,
}

/// How the baseline and Themis make an all-reduce of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a composition"))]
pub enum Composition {
    /// Reduce-scatters over all dimensions, then all-gathers in reverse.
    #[default]
    Stages,
    /// The same with the last dimension's two stages merged into one all-reduce.
    Merged,
    /// An all-reduce of the whole chunk on each dimension in turn.
    Sequential,
}

/// A policy. The planner calls [`ChunkScheduler::schedule`] once per collective.
pub trait ChunkScheduler: Send + Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &str;

    /// The tag that it had before, which scenario files may still use.
    fn formerly(&self) -> Option<&str> {
        None
    }

    /// One line for the docs.
    fn about(&self) -> &str;

    /// Raised whenever the same problem may give another schedule: cached plans become void.
    fn version(&self) -> u32;

    /// Whether planning takes long enough that plans should be kept.
    fn is_expensive(&self) -> bool {
        false
    }

    /// `schedule.order`, where it is left out.
    fn default_order(&self) -> Order {
        Order::default()
    }

    /// Whether it composes an all-reduce so.
    fn composes(&self, composition: Composition) -> bool {
        composition == Composition::Stages
    }

    /// Whether every chunk visits the dimensions in their order, so that merged all-reduces all end on the last.
    fn keeps_the_order(&self) -> bool {
        false
    }

    /// The stages of every chunk.
    ///
    /// # Errors
    /// If the times do not fit the clock.
    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError>;

    /// The chunk schedulers whose schedules are among [`ChunkScheduler::finalists`]: none, where there is one
    /// finalist.
    fn rivals(&self) -> &'static [&'static str] {
        &[]
    }

    /// The schedules that are worth a run in a network model that carries messages, that of
    /// [`ChunkScheduler::schedule`] first. Whoever plans for such a model runs each of them there and keeps the one
    /// that ends first.
    ///
    /// # Errors
    /// If the times do not fit the clock.
    fn finalists(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Vec<Stage>>>, ScheduleError> {
        Ok(vec![self.schedule(problem)?])
    }
}

impl std::fmt::Debug for dyn ChunkScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// Every chunk scheduler, in the order of the docs.
pub static ALL: &[&dyn ChunkScheduler] =
    &[&baseline::Baseline, &round_robin::RoundRobin, &themis::Themis, &search::Search];

/// The stages of a chunk that scatters over `scatter` and gathers over `gather`, or, for the other
/// operations, visits `scatter` in turn.
#[must_use]
pub fn stages(operation: Operation, scatter: &[DimensionId], gather: &[DimensionId]) -> Vec<Stage> {
    let visit = |operation, dimension: &DimensionId| Stage { operation, dimension: *dimension };
    if operation == Operation::AllReduce {
        let scatters = scatter.iter().map(|d| visit(Operation::ReduceScatter, d));
        scatters.chain(gather.iter().map(|d| visit(Operation::AllGather, d))).collect()
    } else {
        scatter.iter().map(|d| visit(operation, d)).collect()
    }
}

/// The stages of an all-reduce's chunk that visits `scatter` on the way out and `gather` on the way back,
/// composed as asked; of another operation, that visits `scatter`.
fn composed(
    operation: Operation,
    scatter: &[DimensionId],
    gather: &[DimensionId],
    composition: Composition,
) -> Vec<Stage> {
    let mut order = stages(operation, scatter, gather);
    if operation != Operation::AllReduce {
        return order;
    }
    match composition {
        Composition::Stages => order,
        Composition::Merged => {
            let last = scatter.len();
            order.splice(last - 1..=last, [Stage { operation, dimension: scatter[last - 1] }]);
            order
        }
        Composition::Sequential => {
            scatter.iter().map(|d| Stage { operation, dimension: *d }).collect()
        }
    }
}
