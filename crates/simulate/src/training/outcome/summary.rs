//! From what a run gave to a result.

use std::collections::{BTreeMap, BTreeSet};

use allrail_collective::Operation;
use allrail_collective::model::topology_aware;
use allrail_core::{Bytes, DimensionId, Time, counted};
use allrail_fabric::Dimension;
use allrail_workload::{Group, Pass, StepGraph, Work};

use crate::SimulateError;
use crate::result::{DimensionResult, Host, line_rate};
use crate::scenario::TrainingScenario;
use crate::scenario::tag;
use crate::training::communicator::{Ask, Communicator, Span};
use crate::training::driver::Outcome;
use crate::training::driver::record::Ran;
use crate::training::outcome::account::{Account, means};
use crate::training::outcome::links::{self, Wires};
use crate::training::outcome::path::{self, What};
use crate::training::outcome::result::{
    ActorResult, CoordinatorsResult, MemoryResult, SpanResult, TrainingResult,
};
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
    let &StepRun { job, scenario, ref request, timeline, .. } = run;
    let ends = &outcome.ends;
    let end = ends[ends.len() - 1];
    let several = ends.len() > 1;
    let window = if several { (ends[0], end) } else { (Time::ZERO, end) };
    let steps = if several { ends.len() as f64 - 1.0 } else { 1.0 };
    let span = window.1 - window.0;
    let account = |player| Account::new(outcome, player, window, several);
    let accounts: Vec<Account> = (0..players.len()).map(account).collect();
    let last = outcome.last.expect("a step has a node");
    let (of_actors, all) = means(job, players, &accounts, steps);
    let each = |time: Time| time.as_us() / steps;
    let actor_name =
        |player: u32| job.graph.actors()[players.actors[player as usize].index()].name.clone();

    // The critical path of the last iteration.
    let from = if several { ends[ends.len() - 2] } else { Time::ZERO };
    let look = |ran: Ran| {
        outcome.records.get(ran).map(|record| (record.start, record.finish, record.cause))
    };
    let mut known: BTreeMap<(Operation, Bytes, u32), Option<u32>> = BTreeMap::new();
    let what = |ran: Ran| match job.graph.node(ran.node).work {
        // What a delay takes counts to what it follows, unless it is a communication itself.
        Work::Compute { .. } if job.graph.is_delay(ran.node) => {
            let mut at = Some(ran);
            while let Some(ran) = at {
                if let Some(purpose) = job.graph.communication(ran.node) {
                    return What::Communication(purpose, None);
                }
                at = look(ran).and_then(|(start, end, cause)| {
                    cause.filter(|_| start == end || job.graph.is_delay(ran.node))
                });
            }
            What::Compute
        }
        Work::Compute { .. } => What::Compute,
        Work::Collective { operation, bytes, group, purpose } => {
            let process_group = players.process_group(ran.player, group);
            let dimension = known.entry((operation, bytes, process_group)).or_insert_with(|| {
                communicator.bottleneck(Ask::Collective { operation, bytes, process_group })
            });
            What::Communication(purpose, *dimension)
        }
        Work::Send { group, purpose, .. } | Work::Receive { group, purpose, .. } => {
            let parts = &job.graph.groups()[group.index()].parts;
            What::Communication(purpose, parts.first().map(|part| part.dimension.0))
        }
    };
    let node_name = |ran: Ran| job.graph.name(ran.node).to_owned();
    let path = path::trace(last, (from, end), look, what, node_name, actor_name);

    let used = used(&outcome.usage.0, &outcome.usage.1, several);
    let carries = match scenario.world.has_every_link() {
        true => Dimension::capacity,
        false => Dimension::aggregate,
    };
    let bandwidths: Vec<f64> =
        request.fabric.dimensions.iter().map(|d| carries(d).bytes_per_second() as f64).collect();
    let sent: f64 = used.sent.iter().sum();
    let capacity = |seconds: f64| bandwidths.iter().sum::<f64>() * seconds;
    let said = scenario.schedule.algorithms.as_ref();
    let said = said.map(|said| said.each(request.fabric.dimensions.len())).transpose()?;
    let dimensions: Vec<DimensionResult> = request
        .fabric
        .ids()
        .map(|id| {
            let dimension = request.fabric.dimension(id);
            let i = id.index();
            let usual = || topology_aware(dimension.kind, Operation::AllReduce).to_owned();
            let algorithm = match (communicator.chosen(id), &said) {
                ([], Some(said)) => said[i].clone().named().unwrap_or_else(usual),
                ([], None) => usual(),
                (chosen, _) => chosen.join(", "),
            };
            let utilisation = ratio(used.sent[i], bandwidths[i] * span.as_s());
            DimensionResult {
                name: id.name(),
                kind: dimension.kind,
                size: dimension.size,
                bandwidth_gbps: dimension.aggregate().gbps(),
                line_rate_gbps: line_rate(dimension),
                algorithm,
                bytes_per_npu: (used.sent[i] / steps).round() as u64,
                header_bytes_per_npu: dimension.headers(used.sent[i] / steps).round() as u64,
                utilisation: Some(utilisation),
                busy_fraction: used.busy.as_ref().map_or(utilisation, |busy| busy[i].ratio(span)),
            }
        })
        .collect();
    let mut steps_us = Vec::with_capacity(ends.len());
    let mut before = Time::ZERO;
    for end in ends {
        steps_us.push(end.saturating_sub(before).as_us());
        before = *end;
    }
    let computed = accounts.iter().map(|account| account.compute);
    let longest = match outcome.averaged {
        None => computed.max(),
        // Slow ranks are not waited for.
        Some(_) => computed.min(),
    };
    let longest = longest.unwrap_or(Time::ZERO);
    let bytes_bound = sent / bandwidths.iter().sum::<f64>() * 1e6 / steps;
    let (links, busiest_links) =
        wires.map(|wires| links::busy(wires, &used.links, span)).unwrap_or_default();
    let mut notes = job.notes.clone();
    let memory = job.memory.map(MemoryResult::from);
    if let Some(memory) = job.memory
        && memory.fits() == Some(false)
    {
        notes.push(memory.words());
    }
    notes.extend(dimensions.iter().filter_map(above_all));
    notes.extend(outcome.averaged.map(|averaged| dropped(scenario, averaged)));
    let each_second =
        |time: f64| job.work.and_then(|work| work.each_second(time / 1e6, request.fabric.npus()));
    notes.extend(each_second(all.compute).and_then(|computing| too_fast(computing.hfu?)));
    Ok(TrainingResult {
        kind: "training",
        step_time_us: each(span),
        first_step_time_us: ends[0].as_us(),
        steps_us,
        compute_us: all.compute,
        exposed_communication_us: all.exposed(),
        passes: all.passes(),
        waiting_us: all.waiting,
        exposed_us: all.exposed,
        dimensions,
        utilisation: ratio(sent, capacity(span.as_s())),
        links,
        busiest_links,
        utilisation_while_communicating: (used.active > Time::ZERO)
            .then(|| ratio(sent, capacity(used.active.as_s()))),
        critical_path_in_words: path.words,
        critical_path: path.entries,
        memory_per_npu_bytes: job.memory.map(|memory| memory.total().count()),
        memory,
        bound_step_time_us: each(longest).max(bytes_bound),
        world: scenario.world.tag().to_owned(),
        seed: scenario.seed,
        npus: request.fabric.npus(),
        policy: scenario.schedule.policy.clone(),
        order: tag(&scenario.schedule.order),
        chunks: scenario.schedule.chunks,
        tensor_policy: scenario.tensor().policy,
        coordination: scenario
            .schedule
            .coordination
            .as_ref()
            .and_then(|tree| tree.get("policy")?.as_str())
            .unwrap_or("none")
            .to_owned(),
        coordinators: outcome.talk.map(|talk| {
            let started = &outcome.started[..ends.len()];
            let first = if several { started[0] } else { 0 };
            CoordinatorsResult {
                operations_per_step: (started[ends.len() - 1] - first) as f64 / steps,
                messages: talk.messages,
                bytes: talk.bytes,
                cycles_left_out: talk.skipped,
            }
        }),
        iterations: job.iterations,
        actors: job
            .graph
            .actors()
            .iter()
            .zip(of_actors)
            .map(|(actor, mean)| ActorResult {
                name: actor.name.clone(),
                ranks: actor.ranks.len() as u64,
                first_rank: actor.ranks.first().map_or(0, |rank| rank.0),
                compute_us: mean.compute,
                exposed_communication_us: mean.exposed(),
                exposed_us: mean.exposed,
                waiting_us: mean.waiting,
            })
            .collect(),
        throughput: each_second(each(span)).map(|all| match outcome.averaged {
            Some(averaged) => all.of_which(averaged),
            None => all,
        }),
        time_to_train: None,
        notes,
        what_if: scenario.job.what_if,
        host: Host::default(),
        timeline: timeline.then(|| timeline_of(job.graph, players, outcome, spans)),
        timeline_left_out: None,
    })
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The usage within the window.
fn used(
    first: &crate::training::communicator::Usage,
    last: &crate::training::communicator::Usage,
    several: bool,
) -> crate::training::communicator::Usage {
    if !several {
        return last.clone();
    }
    crate::training::communicator::Usage {
        busy: last.busy.as_ref().zip(first.busy.as_ref()).map(|(last, first)| {
            last.iter().zip(first).map(|(a, b)| a.saturating_sub(*b)).collect()
        }),
        sent: last.sent.iter().zip(&first.sent).map(|(a, b)| a - b).collect(),
        links: last.links.iter().zip(&first.links).map(|(a, b)| a - b).collect(),
        active: last.active.saturating_sub(first.active),
    }
}

