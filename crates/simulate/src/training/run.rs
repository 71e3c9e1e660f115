//! From a training scenario to a result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use allrail_collective::Operation;
use allrail_core::{Bytes, counted, either};
use allrail_fabric::topologies::Summing;
use allrail_schedule::Request;
use allrail_schedule::tensor::TensorParameters;
use allrail_workload::spec::{Issue, Model, Workload};
use allrail_workload::{ActorId, Memory, NodeId, StepGraph, TimeToTrain, Work};
use allrail_world::flows::Splitting;
use allrail_world::{Links, World};

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::Algorithms;
use crate::scenario::{CollectiveOrder, Schedule, Topology, WorldKind, field};
use crate::scenario::{TrainingScenario, WhatIf};
use crate::training::agreements::Drawn;
use crate::training::communicator::classes::ClassCommunicator;
use crate::training::communicator::graph::GraphNetwork;
use crate::training::communicator::ranks::{RankCommunicator, Wiring};
use crate::training::communicator::servers::ServerCommunicator;
use crate::training::communicator::slow::{self, Felt, Found};
use crate::training::communicator::{Ask, Communicator};
use crate::training::driver::{Driver, Outcome, Priority, Settings};
use crate::training::gradients::Tensors;
use crate::training::job::{BuiltJob, graph_of};
use crate::training::outcome::assumption;
use crate::training::outcome::links::Wires;
use crate::training::outcome::result::TrainingResult;
use crate::training::outcome::summary::summarise;
use crate::training::packet_size;
use crate::training::players::Players;

/// Simulates a training scenario whose tables are `rows` or `dense`; those that are `auto` are dense.
///
/// # Errors
/// As for [`crate::training::simulate`].
pub(super) fn simulate_decided(
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let begin = Instant::now();
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let mut workload = scenario.timed_workload()?;
    if scenario.job.what_if == Some(WhatIf::NoStraggler) {
        workload.stragglers.clear();
        workload.jitter = None;
    }
    let built = graph_of(&workload, &sizes)?;
    let job = BuiltJob {
        graph: &built.graph,
        memory: (built.memory != Memory::default()).then_some(built.memory),
        notes: scenario
            .job
            .part
            .iter()
            .flat_map(|part| &part.notes)
            .chain(&built.notes)
            .cloned()
            .chain(stale(&workload))
            .collect(),
        perturbation: built.perturbation(&workload, scenario.seed),
        iterations: whole_rounds(workload.iterations, workload.lag),
        work: built.work,
    };
    let target = workload.target;
    let steps = target.map(|target| target.steps(job.work.as_ref())).transpose()?;
    let building = begin.elapsed();
    let mut result = run(&job, scenario, timeline, observer)?;
    result.time_to_train = target.zip(steps).map(|(target, steps)| {
        let (work, step_s) = (job.work.as_ref(), result.step_time_us / 1e6);
        TimeToTrain::new(&target, steps, work, step_s, result.npus)
    });
    result.host.planning_ms = building.as_secs_f64() * 1e3;
    result.host.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
    Ok(result)
}

