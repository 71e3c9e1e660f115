//! From a scenario to a result.

use std::sync::Arc;
use std::time::Instant;

use allrail_collective::{CollectivePlan, Operation, StageModel};
use allrail_core::{DimensionId, Time};
use allrail_fabric::Dimension;
use allrail_fabric::routing::{Adaptive, Routing};
use allrail_schedule::evaluate::{self, Work};
use allrail_schedule::{bound, planner, queue};
use allrail_world::flows::{Flows, Splitting};
use allrail_world::packets::Packets;
use allrail_world::{Dims, Links, OnePlane, World};

use crate::driver::{Driver, Job, Observer, Run};
use crate::error::SimulateError;
use crate::lowering::{Lowering, MessageLowering, StageLowering, work};
use crate::plan_file::PlanFile;
use crate::result::{CollectiveResult, DimensionResult, Host, SimulationResult, SpanResult};
use crate::scenario::{CollectiveOrder, Scenario, Topology, WorldKind};

/// Plans every collective of a scenario.
///
/// # Errors
/// Names the field that is wrong.
pub fn plan(scenario: &Scenario) -> Result<PlanFile, SimulateError> {
    let plans = scenario
        .collective
        .iter()
        .map(|collective| planner::plan(&scenario.request(collective)))
        .collect::<Result<_, _>>()?;
    Ok(PlanFile { schema_version: 1, plans })
}

/// The hash of everything that [`plan`] depends on.
///
/// # Errors
/// Names the field that is wrong.
pub fn plan_key(scenario: &Scenario) -> Result<String, SimulateError> {
    let keys = scenario
        .collective
        .iter()
        .map(|collective| planner::Request::key(&scenario.request(collective)))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(keys.join("-"))
}

/// Simulates a scenario; with `plan`, that plan instead of the policy's.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub fn simulate(
    scenario: &Scenario,
    plan: Option<&PlanFile>,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<SimulationResult, SimulateError> {
    let begin = Instant::now();
    let made;
    let file = match plan {
        Some(plan) => {
            plan.check_for(scenario)?;
            plan
        }
        None => {
            made = self::plan(scenario)?;
            &made
        }
    };
    let plans = &file.plans;
    let planning = begin.elapsed();
    let fabric = &scenario.fabric;
    let (models, works) = work(fabric, plans)?;
    let starts: Vec<Time> = scenario.collective.iter().map(|c| c.start).collect();
    let priorities = priorities(scenario);
    let mut job = Job {
        plans,
        starts: &starts,
        priorities: &priorities,
        order: scenario.schedule.order,
        active_chunks: scenario.schedule.active_chunks,
        endpoint_delay: Time::ZERO,
        timeline,
    };
    let (run, busy) = match scenario.world {
        // One collective alone is what the evaluator runs, in half the time of the driver; a test
        // holds them equal.
        WorldKind::Dims if plans.len() == 1 && !timeline => evaluated(&job, &works[0]),
        WorldKind::Dims => {
            let lowering = StageLowering { work: &works };
            carry_out(&job, &lowering, &mut Dims::new(fabric.dimensions.len()), observer)?
        }
        world => {
            let lowering = MessageLowering::new(fabric, plans, &works, world)?;
            job.endpoint_delay = plans[0].endpoint_delay;
            let mut world = message_world(scenario, &lowering)?;
            carry_out(&job, &lowering, &mut *world, observer)?
        }
    };
    let mut result = summarise(scenario, plans, &models, &works, &run, &busy)?;
    if timeline {
        result.timeline = Some(spans(plans, &works, &run));
    }
    result.host = Host {
        planning_ms: planning.as_secs_f64() * 1e3,
        wall_ms: begin.elapsed().as_secs_f64() * 1e3,
    };
    Ok(result)
}

fn carry_out(
    job: &Job<'_>,
    lowering: &dyn Lowering,
    world: &mut dyn World,
    observer: Observer<'_>,
) -> Result<(Run, Vec<f64>), SimulateError> {
    let run = Driver::new(job, lowering, world).run(observer)?;
    let last = run.finish.iter().max().copied().unwrap_or(Time::ZERO);
    let first = job.starts.iter().min().copied().unwrap_or(Time::ZERO);
    let busy = world.busy(last - first);
    Ok((run, busy))
}

/// The same as [`carry_out`] in `dims`, for one collective.
fn evaluated(job: &Job<'_>, work: &Work) -> (Run, Vec<f64>) {
    let orders = job.planned_orders();
    let dimensions = job.plans[0].fabric.dimensions.len();
    let mut queues = queue::queues(job.order, dimensions, &orders);
    let time = evaluate::finish(work, &mut queues, job.active_chunks);
    let mut served = vec![Time::ZERO; dimensions];
    for task in work.tasks() {
        served[task.dimension as usize] += task.occupancy;
    }
    let run = Run { finish: vec![job.starts[0] + time], ..Run::default() };
    (run, served.iter().map(|busy| busy.ratio(time)).collect())
}

