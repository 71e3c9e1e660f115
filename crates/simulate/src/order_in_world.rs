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
use allrail_core::{Bytes, Time};
use allrail_schedule::evaluate::{self, Work};
use allrail_schedule::{Order, Request, key, queue};
use allrail_world::flows::Splitting;
use serde_json::json;

use crate::driver::{self, Collectives, Observer, Run};
use crate::error::SimulateError;
use crate::lowering::{Lowering, work};
use crate::scenario::{Topology, WorldKind};
use crate::world_settings::WorldSettings;

/// Raised whenever the same run may give another order: cached plans become void.
const VERSION: u32 = 1;

/// Whether plans get their order from a run in their world.
pub(crate) fn applies(order: Order, world: WorldKind) -> bool {
    order.keeps_to_plans() && world.carries_messages()
}

/// The key of a plan whose key is `planned`, with everything that the run depends on beside it.
pub(crate) fn key(world: &WorldSettings<'_>, planned: &str) -> String {
    let mut inputs = json!({
        "version": VERSION,
        "planned": planned,
        "world": world.kind,
        "topology": world.topology.map(|Topology(_, keys)| keys),
        "packets": world.packets,
    });
    if world.paths != Splitting::Minimal {
        inputs["paths"] = json!(world.paths);
    }
    if world.send_ahead > Bytes::default() {
        inputs["send_ahead"] = json!(world.send_ahead);
    }
    key::hash(&inputs)
}

/// Gives `plan`, made for `request`, the order in which `world` runs its stages.
///
/// # Errors
/// The world cannot carry the collective: names the field that is wrong; an interruption.
pub(crate) fn fix(
    request: &Request,
    world: &WorldSettings<'_>,
    plan: &CollectivePlan,
    observer: Observer<'_>,
) -> Result<CollectivePlan, SimulateError> {
    let plans = std::slice::from_ref(plan);
    let (_, works) = work(&request.fabric, plans)?;
    let mut best: Option<Run> = None;
    for order in orders(request, plan, &works[0]) {
        let lowering = Lowering::messages(&request.fabric, plans, &works, world.kind, order)?;
        let job = Collectives {
            plans,
            starts: &[Time::ZERO],
            priorities: &[0],
            order,
            active_chunks: request.active_chunks,
            send_ahead: world.send_ahead,
            endpoint_delay: plan.endpoint_delay,
            timeline: true,
        };
        let mut empty = world.of_messages(&request.fabric, &lowering)?;
        match driver::run(&job, &lowering, &mut *empty, observer) {
            Ok(run) if best.as_ref().is_none_or(|best| run.finish < best.finish) => {
                best = Some(run);
            }
            Ok(_) | Err(SimulateError::Stalled { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let Some(best) = best else { return Ok(plan.clone()) };
    let mut dimension_order: Vec<Vec<StageRef>> = vec![Vec::new(); plan.dimension_order.len()];
    for span in best.spans {
        dimension_order[span.port as usize].push(span.at);
    }
    let fixed = CollectivePlan {
        dimension_order,
        order_made_in: world.kind.tag().to_owned(),
        key: key(world, &plan.key),
        ..plan.clone()
    };
    fixed.check()?;
    Ok(fixed)
}

/// The orders that are tried: the first that may fix a planned one, the one under which the plan ends
/// first in `dims`, and the one that it has.
fn orders(request: &Request, plan: &CollectivePlan, work: &Work) -> Vec<Order> {
    let active_chunks = request.active_chunks;
    let work = work.clone().side_by_side(active_chunks);
    let end = |order: &Order| {
        let mut queues = queue::queues(*order, plan.dimension_order.len(), &[]);
        evaluate::finish(&work, &mut queues, active_chunks)
    };
    let free = request.order.fixed_by();
    let mut tried: Vec<Order> = free.iter().take(1).copied().collect();
    tried.extend(free.iter().min_by_key(|order| end(order)));
    tried.push(request.order);
    tried.dedup();
    tried
}
