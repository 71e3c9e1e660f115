//! A simulation of collectives in figures.

use allrail_collective::{CollectivePlan, Operation, StageModel};
use allrail_core::{DimensionId, Time};
use allrail_fabric::Fabric;
use allrail_schedule::evaluate::{self, Work};
use allrail_schedule::{Order, Request, bound, planner, queue};

use crate::agreed_starts::AgreedStarts;
use crate::cut_bound::CutBound;
use crate::driver::Run;
use crate::error::SimulateError;
use crate::result::{
    AgreementResult, CollectiveResult, DimensionResult, Host, SimulationResult, SpanResult,
    line_rate,
};
use crate::scenario::{CollectiveScenario, NetworkModelKind, Topology, tag};

/// The policy that others are held against.
const BASELINE: &str = "baseline";

/// A simulation that is over.
pub(crate) struct Parts<'a> {
    pub(crate) scenario: &'a CollectiveScenario,
    pub(crate) plans: &'a [CollectivePlan],
    pub(crate) models: &'a [StageModel],
    pub(crate) works: &'a [Work],
    pub(crate) run: &'a Run,
    /// For each dimension, the part of the time in which it was sending.
    pub(crate) busy: &'a [f64],
    /// Where ranks agreed on collectives before they started.
    pub(crate) agreed: Option<&'a AgreedStarts>,
}

/// Makes the result of a simulation.
///
/// # Errors
/// The bound cannot be worked out: names the field that is wrong.
pub(crate) fn summarise(parts: &Parts<'_>) -> Result<SimulationResult, SimulateError> {
    let &Parts { scenario, plans, models, works, run, agreed, .. } = parts;
    let fabric = &scenario.fabric;
    let npus = fabric.npus();
    let first = scenario.job.iter().map(|c| c.start).min().unwrap_or(Time::ZERO);
    let last = run.finish.iter().max().copied().unwrap_or(Time::ZERO);
    let time = last - first;
    let sent = sent(scenario, works, run);
    let spanned: Vec<DimensionId> =
        fabric.ids().filter(|id| plans.iter().any(|plan| plan.dimensions.contains(id))).collect();
    let bandwidth: f64 =
        spanned.iter().map(|id| fabric.dimension(*id).aggregate().bytes_per_second() as f64).sum();
    let total: f64 = sent.iter().sum();
    let ideal_us = total / bandwidth * 1e6;
    let counted = !scenario.network_model.carries_messages();
    let below_physical_bound = plans.iter().zip(models).any(|(plan, model)| {
        let mut stages = plan.chunks.iter().flat_map(|chunk| &chunk.stages);
        counted && stages.any(|stage| model.below_physical(stage.operation, stage.dimension))
    });
    let known = |value: f64| (!below_physical_bound).then_some(value);
    let mut collectives: Vec<CollectiveResult> = scenario
        .job
        .iter()
        .zip(plans)
        .zip(&run.finish)
        .map(|((collective, plan), finish)| times(fabric, collective, plan, *finish))
        .collect();
    for (collective, at) in collectives.iter_mut().zip(agreed.iter().flat_map(|one| &one.starts)) {
        collective.agreed_us = Some(at.as_us());
    }
    let cuts = CutBound::of(scenario)?;
    let only = collectives.first().filter(|_| collectives.len() == 1);
    Ok(SimulationResult {
        time_us: time.as_us(),
        ideal_time_us: ideal_us,
        bound_time_us: lower_bound(scenario, cuts.as_ref(), plans, models, works, first)?
            .as_us()
            .max(
                // A bound below the plain one would be no use; it holds in a physical model only, and cuts are never below
                // what every plan must send.
                if below_physical_bound || cuts.is_some() { 0.0 } else { ideal_us },
            ),
        utilisation: known(ideal_us / time.as_us()),
        bytes_per_npu: total.round() as u64,
        network_model: tag(&scenario.network_model),
        seed: scenario.seed,
        simulated_as: simulated_as(scenario),
        counted: scenario.topology.as_ref().and_then(Topology::counted),
        behind_baseline: behind_baseline(parts, time),
        below_physical_bound,
        npus,
        algbw_gbps: only.map(|c| c.algbw_gbps),
        busbw_gbps: only.map(|c| c.busbw_gbps),
        policy: plans[0].policy.clone(),
        order: tag(&scenario.schedule.order),
        chunks: u32::try_from(plans[0].chunks.len()).expect("few chunks"),
        messages: scenario.network_model.carries_messages().then_some(run.transfers),
        coordinators: agreed.map(|one| AgreementResult::of(one.counts)),
        dimensions: dimensions(parts, &sent, time, below_physical_bound),
        collectives,
        host: Host::default(),
        timeline: None,
        timeline_left_out: None,
    })
}

