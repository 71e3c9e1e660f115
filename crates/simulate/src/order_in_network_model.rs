//! A planned order for a network model of messages, fixed by a run in that network model.
//!
//! The planner fixes the order of every dimension by running the schedule in the model of `dims`,
//! where a stage is one piece of work. As messages, a stage of several steps leaves its links idle
//! between them, and another stage fills the gap; a strict order that knows nothing of these gaps
//! keeps the other stage out of them and may cost half of the bandwidth. So where a plan is made for a
//! network model of messages, the collective is run there, alone, in every order that may be best: smallest
//! first; first come, first served; and strictly as planned for `dims`. Of the run that ends first, rank 0 writes down in which order each of its dimensions began its
//! stages, and all ranks keep to that.
//!
//! Where all ranks are alike, they chose alike, and the strict order takes as long as the run that fixed
//! it, to the picosecond: no longer than smallest-first. Where they are not (a broadcast, failed parts,
//! packets that choose their way) ranks may have chosen otherwise: then keeping to one order costs
//! something, which is the price of a transport that needs one. A queue that blocks itself
//! (`active_chunks` can make ranks wait for each other) gives no order; the one for `dims` can always be
//! kept.
//!
//! It takes as long as simulating the collective three times; a run that is later than the best so far is
//! broken off.

use allrail_collective::{CollectivePlan, StageRef};
use allrail_core::Time;
use allrail_schedule::Order;

use crate::driver::Run;
use crate::error::SimulateError;
use crate::judge::Judge;

/// A plan with the order in which its stages ran in the run that fixed it.
pub(crate) struct Fixed {
    /// See above.
    pub(crate) plan: CollectivePlan,
    /// How dimensions chose in that run.
    pub(crate) order: Order,
    /// When it ended.
    pub(crate) finish: Time,
}

/// Fixes the order of a plan where it is judged; nothing if no run is over by `until`.
///
/// # Errors
/// As [`Judge::run`].
pub(crate) fn fix(
    judge: &mut Judge<'_, '_>,
    plan: &CollectivePlan,
    until: Time,
) -> Result<Option<Fixed>, SimulateError> {
    let mut best: Option<(Run, Order)> = None;
    for order in orders(judge.request.order) {
        let until = best.as_ref().map_or(until, |(best, _)| best.finish[0]);
        if let Some(run) = judge.run(plan, order, until)?
            && best.as_ref().is_none_or(|(best, _)| run.finish < best.finish)
        {
            best = Some((run, order));
        }
    }
    let Some((best, order)) = best else { return Ok(None) };
    let mut dimension_order: Vec<Vec<StageRef>> = vec![Vec::new(); plan.dimension_order.len()];
    for span in best.spans {
        dimension_order[span.port as usize].push(span.at);
    }
    let fixed = CollectivePlan {
        dimension_order,
        order_made_in: judge.network_model.kind.tag().to_owned(),
        ..plan.clone()
    };
    fixed.check()?;
    Ok(Some(Fixed { plan: fixed, order, finish: best.finish[0] }))
}

/// The orders that are tried: those that may fix a planned one, and the one that the plan has.
pub(crate) fn orders(order: Order) -> Vec<Order> {
    let mut tried = order.fixed_by();
    tried.push(order);
    tried.dedup();
    tried
}
