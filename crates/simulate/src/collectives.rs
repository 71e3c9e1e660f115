//! Collectives: from a scenario to a plan, and to a result.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::time::Instant;

use allrail_collective::CollectivePlan;
use allrail_core::{Bytes, Time};
use allrail_fabric::Fabric;
use allrail_network::flows::Splitting;
use allrail_network::{Dims, NetworkModel};
use allrail_schedule::evaluate::{self, Work};
use allrail_schedule::{Request, planner, queue};

use crate::agreed_starts::{self, agreed_starts};
use crate::driver::{self, Collectives, Observer, Run};
use crate::error::{SimulateError, field};
use crate::executors::{paced, send_ahead};
use crate::finalists;
use crate::judge::Judge;
use crate::lowering::{Lowering, work};
use crate::network_model_settings::NetworkModelSettings;
use crate::plan_file::PlanFile;
use crate::result::{Host, SimulationResult};
use crate::runs::Runs;
use crate::scenario::{Collective, CollectiveOrder, CollectiveScenario, NetworkModelKind, tag};
use crate::summary::{Parts, spans, summarise};

/// Plans every collective of a scenario.
///
/// # Errors
/// Names the field that is wrong.
pub fn plan(scenario: &CollectiveScenario) -> Result<PlanFile, SimulateError> {
    plan_watched(scenario, &mut |_, _| ControlFlow::Continue(()))
}

/// [`plan`], where plans that are judged in a network model of messages take as long as simulations.
///
/// # Errors
/// Names the field that is wrong; an interruption.
pub fn plan_watched(
    scenario: &CollectiveScenario,
    observer: Observer<'_>,
) -> Result<PlanFile, SimulateError> {
    plan_in(scenario, &mut Runs::new(observer))
}

/// Plans, before the runs that are expected already; these are left afterwards.
fn plan_in(scenario: &CollectiveScenario, runs: &mut Runs<'_>) -> Result<PlanFile, SimulateError> {
    let network_model = scenario.network_model_settings();
    // Alike collectives have one key, before and after a run.
    let mut known: Vec<(String, CollectivePlan)> = Vec::new();
    let mut free_order = None;
    for collective in &scenario.job {
        let request = scenario.request(collective);
        if !finalists::applies(&request, network_model.kind)? {
            return plan_for_dims(scenario, runs);
        }
        let key = request.key()?;
        if !known.iter().any(|(other, _)| *other == key) {
            let mut judge =
                Judge { request: &request, network_model: &network_model, runs: &mut *runs };
            let alone = scenario.job.len() == 1;
            let chosen = finalists::plan(&mut judge, alone)?;
            free_order = chosen.free_order;
            known.push((key, chosen.plan));
        }
    }
    let mut plans = Vec::new();
    for collective in &scenario.job {
        let key = scenario.request(collective).key()?;
        plans.extend(known.iter().find(|(other, _)| *other == key).map(|(_, plan)| plan.clone()));
    }
    Ok(PlanFile { schema_version: 1, plans, free_order })
}

/// The plans with the stages and the orders that the model of `dims` gives them.
///
/// # Errors
/// Names the field that is wrong.
pub(crate) fn plan_for_dims(
    scenario: &CollectiveScenario,
    runs: &mut Runs<'_>,
) -> Result<PlanFile, SimulateError> {
    let after = runs.left();
    let mut plans = Vec::new();
    // A search counts as a run; whatever else plans takes no time.
    let searches = scenario.job.iter().map(|collective| {
        let request = scenario.request(collective);
        Ok(request.plugins.named(&request.policy)?.is_expensive())
    });
    let searches: Vec<bool> = searches.collect::<Result<_, SimulateError>>()?;
    runs.expect(searches.iter().filter(|search| **search).count() as u64 + after);
    let runs = RefCell::new(runs);
    for (collective, searches) in scenario.job.iter().zip(searches) {
        let watch = |done, total| {
            let _ = runs.borrow_mut().observe(done, total);
        };
        plans.push(planner::plan_watched(&scenario.request(collective), &watch)?);
        if searches {
            runs.borrow_mut().next();
        }
        if runs.borrow_mut().observe(0, 1).is_break() {
            return Err(SimulateError::Interrupted);
        }
    }
    Ok(PlanFile { schema_version: 1, plans, free_order: None })
}