/// For each dimension, the bytes that an NPU sends: of messages, the NPU that sends most.
fn sent(scenario: &CollectiveScenario, works: &[Work], run: &Run) -> Vec<f64> {
    let mut sent = vec![0.0f64; scenario.fabric.dimensions.len()];
    if scenario.network_model.carries_messages() {
        for (place, bytes) in run.sent.iter().enumerate() {
            let dimension = place % sent.len();
            sent[dimension] = sent[dimension].max(*bytes);
        }
    } else {
        for task in works.iter().flat_map(Work::tasks) {
            sent[task.dimension as usize] += task.sent.0;
        }
    }
    sent
}

/// The dimensions in `time`; below a physical bound, nobody knows how far they were used.
fn dimensions(
    parts: &Parts<'_>,
    sent: &[f64],
    time: Time,
    below_physical_bound: bool,
) -> Vec<DimensionResult> {
    let fabric = &parts.scenario.fabric;
    let result = |id: DimensionId| {
        let (dimension, sent) = (fabric.dimension(id), sent[id.index()]);
        let capacity = dimension.aggregate().bytes_per_second() as f64 * time.as_s();
        let utilisation = if capacity > 0.0 { sent / capacity } else { 0.0 };
        DimensionResult {
            name: id.name(),
            kind: dimension.kind,
            size: dimension.size,
            bandwidth_gbps: dimension.aggregate().gbps(),
            line_rate_gbps: line_rate(dimension),
            algorithm: ran(parts.plans, id),
            bytes_per_npu: sent.round() as u64,
            header_bytes_per_npu: dimension.headers(sent).round() as u64,
            utilisation: (!below_physical_bound).then_some(utilisation),
            busy_fraction: parts.busy[id.index()],
        }
    };
    fabric.ids().map(result).collect()
}

/// What a result says where its policy ends later than the baseline does first come, first served, both in the model of
/// `dims`: greedy policies may, mostly where latencies are most of the time. Of one collective alone.
fn behind_baseline(parts: &Parts<'_>, time: Time) -> Option<String> {
    /// A smaller share than this is no difference.
    const SAME: f64 = 1e-3;
    let &Parts { scenario, plans, works, .. } = parts;
    let ([collective], [plan], [work]) = (scenario.job.as_slice(), plans, works) else {
        return None;
    };
    if plan.policy == BASELINE {
        return None;
    }
    let limit = scenario.schedule.active_chunks;
    let in_dims = || {
        let work = work.clone().side_by_side(limit);
        let end = |order: &Order| {
            let mut queues = queue::queues(*order, scenario.fabric.dimensions.len(), &[]);
            evaluate::finish(&work, &mut queues, limit)
        };
        scenario.schedule.order.fixed_by().iter().map(end).min()
    };
    let talked = parts.agreed.map_or(Time::ZERO, |agreed| agreed.starts[0] - collective.start);
    let own =
        if scenario.network_model == NetworkModelKind::Dims { time - talked } else { in_dims()? };
    let baseline =
        Request { policy: BASELINE.to_owned(), order: Order::FIFO, ..scenario.request(collective) };
    let other = planner::finish(&baseline).ok()?;
    let longer = own.ratio(other) - 1.0;
    (longer > SAME).then(|| {
        format!(
            "`{}` takes {:.1} % longer here than `baseline` in `fifo` order: {:.2} against {:.2} us in `dims`",
            plan.policy,
            100.0 * longer,
            own.as_us(),
            other.as_us()
        )
    })
}

/// The algorithms of a dimension, of all collectives.
fn ran(plans: &[CollectivePlan], id: DimensionId) -> String {
    let mut names: Vec<&str> = Vec::new();
    for plan in plans {
        let name = plan.algorithms[id.index()].as_str();
        if plan.dimensions.contains(&id) && !names.contains(&name) {
            names.push(name);
        }
    }
    // Where none spans it, what would have run.
    if names.is_empty() { plans[0].algorithms[id.index()].clone() } else { names.join(", ") }
}

/// A graph's wiring is used in the network models of cables only.
fn simulated_as(scenario: &CollectiveScenario) -> Option<&'static str> {
    let Topology(topology, _) = scenario.topology.as_ref()?;
    let cables = scenario.network_model.has_every_link();
    cables.then(|| topology.simulated_as()).flatten()
}

