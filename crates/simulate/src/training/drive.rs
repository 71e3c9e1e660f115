//! Runs a step graph on a communicator, with the settings that the scenario has for the driver.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_schedule::tensor::TensorParameters;
use allrail_workload::spec::Model;
use allrail_workload::{ActorId, NodeId, StepGraph, Work};

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::{CollectiveOrder, Issue, Schedule};
use crate::training::agreements::Drawn;
use crate::training::communicator::{Ask, Communicator};
use crate::training::driver::{Driver, Outcome, Priority, Settings};
use crate::training::gradients::Tensors;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

/// Schedules every kind of collective of the graph once, so that nothing fails on the way.
pub(crate) fn prepare(
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
pub(crate) fn drive(
    run: &StepRun<'_>,
    players: &Players,
    communicator: &mut dyn Communicator,
    observer: Observer<'_>,
) -> Result<Outcome, SimulateError> {
    let &StepRun { job, scenario, timeline, .. } = run;
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
        in_turn: scenario.compat.issue == Issue::InTurn,
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

/// Policies that rank gradients have their word down in the dimensions' queues; the others leave it
/// to the order of issue.
pub(crate) fn priority(
    parameters: &TensorParameters,
    schedule: &Schedule,
) -> Result<Priority, SimulateError> {
    Ok(match schedule.collective_order {
        _ if parameters.policy()?.ranks_in_the_network() => Priority::Tensor,
        CollectiveOrder::Fifo => Priority::Fifo,
        CollectiveOrder::Lifo => Priority::Lifo,
        CollectiveOrder::Explicit => Priority::Explicit,
    })
}