/// The hash of everything that [`plan`] depends on.
///
/// # Errors
/// Names the field that is wrong.
pub fn plan_key(scenario: &CollectiveScenario) -> Result<String, SimulateError> {
    let keys = scenario
        .job
        .iter()
        .map(|collective| {
            let request = scenario.request(collective);
            let (network_model, key) = (scenario.network_model_settings(), request.key()?);
            Ok(if finalists::applies(&request, network_model.kind)? {
                finalists::key(&network_model, &key)
            } else {
                key
            })
        })
        .collect::<Result<Vec<_>, SimulateError>>()?;
    Ok(keys.join("-"))
}

/// Simulates a scenario; with `plan`, that plan instead of the policy's.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub fn simulate(
    scenario: &CollectiveScenario,
    plan: Option<&PlanFile>,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<SimulationResult, SimulateError> {
    let begin = Instant::now();
    let mut runs = Runs::new(observer);
    let file = match plan {
        Some(plan) => plan.for_scenario(scenario)?,
        None => plan_in(scenario, &mut runs)?,
    };
    let observer: Observer<'_> = &mut |done, total| runs.observe(done, total);
    let plans = &file.plans;
    let planning = begin.elapsed();
    let fabric = &scenario.fabric;
    let (models, mut works) = work(fabric, plans)?;
    if scenario.network_model == NetworkModelKind::Dims {
        let active_chunks = scenario.schedule.active_chunks;
        works = works.into_iter().map(|work| work.side_by_side(active_chunks)).collect();
    }
    let issued: Vec<Time> = scenario.job.iter().map(|c| c.start).collect();
    let agreed = agreed_starts(scenario)?;
    let starts = agreed.as_ref().map_or(&issued, |agreed| &agreed.starts);
    let first = issued.iter().min().copied().unwrap_or(Time::ZERO);
    let priorities = priorities(scenario);
    let mut job = Collectives {
        plans,
        starts,
        priorities: &priorities,
        order: file.order(scenario.schedule.order, scenario.network_model),
        active_chunks: scenario.schedule.active_chunks,
        send_ahead: scenario.schedule.send_ahead,
        endpoint_delay: Time::ZERO,
        timeline,
        until: Time::MAX,
    };
    let (run, busy) = match scenario.network_model {
        // One collective alone is what the evaluator runs, in half the time of the driver; a test
        // holds them equal.
        NetworkModelKind::Dims
            if plans.len() == 1 && !timeline && job.send_ahead == Bytes::default() =>
        {
            evaluated(&job, &works[0], first)
        }
        NetworkModelKind::Dims => {
            let lowering = Lowering::stages(plans, &works, job.order);
            let mut network_model = Dims::new(fabric.dimensions.len());
            let run = driver::run(&job, &lowering, &mut network_model, observer)?;
            let busy = served(&works, fabric.dimensions.len(), span(first, &run));
            (run, busy)
        }
        network_model => {
            let lowering = Lowering::messages(fabric, plans, &works, network_model, job.order)?;
            job.endpoint_delay = plans[0].endpoint_delay;
            let mut network_model =
                scenario.network_model_settings().of_messages(fabric, &lowering)?;
            let run = driver::run(&job, &lowering, &mut *network_model, observer)?;
            let span = span(first, &run);
            let busy = network_model.busy(span).unwrap_or_else(|| sent_shares(fabric, &run, span));
            (run, busy)
        }
    };
    let parts = Parts {
        scenario,
        plans,
        models: &models,
        works: &works,
        run: &run,
        busy: &busy,
        agreed: agreed.as_ref(),
    };
    let mut result = summarise(&parts)?;
    if timeline {
        result.timeline = Some(spans(plans, &works, &run));
    }
    result.host = Host {
        planning_ms: planning.as_secs_f64() * 1e3,
        wall_ms: begin.elapsed().as_secs_f64() * 1e3,
    };
    Ok(result)
}

/// From when the first collective was asked for to the last one's end.
fn span(first: Time, run: &Run) -> Time {
    run.finish.iter().max().copied().unwrap_or(Time::ZERO) - first
}

/// For each dimension, the part of a time in which it served stages.
fn served(works: &[Work], dimensions: usize, span: Time) -> Vec<f64> {
    let mut served = vec![Time::ZERO; dimensions];
    for task in works.iter().flat_map(Work::tasks) {
        served[task.dimension as usize] += task.served;
    }
    served.iter().map(|busy| busy.ratio(span)).collect()
}