fn times(
    fabric: &Fabric,
    collective: &crate::scenario::Collective,
    plan: &CollectivePlan,
    finish: Time,
) -> CollectiveResult {
    let ranks: f64 =
        plan.dimensions.iter().map(|id| f64::from(fabric.dimension(*id).size)).product();
    let time = finish - collective.start;
    let algbw = collective.size.count() as f64 / time.as_s() / 1e9;
    let factor = match collective.kind {
        Operation::AllReduce => 2.0 * (ranks - 1.0) / ranks,
        Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => {
            (ranks - 1.0) / ranks
        }
        Operation::Broadcast => 1.0,
    };
    CollectiveResult {
        name: if collective.name.is_empty() {
            collective.kind.to_string()
        } else {
            collective.name.clone()
        },
        kind: collective.kind,
        size_bytes: collective.size.count(),
        start_us: collective.start.as_us(),
        agreed_us: None,
        finish_us: finish.as_us(),
        time_us: time.as_us(),
        algbw_gbps: algbw,
        busbw_gbps: algbw * factor,
    }
}

/// No schedule of any of the collectives alone ends earlier, in this network model or in another; where a plan is not made of
/// one operation per stage, what its own busiest NPU sends.
fn lower_bound(
    scenario: &CollectiveScenario,
    cuts: Option<&CutBound<'_>>,
    plans: &[CollectivePlan],
    models: &[StageModel],
    works: &[Work],
    first: Time,
) -> Result<Time, SimulateError> {
    let fabric = &scenario.fabric;
    let latencies: Vec<Time> = fabric.dimensions.iter().map(|d| d.latency).collect();
    // A graph's cables may be nearer than its dimensions say: its bound is that of bandwidth alone.
    let latencies = (!scenario.network_model.has_every_link()).then_some(latencies.as_slice());
    let mut lower = Time::ZERO;
    for (((plan, model), work), collective) in
        plans.iter().zip(models).zip(works).zip(&scenario.job)
    {
        let reduces = |id: &DimensionId| fabric.dimension(*id).in_network_reduction;
        let own = if plan.operation == Operation::AllReduce
            && plan.chunks.iter().flat_map(|c| &c.stages).any(|s| s.operation == plan.operation)
        {
            // Cuts hold for every plan.
            if cuts.is_some() { Time::ZERO } else { own_load(fabric, plan, work) }
        } else {
            let chunks: Vec<_> = plan.chunks.iter().map(|chunk| chunk.bytes).collect();
            let dimensions = &plan.dimensions;
            if dimensions.iter().any(reduces) {
                // Messages do not know of switches that reduce.
                bound::lower(model, plan.operation, dimensions, &chunks)?
            } else {
                bound::lower_of_messages(model, plan.operation, dimensions, &chunks, latencies)?
            }
        };
        let by_cuts = cuts.map_or(Time::ZERO, |cuts| {
            cuts.lower(plan.operation, collective.size, &plan.dimensions)
        });
        lower = lower.max(collective.start - first + own.max(by_cuts));
    }
    Ok(lower)
}

/// How long the busiest NPU sends on the busiest dimension. Where chunks take turns, it is another one in each.
fn own_load(fabric: &Fabric, plan: &CollectivePlan, work: &Work) -> Time {
    let mut most = 0.0f64;
    for id in &plan.dimensions {
        let turns = plan.turns(*id) as usize;
        let rate = fabric.dimension(*id).aggregate().bytes_per_second() as f64;
        for turn in 0..turns {
            let chunks = (turn..work.chunks()).step_by(turns);
            let tasks = chunks.flat_map(|chunk| work.chunk(chunk));
            let sent = tasks.filter(|task| task.dimension == id.0).map(|task| task.sent.0);
            most = most.max(sent.sum::<f64>() / rate);
        }
    }
    // A float's last digits must not lift it above what was simulated.
    Time::from_ps((most * 1e12 * (1.0 - 1e-9)) as u64)
}

/// Every stage of one NPU.
pub(crate) fn spans(plans: &[CollectivePlan], works: &[Work], run: &Run) -> Vec<SpanResult> {
    run.spans
        .iter()
        .map(|span| {
            let (collective, at) = (span.tag as usize, span.at);
            let chunk = &plans[collective].chunks[at.chunk as usize];
            let stage = chunk.stages[at.stage as usize];
            let task = works[collective].chunk(at.chunk as usize)[at.stage as usize];
            SpanResult {
                dimension: stage.dimension.0,
                collective: u32::try_from(collective).expect("few collectives"),
                chunk: at.chunk,
                stage: at.stage,
                operation: stage.operation,
                bytes: task.sent.0,
                start_us: span.start.as_us(),
                end_us: span.end.as_us(),
                finish_us: span.finish.as_us(),
            }
        })
        .collect()
}
