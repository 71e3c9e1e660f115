//! Dimension queues: which waiting stage a dimension serves next. One file a policy, one line in
//! [`ORDERS`].
//!
//! Across collectives the higher priority goes first, whatever the policy; within a collective the
//! policy decides. Ties go to the chunk issued first, then to the stage that has waited longest. Only
//! `astra_sim` has rules of its own.

mod astra_sim;
mod fifo;
mod lifo;
mod planned;
mod ranked;
mod smallest_first;

use allrail_collective::{Operation, StageRef};
use allrail_core::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use astra_sim::AstraSim;
pub use fifo::Fifo;
pub use lifo::Lifo;
pub use planned::Planned;
pub use smallest_first::SmallestFirst;

/// A stage that is ready to run on a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which of the concurrent collectives.
    pub collective: u32,
    /// Which stage of it.
    pub at: StageRef,
    /// Higher goes first.
    pub priority: i64,
    /// What the stage does.
    pub operation: Operation,
    /// The buffer that the stage handles: before a reduce-scatter, after an all-gather.
    pub buffer: Bytes,
    /// What an NPU brings to it: of an all-gather its part of the buffer, else the buffer.
    pub brought: Bytes,
}

/// The decider of one dimension of one rank (or class of ranks that are alike). The driver pushes
/// a stage when its chunk is ready for it, and pops one when the dimension can serve another.
pub trait DimensionQueue {
    /// A collective is issued, and its plan has this dimension serve its stages in `order`. Only
    /// queues that keep to plans listen. A number may be given again once its collective is over.
    fn begin(&mut self, collective: u32, order: &[StageRef]) {
        let _ = (collective, order);
    }

    /// Whether what happens at one time is taken one by one, in the order of the dimensions, and each
    /// dimension chooses at once; else all of it is taken in before any dimension chooses.
    fn is_eager(&self) -> bool {
        false
    }

    /// A stage has become ready.
    fn push(&mut self, stage: Waiting);

    /// The stage to serve now; `None` if none is waiting, or the next one in a fixed order is not
    /// here yet.
    fn pop(&mut self) -> Option<Waiting>;

    /// What waits, for the report of a stall.
    fn waiting(&self) -> Vec<Waiting>;
}

impl DimensionQueue for Box<dyn DimensionQueue> {
    fn begin(&mut self, collective: u32, order: &[StageRef]) {
        (**self).begin(collective, order);
    }

    fn is_eager(&self) -> bool {
        (**self).is_eager()
    }

    fn push(&mut self, stage: Waiting) {
        (**self).push(stage);
    }

    fn pop(&mut self) -> Option<Waiting> {
        (**self).pop()
    }

    fn waiting(&self) -> Vec<Waiting> {
        (**self).waiting()
    }
}

/// The policy of a dimension queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// First come, first served.
    #[default]
    Fifo,
    /// Last come, first served.
    Lifo,
    /// The smallest chunk first (Themis §4.4, SCF).
    SmallestFirst,
    /// The order that a deterministic simulation of the plan fixed (Themis §4.6).
    Planned,
    /// The smallest chunk first by ASTRA-sim's rules.
    AstraSim,
}

impl Order {
    /// The order that runs while chunks are scheduled: a planned one is searched by smallest-first.
    #[must_use]
    pub fn while_planning(self) -> Self {
        match self {
            Self::Planned => Self::SmallestFirst,
            order => order,
        }
    }

    /// The orders under which a schedule is run to fix that of its dimensions; of those that end
    /// first, the first. A planned order is none of its own: smallest-first, or where that leaves
    /// gaps (few chunks that all go the same way) first come, first served.
    #[must_use]
    pub fn fixed_by(self) -> &'static [Self] {
        match self {
            Self::Fifo => &[Self::Fifo],
            Self::Lifo => &[Self::Lifo],
            Self::SmallestFirst => &[Self::SmallestFirst],
            Self::Planned => &[Self::SmallestFirst, Self::Fifo],
            Self::AstraSim => &[Self::AstraSim],
        }
    }
}

/// Every order: tag and one line for the docs.
pub const ORDERS: &[(Order, &str, &str)] = &[
    (Order::Fifo, "fifo", "the stage that has waited longest"),
    (Order::Lifo, "lifo", "the stage that came last"),
    (Order::SmallestFirst, "smallest_first", "the stage with the smallest buffer (Themis' SCF)"),
    (
        Order::Planned,
        "planned",
        "the order that a deterministic simulation of the plan fixed, on every rank alike",
    ),
    (
        Order::AstraSim,
        "astra_sim",
        "as ASTRA-sim's SCF: by what an NPU brings, last come first, whatever the priority",
    ),
];

/// The queues of all dimensions of a rank, for an order; `planned` holds, per collective, the
/// order of each dimension.
#[must_use]
pub fn queues(
    order: Order,
    dimensions: usize,
    planned: &[Vec<Vec<StageRef>>],
) -> Vec<Box<dyn DimensionQueue>> {
    (0..dimensions)
        .map(|d| -> Box<dyn DimensionQueue> {
            match order {
                Order::Fifo => Box::new(Fifo::default()),
                Order::Lifo => Box::new(Lifo::default()),
                Order::SmallestFirst => Box::new(SmallestFirst::default()),
                Order::AstraSim => Box::new(AstraSim::default()),
                Order::Planned => {
                    Box::new(Planned::new(planned.iter().map(|orders| orders[d].clone()).collect()))
                }
            }
        })
        .collect()
}
