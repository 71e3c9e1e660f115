//! From what a run gave to a result.

use allrail_collective::Operation;
use allrail_collective::model::topology_aware;
use allrail_core::{Time, counted};
use allrail_fabric::Dimension;
use allrail_workload::{Actor, Throughput};

use crate::SimulateError;
use crate::result::{DimensionResult, line_rate};
use crate::scenario::USUAL_CHUNKS;
use crate::scenario::{TrainingScenario, tag};
use crate::training::communicator::{Communicator, Span, Usage};
use crate::training::driver::Outcome;
use crate::training::outcome::account::{Account, Mean, means};
use crate::training::outcome::last_step::critical_path;
use crate::training::outcome::links::{self, Wires};
use crate::training::outcome::result::{
    ActorResult, CoordinatorsResult, MemoryResult, TrainingResult,
};
use crate::training::outcome::timeline::timeline;
use crate::training::outcome::window::Window;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

/// Says so where computing reaches more than the device's peak, a part of it; a thousandth is rounding.
fn too_fast(reached: f64) -> Option<String> {
    (reached > 1.001).then(|| {
        format!(
            "computes at {:.0} % of the device's peak: no such device is that fast, its times or \
             `compute.scale` are another's",
            100.0 * reached
        )
    })
}

/// Says what backup workers cost.
fn dropped(scenario: &TrainingScenario, averaged: f64) -> String {
    let backup = scenario.tensor().backup_workers;
    format!(
        "a step does not wait for {}: {:.1} % of all gradients came too late and were dropped; \
         throughput counts samples whose gradients were averaged, and convergence is not modelled",
        counted(backup, "worker"),
        100.0 * (1.0 - averaged)
    )
}

/// Says why a dimension carries more than its bandwidth, where it does.
fn above_all(dimension: &DimensionResult) -> Option<String> {
    let used = dimension.utilisation.filter(|used| *used > 1.0)?;
    Some(format!(
        "{} at {:.1} %: bytes count to the step in which they are handed over",
        dimension.name,
        100.0 * used
    ))
}

pub(crate) fn summarise(
    run: &StepRun<'_>,
    players: &Players,
    outcome: &Outcome,
    communicator: &mut dyn Communicator,
    spans: &[Span],
    wires: Option<&Wires<'_>>,
) -> Result<TrainingResult, SimulateError> {
    let (job, ends) = (run.job, &outcome.ends);
    let window = Window::new(ends);
    let account = |player| Account::new(outcome, player, &window);
    let accounts: Vec<Account> = (0..players.len()).map(account).collect();
    let (of_actors, all) = means(job, players, &accounts, window.steps);
    let path = critical_path(job.graph, players, outcome, communicator);
    let used = window.usage(outcome);
    let bandwidths = bandwidths(run);
    let dimensions = dimensions(run, communicator, &used, &bandwidths, &window)?;
    let sent: f64 = used.sent.iter().sum();
    let bandwidth = bandwidths.iter().sum::<f64>();
    let share = |time: Time| ratio(sent, bandwidth * time.as_s());
    let computed = accounts.iter().map(|account| account.compute);
    let longest = match outcome.averaged {
        None => computed.max(),
        // Slow ranks are not waited for.
        Some(_) => computed.min(),
    };
    let bound = window.each(longest.unwrap_or(Time::ZERO));
    let (links, busiest_links) =
        wires.map(|wires| links::busy(wires, &used.links, window.span())).unwrap_or_default();
    let before = [Time::ZERO].into_iter().chain(ends.iter().copied());
    let step_time_us = window.each(window.span());
    Ok(TrainingResult {
        step_time_us,
        first_step_time_us: ends[0].as_us(),
        steps_us: ends
            .iter()
            .zip(before)
            .map(|(end, from)| end.saturating_sub(from).as_us())
            .collect(),
        compute_us: all.compute,
        exposed_communication_us: all.exposed(),
        passes: all.passes(),
        waiting_us: all.waiting,
        notes: notes(run, outcome, &dimensions, &all),
        exposed_us: all.exposed,
        dimensions,
        utilisation: share(window.span()),
        links,
        busiest_links,
        utilisation_while_communicating: (used.active > Time::ZERO).then(|| share(used.active)),
        critical_path_in_words: path.words,
        critical_path: path.entries,
        bound_step_time_us: bound.max(sent / bandwidth * 1e6 / window.steps),
        coordinators: coordinators(outcome, &window),
        actors: actors(run, of_actors),
        throughput: throughput(run, step_time_us).map(|all| match outcome.averaged {
            Some(averaged) => all.of_which(averaged),
            None => all,
        }),
        timeline: run.timeline.then(|| timeline(job.graph, players, outcome, spans)),
        ..asked(run)
    })
}

