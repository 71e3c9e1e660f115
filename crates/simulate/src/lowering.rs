//! The collectives of a scenario, lowered: one transfer a stage in `dims`, its algorithm's messages
//! elsewhere.

use std::rc::Rc;

use allrail_collective::{CollectivePlan, StageModel};
use allrail_core::Bytes;
use allrail_fabric::Fabric;
use allrail_schedule::Order;
use allrail_schedule::evaluate::Work;

use crate::SimulateError;
use crate::executors::lowered::{Carried, Lowered, StageTimes};
use crate::executors::plan_messages;
use crate::executors::programs::Programs;
use crate::scenario::NetworkModelKind;

/// What the driver carries.
pub struct Lowering {
    /// Of each collective.
    pub collectives: Vec<Rc<Lowered>>,
    /// How many actors there are: classes of ranks that are alike, or ranks.
    pub actors: u32,
    /// The longest message.
    pub largest_message: Bytes,
}

impl Lowering {
    /// A stage is one transfer of a class of ranks that are alike.
    #[must_use]
    pub fn stages(plans: &[CollectivePlan], works: &[Work], order: Order) -> Self {
        let lower = |(plan, work): (&CollectivePlan, &Work)| {
            let times = work.tasks().iter().map(|task| StageTimes {
                occupancy: task.occupancy,
                latency: task.latency,
                served: task.occupancy,
                sent: task.sent.0,
            });
            let planned =
                if order.keeps_to_plans() { plan.dimension_order.clone() } else { Vec::new() };
            let ports: Vec<u32> = plan.fabric.ids().map(|id| id.0).collect();
            let stages = plan_messages::stages(plan, work, &ports, planned, |_| true);
            Rc::new(Lowered::alike(stages, Carried::Stages(times.collect())))
        };
        let collectives = plans.iter().zip(works).map(lower).collect();
        Self { collectives, actors: 1, largest_message: Bytes::default() }
    }

    /// Every rank sends the messages of its plan; `works` are its times in `dims`.
    ///
    /// # Errors
    /// If the fabric or a program is too large for `network_model`, or a switch reduces.
    pub fn messages(
        fabric: &Fabric,
        plans: &[CollectivePlan],
        works: &[Work],
        network_model: NetworkModelKind,
        order: Order,
    ) -> Result<Self, SimulateError> {
        let actors = plan_messages::check_fabric(fabric, network_model)?;
        let ports: Vec<u32> = fabric.ids().map(|id| id.0).collect();
        let mut programs = Programs::default();
        let mut collectives = Vec::new();
        for (plan, work) in plans.iter().zip(works) {
            let lowered = plan_messages::lower(plan, work, &ports, order, &mut programs)?;
            collectives.push(Rc::new(lowered));
        }
        let largest = plans.iter().map(plan_messages::largest_message).max();
        Ok(Self { collectives, actors, largest_message: largest.unwrap_or_default() })
    }
}

/// The tasks of every collective on `fabric`.
///
/// # Errors
/// If an algorithm is not modelled there, or the times do not fit the clock.
pub fn work(
    fabric: &Fabric,
    plans: &[CollectivePlan],
) -> Result<(Vec<StageModel>, Vec<Work>), SimulateError> {
    let mut models = Vec::new();
    let mut works = Vec::new();
    for plan in plans {
        let model = allrail_schedule::scheduled::model_of(plan, fabric)?;
        let chunks = plan.chunks.iter().map(|chunk| (chunk.bytes, chunk.stages.as_slice()));
        works.push(Work::new(&model, chunks)?);
        models.push(model);
    }
    Ok((models, works))
}