/// The dimension on which it ran, or those of its group: `dim1+dim2`.
fn track(span: &Span, group: &Group) -> String {
    if let Some(dimension) = span.dimension {
        return DimensionId(dimension).name();
    }
    let parts = group.parts.iter().filter(|part| part.size > 1);
    let spanned: BTreeSet<DimensionId> = parts.map(|part| part.dimension).collect();
    let names: Vec<String> = spanned.into_iter().map(DimensionId::name).collect();
    if names.is_empty() { "network".to_owned() } else { names.join("+") }
}

/// Every compute node and all communication, as they ran.
fn timeline_of(
    graph: &StepGraph,
    players: &Players,
    outcome: &Outcome,
    carried: &[Span],
) -> Vec<SpanResult> {
    let name = |player: u32| graph.actors()[players.actors[player as usize].index()].name.clone();
    // Of an actor whose ranks are players of their own, the first stands for all.
    let shown = |player: u32| {
        let actor = players.actors[player as usize];
        players.actors.iter().position(|other| *other == actor) == Some(player as usize)
    };
    let shown: Vec<bool> = (0..).take(players.len()).map(shown).collect();
    let computed = outcome.spans.iter().filter(|(ran, ..)| shown[ran.player as usize]);
    let computed = computed.map(|(ran, start, end)| SpanResult {
        actor: name(ran.player),
        track: "compute".to_owned(),
        name: graph.name(ran.node).to_owned(),
        operation: None,
        bytes: None,
        group: None,
        group_size: None,
        communication: None,
        pass: match graph.node(ran.node).pass {
            Pass::Forward => Some("forward"),
            Pass::Backward => Some("backward"),
            Pass::Update => Some("update"),
            Pass::Unknown => None,
        },
        purpose: None,
        iteration: ran.iteration,
        start_us: start.as_us(),
        end_us: end.as_us(),
    });
    let carried = carried.iter().filter(|span| shown[span.player as usize]).map(|span| {
        let index = usize::try_from(span.tag).expect("a tag is an index");
        let (ran, ask) = outcome.asked[index];
        let (operation, bytes, process_group) = match ask {
            Ask::Collective { operation, bytes, process_group } => {
                (operation.to_string(), bytes, process_group)
            }
            Ask::Message { bytes, process_group, .. } => ("send".to_owned(), bytes, process_group),
        };
        let process_group = &players.process_groups[process_group as usize];
        let purpose = match graph.node(ran.node).work {
            Work::Collective { purpose, .. }
            | Work::Send { purpose, .. }
            | Work::Receive { purpose, .. } => Some(purpose),
            Work::Compute { .. } => None,
        };
        SpanResult {
            actor: name(span.player),
            track: track(span, &graph.groups()[process_group.group.index()]),
            name: graph.name(ran.node).to_owned(),
            operation: Some(operation),
            bytes: Some(bytes.count()),
            group: Some(graph.groups()[process_group.group.index()].name.clone()),
            group_size: Some(process_group.ranks.len() as u64),
            communication: Some(span.tag),
            pass: None,
            purpose,
            iteration: ran.iteration,
            start_us: span.start.as_us(),
            end_us: span.end.as_us(),
        }
    });
    computed.chain(carried).collect()
}
