//! The critical path of the last iteration.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};
use allrail_workload::{StepGraph, Work};

use crate::training::communicator::{Ask, Communicator};
use crate::training::driver::Outcome;
use crate::training::driver::record::Ran;
use crate::training::outcome::path::{self, CriticalPath, What};
use crate::training::players::Players;

/// Walks it back.
pub(super) fn critical_path(
    graph: &StepGraph,
    players: &Players,
    outcome: &Outcome,
    communicator: &mut dyn Communicator,
) -> CriticalPath {
    let before = outcome.ends.iter().rev().nth(1).copied().unwrap_or(Time::ZERO);
    let within = (before, outcome.ends[outcome.ends.len() - 1]);
    let last = outcome.last.expect("a step has a node");
    let look = |ran: Ran| {
        outcome.records.get(ran).map(|record| (record.start, record.finish, record.cause))
    };
    let mut known: BTreeMap<(Operation, Bytes, u32), Option<u32>> = BTreeMap::new();
    let what = |ran: Ran| match graph.node(ran.node).work {
        // What a delay takes counts to what it follows, unless it is a communication itself.
        Work::Compute { .. } if graph.is_delay(ran.node) => {
            let mut at = Some(ran);
            while let Some(ran) = at {
                if let Some(purpose) = graph.communication(ran.node) {
                    return What::Communication(purpose, None);
                }
                at = look(ran).and_then(|(start, end, cause)| {
                    cause.filter(|_| start == end || graph.is_delay(ran.node))
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
            let parts = &graph.groups()[group.index()].parts;
            What::Communication(purpose, parts.first().map(|part| part.dimension.0))
        }
    };
    let node_name = |ran: Ran| graph.name(ran.node).to_owned();
    let actor_name =
        |player: u32| graph.actors()[players.actors[player as usize].index()].name.clone();
    path::trace(last, within, look, what, node_name, actor_name)
}