/// The world that carries the messages of `lowering`, empty.
fn message_world(
    scenario: &Scenario,
    lowering: &MessageLowering<'_>,
) -> Result<Box<dyn World>, SimulateError> {
    if scenario.world == WorldKind::Links {
        check_links(scenario, lowering)?;
        return Ok(Box::new(Links::new(&scenario.fabric)));
    }
    let (graph, planes) = scenario.graph()?;
    let graph = Arc::new(graph);
    if scenario.world == WorldKind::Flows {
        let world = Flows::new(&graph, Splitting::Minimal);
        return Ok(Box::new(OnePlane { world, planes }));
    }
    let routing = match &scenario.topology {
        Some(Topology(topology)) => topology.routing(&graph)?,
        None => Box::new(Adaptive::new(&graph)?) as Box<dyn Routing>,
    };
    let world = Packets::new(graph, routing, &scenario.packets, scenario.seed)?;
    Ok(Box::new(OnePlane { world, planes }))
}

/// `links` keeps every link and every rank in memory, and its messages must fit the clock.
fn check_links(scenario: &Scenario, lowering: &MessageLowering<'_>) -> Result<(), SimulateError> {
    const MAX_LINKS: u64 = 1 << 25;
    let refuse = |why: String| SimulateError::Field {
        field: "world".to_owned(),
        value: "links".to_owned(),
        why,
        hint: "use `world: dims`".to_owned(),
    };
    let links = Links::link_count(&scenario.fabric);
    if links > MAX_LINKS {
        return Err(refuse(format!("the fabric has {links} links, more than {MAX_LINKS}")));
    }
    for dimension in &scenario.fabric.dimensions {
        let link = allrail_fabric::topology::of(dimension.kind).link_bandwidth(dimension);
        if link.time_for(lowering.largest_message()).is_none_or(|time| time.as_ps() > 1 << 60) {
            return Err(refuse("a message takes longer than 13 days".to_owned()));
        }
    }
    Ok(())
}

/// Higher goes first: by the order of issue, or its reverse.
fn priorities(scenario: &Scenario) -> Vec<i64> {
    let mut issue: Vec<usize> = (0..scenario.collective.len()).collect();
    issue.sort_by_key(|i| scenario.collective[*i].start);
    let mut priorities = vec![0; issue.len()];
    for (place, collective) in (0i64..).zip(issue) {
        priorities[collective] = match scenario.schedule.collective_order {
            CollectiveOrder::Fifo => -place,
            CollectiveOrder::Lifo => place,
        };
    }
    priorities
}

