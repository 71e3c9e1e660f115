//! A step on a graph: the messages of every rank over switches and cables, by any network model that has them.

use std::sync::Arc;

use allrail_fabric::graph::NodeId;
use allrail_fabric::topologies::Summing;
use allrail_network::flows::Splitting;

use super::messages::carry_messages;
use crate::SimulateError;
use crate::driver::Observer;
use crate::on_graph::GraphModel;
use crate::scenario::{Algorithms, Topology};
use crate::training::communicator::graph::GraphNetwork;
use crate::training::communicator::ranks::{RankCommunicator, Wiring};
use crate::training::outcome::links::Wires;
use crate::training::outcome::result::TrainingResult;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

pub(super) fn carry(
    run: &StepRun<'_>,
    model: &dyn GraphModel,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let StepRun { job, scenario, request, .. } = run;
    let (sizes, settings) = (run.sizes(), &scenario.messages);
    let of_dimensions = || Topology::of_dimensions(&scenario.fabric);
    let topology = scenario.topology.clone().unwrap_or_else(of_dimensions);
    let players = Players::ranks(job.graph, &sizes)?;
    let mut network = GraphNetwork::new(Arc::clone(&topology.0))?;
    let slow_note = run.slow_links().map(|drawn| network.slow_down(drawn)).transpose()?;
    let block = own_npus(run);
    let places = places(run, block, network.graph.npus())?;
    let paths = settings.paths.unwrap_or(Splitting::Ecmp);
    let (packets, packet_note) = model.suited(&scenario.packets, job.graph);
    let network_model = network.network_model(model, paths, &packets, scenario.seed)?;
    // Messages cannot stand for sums within NPUs.
    let sums = network.topology.reduces() == Some(Summing::Switches) && model.is_fluid();
    let reducing = sums.then_some(&*network.graph);
    let fallback = Algorithms::default();
    let algorithms = settings.algorithms.as_ref();
    let named = algorithms.is_some() || settings.steady || scenario.has_own_dimensions();
    let algorithms = algorithms.unwrap_or(&fallback);
    let wiring = if named {
        Wiring::Graph { places: &places, algorithms, sizes: &sizes, reducing }
    } else {
        Wiring::Planned { places: &places, request, algorithms, reducing }
    };
    let mut communicator =
        RankCommunicator::new(job.graph, &players, wiring, network_model, settings.overhead)
            .cutting_rings(scenario.rings_are_cables())
            .sharing(scenario.compat.communicators);
    if settings.steady && model.is_fluid() {
        communicator = communicator.steady(network.latency(paths));
    }
    let wires = Wires::Graph(&network.graph);
    let mut result = carry_messages(run, &players, communicator, &wires, observer)?;
    result.notes.extend(network.notes(&scenario.job.placement, block.is_some(), settings));
    result.notes.extend(slow_note);
    result.notes.extend(packet_note);
    Ok(result)
}

/// The NPUs of a job that has a part of the fabric to itself, unless its placement names others.
fn own_npus<'a>(run: &StepRun<'a>) -> Option<&'a Vec<NodeId>> {
    let job = &run.scenario.job;
    let block = job.part.as_ref().and_then(|part| part.block.as_ref());
    block.filter(|_| job.placement.is_on_first())
}

/// The NPU of each rank.
fn places(
    run: &StepRun<'_>,
    block: Option<&Vec<NodeId>>,
    npus: u32,
) -> Result<Vec<NodeId>, SimulateError> {
    let ranks = run.sizes().iter().product();
    let places = run.scenario.job.placement.places(ranks, npus, run.scenario.seed)?;
    Ok(match block {
        Some(block) => places.iter().map(|place| block[place.index()]).collect(),
        None => places,
    })
}
