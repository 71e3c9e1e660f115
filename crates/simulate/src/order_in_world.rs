//! A planned order for a world of messages, fixed by a run in that world.
//!
//! The planner fixes the order of every dimension by running the schedule in the model of `dims`,
//! where a stage is one piece of work. As messages, a stage of several steps leaves its links idle
//! between them, and another stage fills the gap; a strict order that knows nothing of these gaps
//! keeps the other stage out of them and may cost half of the bandwidth. So where a plan is made for a
//! world of messages, the collective is run there, alone, in every order that may be best: smallest
//! first; first come, first served, where that ends earlier in `dims`; and strictly as planned for
//! `dims`. Of the run that ends first, rank 0 writes down in which order each of its dimensions began its
//! stages, and all ranks keep to that.
//!
//! Where all ranks are alike, they chose alike, and the strict order takes as long as the run that fixed
//! it, to the picosecond: no longer than smallest-first. Where they are not (a broadcast, failed parts,
//! packets that choose their way) ranks may have chosen otherwise: then keeping to one order costs
//! something, which is the price of a transport that needs one. A queue that blocks itself
//! (`active_chunks` can make ranks wait for each other) gives no order; the one for `dims` can always be
//! kept.
//!
//! It takes as long as simulating the collective twice, or three times.

use allrail_collective::{CollectivePlan, StageRef};
use allrail_core::Time;
use allrail_schedule::evaluate::{self, Work};
use allrail_schedule::{Order, key, queue};
use serde_json::json;

use crate::driver::Observer;
use crate::error::SimulateError;
use crate::lowering::work;
use crate::plan_file::PlanFile;
use crate::result::SimulationResult;
use crate::run::simulate;
use crate::scenario::{Collective, Scenario, Schedule, Topology};

/// Raised whenever the same run may give another order: cached plans become void.
const VERSION: u32 = 1;

/// Whether the plans of a scenario get their order from a run in its world.
pub(crate) fn applies(scenario: &Scenario) -> bool {
    scenario.schedule.order == Order::PLANNED && scenario.world.carries_messages()
}

/// The key of a plan whose key is `planned`, with everything that the run depends on beside it.
pub(crate) fn key(scenario: &Scenario, planned: &str) -> String {
    let inputs = json!({
        "version": VERSION,
        "planned": planned,
        "world": scenario.world,
        "topology": scenario.topology.as_ref().map(|Topology(_, keys)| keys),
        "packets": scenario.packets,
    });
    key::hash(&inputs)
}

/// Gives `plan`, made for `collective`, the order in which the world of `scenario` runs its stages.
///
/// # Errors
/// The world cannot carry the collective: names the field that is wrong; an interruption.
pub(crate) fn fix(
    scenario: &Scenario,
    collective: &Collective,
    plan: &CollectivePlan,
    observer: Observer<'_>,
) -> Result<CollectivePlan, SimulateError> {
    let file = PlanFile { schema_version: 1, plans: vec![plan.clone()] };
    let mut best: Option<SimulationResult> = None;
    for order in orders(scenario, plan)? {
        let alone = Scenario {
            collective: vec![Collective { start: Time::ZERO, ..collective.clone() }],
            schedule: Schedule { order, ..scenario.schedule.clone() },
            ..scenario.clone()
        };
        match simulate(&alone, Some(&file), true, observer) {
            Ok(run) if best.as_ref().is_none_or(|best| run.time_us < best.time_us) => {
                best = Some(run);
            }
            Ok(_) | Err(SimulateError::Stalled { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let Some(spans) = best.and_then(|run| run.timeline) else { return Ok(plan.clone()) };
    let mut dimension_order = vec![Vec::new(); plan.dimension_order.len()];
    for span in spans {
        let at = StageRef { chunk: span.chunk, stage: span.stage };
        dimension_order[span.dimension as usize].push(at);
    }
    let fixed = CollectivePlan {
        dimension_order,
        order_made_in: scenario.world.tag().to_owned(),
        key: key(scenario, &plan.key),
        ..plan.clone()
    };
    fixed.check()?;
    Ok(fixed)
}

/// The orders that are tried: the first that may fix a planned one, the one under which the plan ends
/// first in `dims`, and the one that it has.
fn orders(scenario: &Scenario, plan: &CollectivePlan) -> Result<Vec<Order>, SimulateError> {
    let active_chunks = scenario.schedule.active_chunks;
    let (_, works) = work(&scenario.fabric, std::slice::from_ref(plan))?;
    let works: Vec<Work> = works.into_iter().map(|w| w.side_by_side(active_chunks)).collect();
    let end = |order: &Order| {
        let mut queues = queue::queues(*order, plan.dimension_order.len(), &[]);
        works.iter().map(|work| evaluate::finish(work, &mut queues, active_chunks)).max()
    };
    let free = Order::PLANNED.fixed_by();
    let mut tried: Vec<Order> = free.iter().take(1).copied().collect();
    tried.extend(free.iter().min_by_key(|order| end(order)));
    tried.push(Order::PLANNED);
    tried.dedup();
    Ok(tried)
}
