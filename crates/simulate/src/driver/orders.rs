//! The planned orders that a job's queues keep to.

use allrail_collective::{Operation, StageRef};

use super::Job;
use crate::lowering::{Lowering, StageAt};

/// `orders[collective][dimension]`: stages, in the order in which they are served.
type Orders = Vec<Vec<Vec<StageRef>>>;

impl Job<'_> {
    /// The orders of its plans; none where its queues decide for themselves.
    pub(crate) fn planned_orders(&self) -> Orders {
        if !self.order.keeps_to_plans() {
            return Vec::new();
        }
        self.plans.iter().map(|plan| plan.dimension_order.clone()).collect()
    }
}

/// The planned orders without the stages that do not concern an actor: a broadcast's, before the
/// data has reached its line.
pub(super) fn concerning(
    actor: u32,
    job: &Job<'_>,
    lowering: &dyn Lowering,
    orders: &[Vec<Vec<StageRef>>],
) -> Orders {
    let concerns = |collective: u32, at: &StageRef| {
        lowering.concerns(actor, StageAt { collective, chunk: at.chunk, stage: at.stage })
    };
    let mut orders = orders.to_vec();
    for ((collective, plan), order) in (0u32..).zip(job.plans).zip(&mut orders) {
        if plan.operation == Operation::Broadcast {
            order.iter_mut().for_each(|stages| stages.retain(|at| concerns(collective, at)));
        }
    }
    orders
}