/// For each dimension, what NPUs sent on it as a share of what they could have sent: on a graph a
/// cable may serve several dimensions, so its own time says nothing of them.
fn sent_shares(fabric: &Fabric, run: &Run, span: Time) -> Vec<f64> {
    let dimensions = fabric.dimensions.len();
    let mut shares = vec![0.0; dimensions];
    for (place, bytes) in run.sent.iter().enumerate() {
        let dimension = place % dimensions;
        let aggregate = fabric.dimensions[dimension].aggregate().bytes_per_second() as f64;
        shares[dimension] += *bytes / (fabric.npus() as f64 * aggregate * span.as_s());
    }
    shares
}

/// The same as [`carry_out`] in `dims`, for one collective that was asked for at `first`.
fn evaluated(job: &Collectives<'_>, work: &Work, first: Time) -> (Run, Vec<f64>) {
    let orders = match job.order.keeps_to_plans() {
        true => vec![job.plans[0].dimension_order.clone()],
        false => Vec::new(),
    };
    let dimensions = job.plans[0].fabric.dimensions.len();
    let mut queues = queue::queues(job.order, dimensions, &orders);
    let time = evaluate::finish(work, &mut queues, job.active_chunks);
    let run = Run { finish: vec![job.starts[0] + time], ..Run::default() };
    let span = span(first, &run);
    (run, served(std::slice::from_ref(work), dimensions, span))
}

/// Higher goes first: by the order of issue, or its reverse.
fn priorities(scenario: &CollectiveScenario) -> Vec<i64> {
    let mut issue: Vec<usize> = (0..scenario.job.len()).collect();
    issue.sort_by_key(|i| scenario.job[*i].start);
    let mut priorities = vec![0; issue.len()];
    for (place, collective) in (0i64..).zip(issue) {
        priorities[collective] = match scenario.schedule.collective_order {
            CollectiveOrder::Fifo | CollectiveOrder::Explicit => -place,
            CollectiveOrder::Lifo => place,
        };
    }
    priorities
}

impl CollectiveScenario {
    /// What carries its messages.
    pub(crate) fn network_model_settings(&self) -> NetworkModelSettings<'_> {
        NetworkModelSettings {
            kind: self.network_model,
            topology: self.topology.as_ref(),
            packets: self.packets.clone(),
            paths: self.messages.paths.unwrap_or(Splitting::Minimal),
            send_ahead: self.schedule.send_ahead,
            seed: self.seed,
        }
    }

    /// Refuses what no collective runs with.
    pub(crate) fn validate(&self) -> Result<(), SimulateError> {
        self.fabric.validate()?;
        if self.job.is_empty() {
            return Err(field(
                "collective",
                "[]",
                "there is nothing to run",
                "add `{kind: all_reduce, size: 1 GiB}`",
            ));
        }
        if let Some(tensor) = &self.schedule.tensor {
            return Err(field(
                "schedule.tensor",
                &tensor.policy,
                "collectives have no tensors",
                "leave it out, or train a `workload`",
            ));
        }
        self.compat.check_without_workload()?;
        agreed_starts::read(self.schedule.coordination.as_ref())?;
        if let Some(paths) =
            self.messages.paths.filter(|_| self.network_model != NetworkModelKind::Flows)
        {
            return Err(field(
                "messages.paths",
                tag(&paths),
                "only `flows` splits messages over paths",
                "use `network_model: flows`, or leave it out",
            ));
        }
        send_ahead::check(self.schedule.send_ahead, self.network_model)?;
        paced::check(&self.fabric, self.network_model)?;
        for (i, collective) in self.job.iter().enumerate() {
            if collective.size == Bytes::default() {
                return Err(field(
                    format!("collective[{i}].size"),
                    collective.size,
                    "a collective has 1 byte at least",
                    "write for example `size: 1 GiB`",
                ));
            }
            if collective.dimensions.as_ref().is_some_and(Vec::is_empty) {
                return Err(field(
                    format!("collective[{i}].dimensions"),
                    "[]",
                    "it spans no dimension",
                    "leave it out for all dimensions",
                ));
            }
        }
        Ok(())
    }

    /// What the planner is asked for a collective.
    #[must_use]
    pub fn request(&self, collective: &Collective) -> Request {
        Request {
            operation: collective.kind,
            size: collective.size,
            dimensions: collective.dimensions.clone().unwrap_or_default(),
            ..self.schedule.request(&self.compat, &self.fabric, self.seed)
        }
    }
}