/// Runs a step graph as a scenario says; of its workload, only what `job` does not.
///
/// # Errors
/// As for [`crate::training::simulate`].
pub fn run(
    job: &BuiltJob<'_>,
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let mut request = scenario.request();
    let network = assumption::apply(scenario, &mut request.fabric)?;
    let sizes: Vec<u32> = request.fabric.dimensions.iter().map(|d| d.size).collect();
    if ServerCommunicator::asked(&scenario.tensor()) && scenario.world != WorldKind::Dims {
        return Err(field(
            "schedule.tensor.exchange",
            "parameter_server",
            "parameter servers run in `dims`",
            "write `world: dims`, or leave it out for all-reduces",
        ));
    }
    // No world is faster than an ideal schedule, which `dims` carries.
    let world = if network.is_ideal() { WorldKind::Dims } else { scenario.world };
    let slow = job.perturbation.slow_links.as_ref();
    if let Some(drawn) = slow.filter(|_| !scenario.world.has_every_link()) {
        slow::check_links(drawn, &request.fabric)?;
    }
    match world {
        WorldKind::Dims => {
            // An ideal schedule of a topology knows no cables.
            let slow = slow.filter(|_| !scenario.world.has_every_link());
            let found = slow.map(|drawn| (drawn, Found::new(drawn, &request.fabric)));
            let felt = found
                .as_ref()
                .map(|(drawn, found)| Felt::new(drawn, found, job.graph, &request.fabric));
            let players = Players::classes(job.graph, &sizes)?;
            let mut communicator = ClassCommunicator::new(
                job.graph,
                &players,
                &request,
                &scenario.schedule.algorithms_by_operation,
                network,
                timeline,
            )
            .cutting_rings(scenario.rings_are_cables())
            .sending_ahead(if network.is_ideal() {
                // It waits for nothing.
                Bytes::default()
            } else {
                scenario.schedule.send_ahead
            })
            .sharing(scenario.schedule.communicators)
            .slowed(felt.as_ref());
            prepare(job.graph, &players, |ask| communicator.prepare(ask))?;
            let parameters = scenario.tensor();
            let apart = ServerCommunicator::asked(&parameters)
                && parameters.servers.as_ref().is_some_and(|servers| !servers.synchronous);
            if apart && scenario.schedule.coordination.is_some() {
                return Err(field(
                    "schedule.coordination",
                    "given",
                    "ranks that do not wait for each other agree on nothing",
                    "leave it out, or `servers: {synchronous: true}`",
                ));
            }
            let outcome = if ServerCommunicator::asked(&parameters) {
                let fabric = &request.fabric;
                let mut servers = ServerCommunicator::new(
                    &mut communicator,
                    job.graph,
                    &players,
                    fabric,
                    &parameters,
                    network,
                    felt.as_ref(),
                )?;
                drive(job, scenario, &players, &mut servers, timeline, observer)?
            } else {
                drive(job, scenario, &players, &mut communicator, timeline, observer)?
            };
            let spans = communicator.take_spans();
            let mut result = summarise(
                job,
                scenario,
                &request,
                &players,
                &outcome,
                &mut communicator,
                &spans,
                None,
                timeline,
            )?;
            result.notes.extend(assumption::note(scenario));
            result.notes.extend(apart.then(|| {
                "servers do not wait for all workers: a step is the slowest worker's".to_owned()
            }));
            result.notes.extend(found.map(|(drawn, found)| {
                format!("{}; a group is as fast as its slowest link", found.note(drawn))
            }));
            Ok(result)
        }
        WorldKind::Links => {
            let players = Players::ranks(job.graph, &sizes)?;
            let algorithms = &scenario.schedule.algorithms_by_operation;
            let groups = scenario.schedule.groups.as_ref();
            let wiring = Wiring::Dimensions { request: &request, algorithms, groups };
            let mut world = Links::new(&request.fabric);
            if let Some(drawn) = slow {
                slow::check(drawn, &request.fabric, job.graph)?;
                for id in request.fabric.ids() {
                    world.slow_down(id, |link| drawn.link(id, link), |all| drawn.bandwidth(all));
                }
            }
            let overhead = scenario.messages.overhead;
            let communicator =
                RankCommunicator::new(job.graph, &players, wiring, Box::new(world), overhead)
                    .sending_ahead(scenario.schedule.send_ahead)
                    .sharing(scenario.schedule.communicators)
                    .cutting_rings(scenario.rings_are_cables())
                    .with_message_delay(scenario.messages.endpoint_delay);
            let wires = Wires::Dimensions(&request.fabric, slow);
            let mut result = by_messages(
                job,
                scenario,
                &request,
                &players,
                communicator,
                &wires,
                timeline,
                observer,
            )?;
            let note = |drawn| Found::new(drawn, &request.fabric).note(drawn);
            result.notes.extend(slow.map(note));
            Ok(result)
        }
        WorldKind::Flows | WorldKind::Packets => {
            let of_dimensions = || Topology::of_dimensions(&scenario.fabric);
            let topology = scenario.topology.clone().unwrap_or_else(of_dimensions);
            let settings = &scenario.messages;
            let players = Players::ranks(job.graph, &sizes)?;
            let mut network = GraphNetwork::new(Arc::clone(&topology.0))?;
            let slow_note = slow.map(|drawn| network.slow_down(drawn)).transpose()?;
            let ranks = sizes.iter().product();
            let mut places =
                scenario.job.placement.places(ranks, network.graph.npus(), scenario.seed)?;
            let block = scenario.job.part.as_ref().and_then(|part| part.block.as_ref());
            let block = block.filter(|_| scenario.job.placement.is_on_first());
            if let Some(npus) = block {
                places.iter_mut().for_each(|place| *place = npus[place.index()]);
            }
            let paths = settings.paths.unwrap_or(Splitting::Ecmp);
            let (world, packet_note): (Box<dyn World>, _) = match scenario.world {
                WorldKind::Flows => (Box::new(network.flows(paths)), None),
                _ => {
                    let (packets, note) = packet_size::suited(&scenario.packets, job.graph);
                    (Box::new(network.packets(&packets, scenario.seed)?), note)
                }
            };
            let (fallback, steady) = (Algorithms::default(), settings.steady);
            let algorithms = settings.algorithms.as_ref();
            let named = algorithms.is_some() || steady || scenario.has_own_dimensions();
            let algorithms = algorithms.unwrap_or(&fallback);
            let graph = Arc::clone(&network.graph);
            // Messages cannot stand for sums within NPUs.
            let sums = network.topology.reduces() == Some(Summing::Switches)
                && scenario.world == WorldKind::Flows;
            let reducing = sums.then_some(&*graph);
            let wiring = if named {
                Wiring::Graph { places: &places, algorithms, sizes: &sizes, reducing }
            } else {
                Wiring::Planned { places: &places, request: &request, algorithms, reducing }
            };
            let overhead = settings.overhead;
            let mut communicator =
                RankCommunicator::new(job.graph, &players, wiring, world, overhead)
                    .cutting_rings(scenario.rings_are_cables())
                    .sharing(scenario.schedule.communicators);
            if steady && scenario.world == WorldKind::Flows {
                communicator = communicator.steady(network.latency(paths));
            }
            let wires = Wires::Graph(&network.graph);
            let mut result = by_messages(
                job,
                scenario,
                &request,
                &players,
                communicator,
                &wires,
                timeline,
                observer,
            )?;
            result.notes.extend(network.notes(&scenario.job.placement, block.is_some(), settings));
            result.notes.extend(slow_note);
            result.notes.extend(packet_note);
            Ok(result)
        }
    }
}

