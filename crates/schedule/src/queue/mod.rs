//! Dimension queues: which waiting stage a dimension serves next. One file a policy, one line in
//! [`ALL`].
//!
//! Each communicator of a rank has a queue of its own on every port; [`Shared`] is what they have in common.
//! Across collectives of one the higher priority goes first, whatever the policy; within a collective the
//! policy decides. Ties go to the chunk issued first, then to the stage that has waited longest. Only
//! `astra_sim`, `gather_late` (by what a stage does) and `strict`, which goes by the order of issue, have
//! rules of their own.

mod astra_sim;
mod fifo;
mod gather_late;
mod lifo;
mod order;
mod planned;
mod ranked;
mod shared;
mod smallest_first;
mod strict;

use allrail_collective::{Operation, StageRef};
use allrail_core::{Bytes, FieldError};

pub use astra_sim::AstraSim;
pub use fifo::Fifo;
pub use gather_late::GatherLate;
pub use lifo::Lifo;
pub use order::Order;
pub use planned::Planned;
pub use shared::Shared;
pub use smallest_first::SmallestFirst;
pub use strict::Strict;

use crate::error::ScheduleError;

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
pub trait DimensionQueue: Send {
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

    /// A collective is withdrawn: drops what waits of it, and says how many stages that were.
    fn withdraw(&mut self, collective: u32) -> u32;

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

    fn withdraw(&mut self, collective: u32) -> u32 {
        (**self).withdraw(collective)
    }

    fn waiting(&self) -> Vec<Waiting> {
        (**self).waiting()
    }
}

/// A policy: makes queues.
pub trait QueuePolicy: Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &'static str;

    /// One line for the docs.
    fn about(&self) -> &'static str;

    /// The queue of one dimension. `orders` has, of each collective, the stages of its plan on this
    /// dimension in order; it is empty unless the policy [keeps to plans](Self::keeps_to_plans).
    fn queue(&self, orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue>;

    /// How urgent the messages of a stage are, where several stages share a link: that of its collective,
    /// unless the policy goes by what stages do. The higher goes first.
    fn urgency(&self, operation: Operation, priority: i64) -> i64 {
        let _ = operation;
        priority
    }

    /// Whether the order comes from a plan, and no queue decides.
    fn keeps_to_plans(&self) -> bool {
        false
    }

    /// Whether what runs next follows from plans and the order of issue alone, across collectives too, and
    /// never from when a stage comes: ranks that issue alike then launch alike.
    fn is_strict(&self) -> bool {
        false
    }

    /// The orders under which a schedule is run to fix that of its dimensions, if not this one: one
    /// that keeps to plans has none yet. The first also runs while chunks are scheduled; of those
    /// that end first, the first is taken.
    fn fixed_by(&self) -> &'static [Order] {
        &[]
    }

    /// Whether the smallest buffer goes first, of equal ones that of the chunk issued first, and
    /// nothing else counts: planners that look at millions of schedules have a fast way to run those.
    fn is_smallest_first(&self) -> bool {
        false
    }
}

impl std::fmt::Debug for dyn QueuePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}

/// Every queue, in the order of the docs.
pub static ALL: &[&dyn QueuePolicy] = &[
    &fifo::Policy,
    &lifo::Policy,
    &smallest_first::Policy,
    &gather_late::Policy,
    &planned::Policy,
    &strict::Policy,
    &astra_sim::Policy,
];

/// The queue policy with this tag.
///
/// # Errors
/// [`ScheduleError::Field`] with the known names.
pub fn named(name: &str) -> Result<Order, ScheduleError> {
    ALL.iter().copied().find(|policy| policy.tag() == name).map(Order).ok_or_else(|| {
        let known: Vec<String> = ALL.iter().map(|policy| format!("`{}`", policy.tag())).collect();
        ScheduleError::Field(FieldError::new(
            "schedule.order",
            name,
            "it is not an order",
            format!("use one of {}", known.join(", ")),
        ))
    })
}

/// The queues of all dimensions of a rank, for an order; `planned` holds, per collective, the
/// order of each dimension.
#[must_use]
pub fn queues(
    order: Order,
    dimensions: usize,
    planned: &[Vec<Vec<StageRef>>],
) -> Vec<Box<dyn DimensionQueue>> {
    let on = |d: usize| planned.iter().map(|orders| orders[d].clone()).collect();
    (0..dimensions).map(|d| order.queue(on(d))).collect()
}
