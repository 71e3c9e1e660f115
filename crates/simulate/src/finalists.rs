//! Plans for a network model that carries messages, judged by runs in it.
//!
//! The planner judges schedules in the model of `dims`. What ends first there need not in another model: stages
//! of several steps leave gaps, ranks run ahead or wait, messages share cables. So where a policy has several
//! schedules to offer ([`allrail_schedule::chunk::ChunkScheduler::finalists`]: `search` has its own, Themis' and
//! the baseline's), each is run in the model that was asked for, alone, and the one that ends first is the plan. A
//! planned order is fixed by runs there too ([`crate::order_in_network_model`]).
//!
//! Where ranks are not alike (parts that failed, packets that choose their way), a strict order may take longer than
//! the run that it was read off. So the best finalist is run once more, strictly. If that takes longer, a scenario
//! of one collective keeps the order of the quicker run, which ranks do not share
//! ([`crate::plan_file::PlanFile::free_order`]); elsewhere the finalist that is the quickest strictly is taken.
//!
//! A run that is later than the best known is broken off. There are up to 4 finalists x 3 orders of these runs,
//! and a strict one.

use std::cell::RefCell;

use allrail_collective::CollectivePlan;
use allrail_core::{Bytes, Time};
use allrail_network::flows::Splitting;
use allrail_schedule::{Order, Request, key as hashes, planner};
use serde_json::json;

use crate::error::SimulateError;
use crate::judge::Judge;
use crate::network_model_settings::NetworkModelSettings;
use crate::order_in_network_model::{self, Fixed};
use crate::scenario::{NetworkModelKind, Topology};

/// Of a collective, as long as nobody knows how many finalists there are.
const MAX_RUNS: u64 = 13;
/// Raised whenever the same runs may give another plan: cached plans become void.
const VERSION: u32 = 2;

/// Whether plans are judged where they run.
///
/// # Errors
/// There is no such chunk scheduler.
pub(crate) fn applies(
    request: &Request,
    network_model: NetworkModelKind,
) -> Result<bool, SimulateError> {
    let runs = request.order.keeps_to_plans() || planner::has_finalists(request)?;
    Ok(runs && network_model.carries_messages())
}

/// The key of a plan whose key is `planned`, with everything that the runs depend on beside it.
pub(crate) fn key(network_model: &NetworkModelSettings<'_>, planned: &str) -> String {
    let mut inputs = json!({
        "version": VERSION,
        "planned": planned,
        "network_model": network_model.kind,
        "topology": network_model.topology.map(|Topology(_, keys)| keys),
        "packets": network_model.packets,
    });
    if network_model.paths != Splitting::Minimal {
        inputs["paths"] = json!(network_model.paths);
    }
    if network_model.send_ahead > Bytes::default() {
        inputs["send_ahead"] = json!(network_model.send_ahead);
    }
    hashes::hash(&inputs)
}

/// A plan, and the order in which its stages are served where that is not its own.
pub(crate) struct Chosen {
    pub(crate) plan: CollectivePlan,
    pub(crate) free_order: Option<Order>,
}

impl From<CollectivePlan> for Chosen {
    fn from(plan: CollectivePlan) -> Self {
        Self { plan, free_order: None }
    }
}

/// The plan of a collective where [`applies`]; `alone`: no other collective of the scenario has to be served, too.
///
/// # Errors
/// Names the field that is wrong; an interruption.
pub(crate) fn plan(judge: &mut Judge<'_, '_>, alone: bool) -> Result<Chosen, SimulateError> {
    // The search is told as a run, too.
    let after = judge.runs.left() - 1;
    judge.runs.expect(1 + MAX_RUNS + after);
    let runs = RefCell::new(&mut *judge.runs);
    // Whoever wants it to end says so again at the first run.
    let watch = |done, total| {
        let _ = runs.borrow_mut().observe(done, total);
    };
    let finalists = planner::finalists(judge.request, &watch)?;
    judge.runs.next();
    let orders = order_in_network_model::orders(judge.request.order).len() as u64;
    judge.runs.expect(finalists.len() as u64 * orders + 1 + after);
    let chosen = choose(judge, &finalists, alone);
    judge.runs.expect(after);
    chosen
}

/// The best of these plans; the first where all stall. With `free`, its order may be one that ranks do not share.
///
/// # Errors
/// As [`Judge::run`].
pub(crate) fn choose(
    judge: &mut Judge<'_, '_>,
    finalists: &[CollectivePlan],
    free: bool,
) -> Result<Chosen, SimulateError> {
    let chosen = match (judge.request.order.keeps_to_plans(), finalists) {
        (true, [only]) if !planner::has_finalists(judge.request)? => {
            order_in_network_model::fix(judge, only, Time::MAX)?.map(|fixed| fixed.plan.into())
        }
        (true, _) => in_planned_order(judge, finalists, free)?,
        (false, [_]) => None,
        (false, _) => in_free_order(judge, finalists)?.map(Chosen::from),
    };
    let mut chosen = chosen.unwrap_or_else(|| finalists[0].clone().into());
    chosen.plan.key = key(judge.network_model, &chosen.plan.key);
    Ok(chosen)
}

/// The finalist that ends first under queues that no plan binds.
fn in_free_order(
    judge: &mut Judge<'_, '_>,
    finalists: &[CollectivePlan],
) -> Result<Option<CollectivePlan>, SimulateError> {
    let mut best: Option<(Time, &CollectivePlan)> = None;
    for plan in finalists {
        let until = best.map_or(Time::MAX, |(time, _)| time);
        let run = judge.run(plan, judge.request.order, until)?;
        if let Some(time) = run.map(|run| run.finish[0])
            && best.is_none_or(|(least, _)| time < least)
        {
            best = Some((time, plan));
        }
    }
    Ok(best.map(|(_, plan)| plan.clone()))
}

/// The finalist that ends first under an order that all ranks keep; or, with `free`, under one that they do not
/// share, if that is quicker.
fn in_planned_order(
    judge: &mut Judge<'_, '_>,
    finalists: &[CollectivePlan],
    free: bool,
) -> Result<Option<Chosen>, SimulateError> {
    let mut fixed: Vec<Fixed> = Vec::new();
    let mut least = Time::MAX;
    for plan in finalists {
        if let Some(one) = order_in_network_model::fix(judge, plan, least)? {
            least = least.min(one.finish);
            fixed.push(one);
        }
    }
    fixed.sort_by_key(|one| one.finish);
    let mut best: Option<(Time, CollectivePlan)> = None;
    for Fixed { plan, order, .. } in fixed {
        let until = best.as_ref().map_or(Time::MAX, |(time, _)| *time);
        let run = judge.run(&plan, judge.request.order, until)?;
        let time = run.map_or(Time::MAX, |run| run.finish[0]);
        if free && time > least {
            return Ok(Some(Chosen { plan, free_order: Some(order) }));
        }
        if best.as_ref().is_none_or(|(known, _)| time < *known) {
            best = Some((time, plan));
        }
        if time <= least {
            break;
        }
    }
    Ok(best.map(|(_, plan)| plan.into()))
}