/// Runs it on a communicator of messages.
#[expect(clippy::too_many_arguments, reason = "what a run is made of")]
fn by_messages(
    job: &BuiltJob<'_>,
    scenario: &TrainingScenario,
    request: &Request,
    players: &Players,
    mut communicator: RankCommunicator<'_>,
    wires: &Wires<'_>,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let infinite = scenario.job.what_if == Some(WhatIf::InfiniteBandwidth);
    if infinite {
        communicator = communicator.infinite();
    }
    if timeline {
        communicator = communicator.logged();
    }
    prepare(job.graph, players, |ask| communicator.prepare(ask))?;
    let outcome = drive(job, scenario, players, &mut communicator, timeline, observer)?;
    let spans = communicator.take_spans();
    let wires = (!infinite).then_some(wires);
    let mut result = summarise(
        job,
        scenario,
        request,
        players,
        &outcome,
        &mut communicator,
        &spans,
        wires,
        timeline,
    )?;
    let (messages, bytes) = communicator.carried();
    if !communicator.keeps_priorities() {
        result.notes.extend(unheard(scenario)?);
    }
    result.notes.push(format!(
        "{} of {bytes} B in all {} carried",
        counted(messages, "message"),
        either(&messages, "was", "were")
    ));
    Ok(result)
}

/// What the schedule says and links and switches do not hear.
fn unheard(scenario: &TrainingScenario) -> Result<Option<String>, SimulateError> {
    let what = match priority(&scenario.tensor(), &scenario.schedule)? {
        Priority::Fifo => return Ok(None),
        Priority::Lifo | Priority::Explicit => "collective_order".to_owned(),
        Priority::Tensor => scenario.tensor().policy,
    };
    Ok(Some(format!(
        "`{what}` moves nothing that is under way: links and switches know no priority"
    )))
}