/// What a result repeats of what was asked.
fn asked(run: &StepRun<'_>) -> TrainingResult {
    let &StepRun { job, scenario, ref request, .. } = run;
    let schedule = &scenario.schedule;
    let coordination = schedule.coordination.as_ref();
    TrainingResult {
        kind: "training",
        network_model: scenario.network_model.tag().to_owned(),
        seed: scenario.seed,
        npus: request.fabric.npus(),
        policy: schedule.policy.clone(),
        order: tag(&schedule.order),
        chunks: schedule.chunks.unwrap_or(USUAL_CHUNKS),
        tensor_policy: scenario.tensor().policy,
        coordination: coordination
            .and_then(|tree| tree.get("policy")?.as_str())
            .unwrap_or("none")
            .to_owned(),
        iterations: job.iterations,
        memory_per_npu_bytes: job.memory.map(|memory| memory.total().count()),
        memory: job.memory.map(MemoryResult::from),
        what_if: scenario.job.what_if,
        ..TrainingResult::default()
    }
}

/// What an NPU's links carry on each dimension, bytes per second.
fn bandwidths(run: &StepRun<'_>) -> Vec<f64> {
    let carries = match run.scenario.network_model.has_every_link() {
        true => Dimension::capacity,
        false => Dimension::aggregate,
    };
    let dimensions = run.request.fabric.dimensions.iter();
    dimensions.map(|dimension| carries(dimension).bytes_per_second() as f64).collect()
}

fn dimensions(
    run: &StepRun<'_>,
    communicator: &dyn Communicator,
    used: &Usage,
    bandwidths: &[f64],
    window: &Window,
) -> Result<Vec<DimensionResult>, SimulateError> {
    let (fabric, span) = (&run.request.fabric, window.span());
    let said = run.scenario.schedule.algorithms.as_ref();
    let said = said.map(|said| said.each(fabric.dimensions.len())).transpose()?;
    let of_dimension = |id| {
        let dimension = fabric.dimension(id);
        let i = id.index();
        let usual = || topology_aware(dimension.kind, Operation::AllReduce).to_owned();
        let algorithm = match (communicator.chosen(id), &said) {
            ([], Some(said)) => said[i].clone().named().unwrap_or_else(usual),
            ([], None) => usual(),
            (chosen, _) => chosen.join(", "),
        };
        let utilisation = ratio(used.sent[i], bandwidths[i] * span.as_s());
        let sent = used.sent[i] / window.steps;
        DimensionResult {
            name: id.name(),
            kind: dimension.kind,
            size: dimension.size,
            bandwidth_gbps: dimension.aggregate().gbps(),
            line_rate_gbps: line_rate(dimension),
            algorithm,
            bytes_per_npu: sent.round() as u64,
            header_bytes_per_npu: dimension.headers(sent).round() as u64,
            utilisation: Some(utilisation),
            busy_fraction: used.busy.as_ref().map_or(utilisation, |busy| busy[i].ratio(span)),
        }
    };
    Ok(fabric.ids().map(of_dimension).collect())
}

/// What is done each second, where the workload says how much a step is.
fn throughput(run: &StepRun<'_>, step_us: f64) -> Option<Throughput> {
    run.job.work.and_then(|work| work.each_second(step_us / 1e6, run.request.fabric.npus()))
}

fn notes(
    run: &StepRun<'_>,
    outcome: &Outcome,
    dimensions: &[DimensionResult],
    all: &Mean,
) -> Vec<String> {
    let mut notes = run.job.notes.clone();
    let lacking = run.job.memory.filter(|memory| memory.fits() == Some(false));
    notes.extend(lacking.map(|memory| memory.words()));
    notes.extend(dimensions.iter().filter_map(above_all));
    notes.extend(outcome.averaged.map(|averaged| dropped(run.scenario, averaged)));
    notes.extend(throughput(run, all.compute).and_then(|computing| too_fast(computing.hfu?)));
    notes
}

fn coordinators(outcome: &Outcome, window: &Window) -> Option<CoordinatorsResult> {
    let started = &outcome.started[..outcome.ends.len()];
    let first = if window.several { started[0] } else { 0 };
    outcome.talk.map(|talk| CoordinatorsResult {
        operations_per_step: (started[started.len() - 1] - first) as f64 / window.steps,
        messages: talk.messages,
        bytes: talk.bytes,
        cycles_left_out: talk.skipped,
    })
}

fn actors(run: &StepRun<'_>, means: Vec<Mean>) -> Vec<ActorResult> {
    let result = |(actor, mean): (&Actor, Mean)| ActorResult {
        name: actor.name.clone(),
        ranks: actor.ranks.len() as u64,
        first_rank: actor.ranks.first().map_or(0, |rank| rank.0),
        compute_us: mean.compute,
        exposed_communication_us: mean.exposed(),
        exposed_us: mean.exposed,
        waiting_us: mean.waiting,
    };
    run.job.graph.actors().iter().zip(means).map(result).collect()
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