fn summarise(
    scenario: &Scenario,
    plans: &[CollectivePlan],
    models: &[StageModel],
    works: &[Work],
    run: &Run,
    busy: &[f64],
) -> Result<SimulationResult, SimulateError> {
    let fabric = &scenario.fabric;
    let npus = fabric.npus();
    let first = scenario.collective.iter().map(|c| c.start).min().unwrap_or(Time::ZERO);
    let last = run.finish.iter().max().copied().unwrap_or(Time::ZERO);
    let time = last - first;
    let mut sent = vec![0.0f64; fabric.dimensions.len()];
    match scenario.world {
        WorldKind::Dims => {
            for task in works.iter().flat_map(Work::tasks) {
                sent[task.dimension as usize] += task.sent.0;
            }
        }
        _ => {
            for (place, bytes) in run.sent.iter().enumerate() {
                let dimension = place % sent.len();
                sent[dimension] = sent[dimension].max(*bytes as f64);
            }
        }
    }
    let spanned: Vec<DimensionId> =
        fabric.ids().filter(|id| plans.iter().any(|plan| plan.dimensions.contains(id))).collect();
    let bandwidth: f64 =
        spanned.iter().map(|id| fabric.dimension(*id).aggregate().bytes_per_second() as f64).sum();
    let mut busy = busy.to_vec();
    if matches!(scenario.world, WorldKind::Flows | WorldKind::Packets) {
        // On a graph a cable may serve several dimensions: theirs is what NPUs sent on them.
        busy = vec![0.0; sent.len()];
        for (place, bytes) in run.sent.iter().enumerate() {
            let dimension = place % sent.len();
            let aggregate = fabric.dimensions[dimension].aggregate().bytes_per_second() as f64;
            busy[dimension] += *bytes as f64 / (npus as f64 * aggregate * time.as_s());
        }
    }
    let total: f64 = sent.iter().sum();
    let ideal_us = total / bandwidth * 1e6;
    let counted = scenario.world == WorldKind::Dims;
    let below_physical_bound = plans.iter().zip(models).any(|(plan, model)| {
        let mut stages = plan.chunks.iter().flat_map(|chunk| &chunk.stages);
        counted && stages.any(|stage| model.below_physical(stage.operation, stage.dimension))
    });
    let known = |value: f64| (!below_physical_bound).then_some(value);
    let dimensions = fabric
        .ids()
        .map(|id| {
            let dimension = fabric.dimension(id);
            let capacity = dimension.aggregate().bytes_per_second() as f64 * time.as_s();
            DimensionResult {
                name: id.name(),
                kind: dimension.kind,
                size: dimension.size,
                bandwidth_gbps: dimension.aggregate().gbps(),
                algorithm: plans[0].algorithms[id.index()].clone(),
                bytes_per_npu: sent[id.index()].round() as u64,
                utilisation: known(if capacity > 0.0 { sent[id.index()] / capacity } else { 0.0 }),
                busy_fraction: busy[id.index()],
            }
        })
        .collect();
    let collectives: Vec<CollectiveResult> = scenario
        .collective
        .iter()
        .zip(plans)
        .zip(&run.finish)
        .map(|((collective, plan), finish)| times(fabric, collective, plan, *finish))
        .collect();
    let only = collectives.first().filter(|_| collectives.len() == 1);
    Ok(SimulationResult {
        time_us: time.as_us(),
        ideal_time_us: ideal_us,
        bound_time_us: lower_bound(scenario, plans, models, works, first)?.as_us().max(
            // A bound below the plain one would be no use; it holds in a physical model only.
            if below_physical_bound { 0.0 } else { ideal_us },
        ),
        utilisation: known(ideal_us / time.as_us()),
        bytes_per_npu: total.round() as u64,
        world: tag(&scenario.world),
        seed: scenario.seed,
        calibrated: false,
        below_physical_bound,
        npus,
        algbw_gbps: only.map(|c| c.algbw_gbps),
        busbw_gbps: only.map(|c| c.busbw_gbps),
        policy: plans[0].policy.clone(),
        order: tag(&scenario.schedule.order),
        chunks: u32::try_from(plans[0].chunks.len()).expect("few chunks"),
        messages: scenario.world.carries_messages().then_some(run.transfers),
        dimensions,
        collectives,
        host: Host::default(),
        timeline: None,
    })
}

fn tag<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .expect("a tag is text")
}

fn times(
    fabric: &allrail_fabric::Fabric,
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
        finish_us: finish.as_us(),
        time_us: time.as_us(),
        algbw_gbps: algbw,
        busbw_gbps: algbw * factor,
    }
}

/// No schedule of any of the collectives alone ends earlier; where a plan is not made of one
/// operation per stage, its own load on the busiest dimension.
fn lower_bound(
    scenario: &Scenario,
    plans: &[CollectivePlan],
    models: &[StageModel],
    works: &[Work],
    first: Time,
) -> Result<Time, SimulateError> {
    // A graph's cables may be nearer than its dimensions say: its bound is that of bandwidth alone.
    let latency = |d: &Dimension| match scenario.world {
        WorldKind::Dims | WorldKind::Links => d.latency,
        WorldKind::Flows | WorldKind::Packets => Time::ZERO,
    };
    let latencies: Vec<Time> = scenario.fabric.dimensions.iter().map(latency).collect();
    let mut lower = Time::ZERO;
    for (((plan, model), work), collective) in
        plans.iter().zip(models).zip(works).zip(&scenario.collective)
    {
        let own = if plan.operation == Operation::AllReduce
            && plan.chunks.iter().flat_map(|c| &c.stages).any(|s| s.operation == plan.operation)
        {
            let load = |d: usize| {
                work.tasks().iter().filter(|t| t.dimension as usize == d).map(|t| t.occupancy).sum()
            };
            (0..model.dimensions()).map(load).max().unwrap_or(Time::ZERO)
        } else {
            let chunks: Vec<_> = plan.chunks.iter().map(|chunk| chunk.bytes).collect();
            let dimensions = &plan.dimensions;
            match scenario.world {
                WorldKind::Dims => bound::lower(model, plan.operation, dimensions, &chunks)?,
                _ => bound::lower_of_messages(
                    model,
                    plan.operation,
                    dimensions,
                    &chunks,
                    &latencies,
                )?,
            }
        };
        lower = lower.max(collective.start - first + own);
    }
    Ok(lower)
}

fn spans(plans: &[CollectivePlan], works: &[Work], run: &Run) -> Vec<SpanResult> {
    run.spans
        .iter()
        .map(|span| {
            let at = span.at;
            let chunk = &plans[at.collective as usize].chunks[at.chunk as usize];
            let stage = chunk.stages[at.stage as usize];
            let task = works[at.collective as usize].chunk(at.chunk as usize)[at.stage as usize];
            SpanResult {
                dimension: stage.dimension.0,
                collective: at.collective,
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