/// Schedules every kind of collective of the graph once, so that nothing fails on the way.
fn prepare(
    graph: &StepGraph,
    players: &Players,
    mut prepare: impl FnMut(Ask) -> Result<(), SimulateError>,
) -> Result<(), SimulateError> {
    let player_of = |actor: ActorId| {
        let found = players.actors.iter().position(|other| *other == actor);
        u32::try_from(found.expect("an actor has ranks")).expect("few players")
    };
    let first: Vec<u32> =
        (0u32..).zip(graph.actors()).map(|(actor, _)| player_of(ActorId(actor))).collect();
    let mut seen: BTreeMap<(Operation, Bytes, u32), ()> = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let player = first[node.actor.index()];
        match node.work {
            Work::Collective { operation, bytes, group, .. } => {
                if seen.insert((operation, bytes, group.0), ()).is_none() {
                    let process_group = players.process_group(player, group);
                    prepare(Ask::Collective { operation, bytes, process_group })?;
                }
            }
            Work::Send { bytes, group, peer, .. } => {
                let Some((other, rank)) =
                    players.peer(player, &graph.groups()[group.index()], peer)
                else {
                    continue;
                };
                let source = players.ranks[player as usize];
                prepare(Ask::Message {
                    bytes,
                    process_group: players.process_group(player, group),
                    source: player,
                    destination: other,
                    ranks: (source, rank),
                })?;
            }
            Work::Compute { .. } | Work::Receive { .. } => {}
        }
    }
    Ok(())
}

/// Runs the graph on a communicator.
fn drive(
    job: &BuiltJob<'_>,
    scenario: &TrainingScenario,
    players: &Players,
    communicator: &mut dyn Communicator,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<Outcome, SimulateError> {
    let parameters = scenario.tensor();
    let disturbed = |player: u32, node: NodeId, iteration: u32| {
        job.perturbation.factor(players.actors[player as usize], node, iteration)
    };
    // A pipeline that is never flushed has no moment at which all updates are there.
    let barrier = parameters.has_barrier()? && scenario.job.workload.parallelism.schedule.flushes();
    // ASTRA-sim's loops end with their last pass, and its times are compared.
    let foreign = matches!(scenario.job.workload.model, Model::AstraSim(_));
    let overlaps = !barrier || scenario.job.workload.lag > 0;
    let overlap = if overlaps && job.iterations > 1 && !foreign {
        scenario.job.workload.delay().max(1)
    } else {
        0
    };
    let settings = Settings {
        iterations: job.iterations + overlap,
        measured: job.iterations,
        barrier,
        priority: priority(&parameters, &scenario.schedule)?,
        slowness: (!job.perturbation.is_none())
            .then_some(&disturbed as &dyn Fn(u32, NodeId, u32) -> f64),
        lag: scenario.job.workload.lag,
        backup: parameters.backup_workers,
        every: scenario.job.workload.every,
        in_turn: scenario.job.workload.issue == Issue::InTurn,
        acknowledged: scenario.messages.acknowledged,
        slowdown: scenario.job.workload.exchange_slowdown,
        timeline,
    };
    let drawn = Drawn { lag: scenario.job.workload.delay(), seed: scenario.seed };
    let coordination = scenario.schedule.coordination.as_ref();
    let fabric = &scenario.fabric;
    let tensors = Tensors::new(job.graph, players, fabric, &parameters, coordination, drawn)?;
    Driver::new(job.graph, players, communicator, tensors, &settings)?.run(observer)
}

/// With a lag of k, 1 + k iterations are under way and may end together, so that behind the first a multiple
/// of as many is measured.
fn whole_rounds(iterations: u32, lag: u32) -> u32 {
    1 + (iterations - 1).next_multiple_of(lag + 1)
}

/// That gradients which are applied later cost more than their time.
fn stale(workload: &Workload) -> Option<String> {
    let told = workload.target.and_then(|target| target.statistical_efficiency);
    (workload.lag > 0 && told.is_none()).then(|| {
        format!(
            "gradients are applied {} late: what that costs in convergence is not modelled \
             (`target.statistical_efficiency`)",
            counted(workload.lag, "iteration")
        )
    })
}

/// Policies that rank gradients have their word down in the dimensions' queues; the others leave it
/// to the order of issue.
fn priority(parameters: &TensorParameters, schedule: &Schedule) -> Result<Priority, SimulateError> {
    Ok(match schedule.collective_order {
        _ if parameters.policy()?.ranks_in_the_network() => Priority::Tensor,
        CollectiveOrder::Fifo => Priority::Fifo,
        CollectiveOrder::Lifo => Priority::Lifo,
        CollectiveOrder::Explicit => Priority::Explicit,
    })
}
