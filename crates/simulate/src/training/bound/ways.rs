//! What passes take: the longest paths between their ways in and their ways out.

use allrail_core::Time;
use allrail_workload::parallelism::slot::Turn;
use allrail_workload::{NodeId, Outline, PassNodes, Purpose, StepGraph, Work};

use crate::SimulateError;
use crate::scenario::TrainingScenario;
use crate::training::communicator::Ask;
use crate::training::communicator::classes::{Alone, ClassCommunicator, Idealisation};
use crate::training::players::Players;

/// No way: a sum with it stays below zero.
pub(super) const NONE: i64 = i64::MIN / 4;

/// What lies between the ways into a pass and the ways out: (chain, data) × (chain, data), in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways {
    pub(super) chain: [i64; 2],
    pub(super) data: [i64; 2],
    /// To the end of everything that follows the gradients of the piece.
    pub(super) tail: [i64; 2],
    /// To the first of its gradients.
    pub(super) ready: [i64; 2],
    /// All that it computes.
    pub(super) computes: i64,
    /// From the end of its computing to what it hands on.
    pub(super) drain: i64,
    /// All that is carried behind its computing, one after the other.
    pub(super) left: i64,
}

/// What a node takes at least, and at most if nothing else is going on.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    pub(super) least: i64,
    pub(super) most: i64,
    pub(super) busy: Vec<i64>,
}

/// What every node takes.
pub(super) fn costs(
    graph: &StepGraph,
    scenario: &TrainingScenario,
) -> Result<Vec<Cost>, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let request = scenario.request();
    let players = Players::classes(graph, &sizes)?;
    let mut network = ClassCommunicator::new(
        graph,
        &players,
        &request,
        &scenario.schedule.algorithms_by_operation,
        Idealisation::Real,
        false,
    )
    .cutting_rings(scenario.rings_are_cables());
    let mut costs = Vec::with_capacity(graph.len());
    for id in graph.ids() {
        let node = graph.node(id);
        // In `dims` a player is an actor.
        let player = node.actor.0;
        let ask = match node.work {
            Work::Compute { time } => {
                let time = picoseconds(time);
                costs.push(Cost { least: time, most: time, busy: Vec::new() });
                continue;
            }
            Work::Receive { .. } => {
                costs.push(Cost::default());
                continue;
            }
            Work::Collective { operation, bytes, group, .. } => Ask::Collective {
                operation,
                bytes,
                process_group: players.process_group(player, group),
            },
            Work::Send { bytes, group, peer, .. } => {
                let Some((destination, rank)) =
                    players.peer(player, &graph.groups()[group.index()], peer)
                else {
                    costs.push(Cost::default());
                    continue;
                };
                Ask::Message {
                    bytes,
                    process_group: players.process_group(player, group),
                    source: player,
                    destination,
                    ranks: (players.ranks[player as usize], rank),
                }
            }
        };
        let Alone { least, most, busy } = network.alone(ask)?;
        let busy = busy.into_iter().map(picoseconds).collect();
        costs.push(Cost { least: picoseconds(least), most: picoseconds(most), busy });
    }
    Ok(costs)
}

pub(super) fn picoseconds(time: Time) -> i64 {
    i64::try_from(time.as_ps()).unwrap_or(i64::MAX / 8)
}

/// Of each node, the pass that it is part of.
pub(super) fn owners(outline: &Outline) -> Vec<Option<usize>> {
    let mut owner = vec![None; outline.graph.len()];
    for (i, pass) in outline.passes.iter().enumerate() {
        for node in pass.nodes.clone() {
            owner[node as usize] = Some(i);
        }
    }
    owner
}

/// Of each pass, the nodes that hand its data on to other passes.
pub(super) fn handed(outline: &Outline, owner: &[Option<usize>]) -> Vec<Vec<NodeId>> {
    let graph = &outline.graph;
    let mut handed = vec![Vec::new(); outline.passes.len()];
    for id in graph.ids() {
        let Some(own) = owner[id.index()] else { continue };
        for before in graph.after(id) {
            let Some(other) = owner[before.index()].filter(|other| *other != own) else { continue };
            match graph.node(*before).work {
                // A receive stands right behind its send.
                Work::Receive { .. } => handed[other].push(NodeId(before.0 - 1)),
                Work::Collective { purpose, .. } if purpose != Purpose::Data => {
                    handed[other].push(*before);
                }
                _ => {}
            }
        }
    }
    handed
}

/// Of each node, what follows it outside of passes: the longest way to the end.
pub(super) fn after(graph: &StepGraph, costs: &[Cost], owner: &[Option<usize>]) -> Vec<i64> {
    let mut after = vec![0; graph.len()];
    let ids: Vec<NodeId> = graph.ids().collect();
    for id in ids.into_iter().rev().filter(|id| owner[id.index()].is_none()) {
        let way = costs[id.index()].least + after[id.index()];
        for before in graph.after(id) {
            after[before.index()] = after[before.index()].max(way);
        }
    }
    after
}

/// The longest paths of a pass.
pub(super) fn ways(
    graph: &StepGraph,
    pass: &PassNodes,
    costs: &[Cost],
    handed: &[NodeId],
    after: &[i64],
) -> Ways {
    let Ends { at, last, computes } = Ends::new(graph, pass, costs);
    let start = pass.nodes.start;
    let end = |place: u32| at[(place - start) as usize];
    let chain = last.map_or([0, NONE], end);
    let out = |i: usize| {
        let handed = handed.iter().filter(|id| pass.nodes.contains(&id.0));
        handed.map(|id| end(id.0)[i]).fold(NONE, i64::max)
    };
    let data = [out(0), out(1)];
    let mut drain = NONE;
    let mut left = 0;
    if let Some(last) = last {
        // What is handed on may end before the chain does: then nothing is known of it.
        drain = data[0] - chain[0];
        for place in last + 1..pass.nodes.end {
            left += costs[place as usize].most;
        }
    }
    let (mut tail, mut ready) = ([NONE; 2], [NONE; 2]);
    if pass.leaves {
        let begins = |id: NodeId| after[id.index()] > 0;
        let own = pass.nodes.clone().filter(|place| begins(NodeId(*place)));
        ready = [0, 1].map(|i| own.clone().map(|place| end(place)[i]).min().unwrap_or(NONE));
        let own =
            pass.nodes.clone().filter(|place| graph.node(NodeId(*place)).actor.0 == pass.position);
        for place in own {
            let ends = end(place).map(|end| end + after[place as usize]);
            tail = [tail[0].max(ends[0]), tail[1].max(ends[1])];
        }
    }
    Ways { chain, data, tail, ready, computes, drain, left }
}

/// When the nodes of a pass end.
struct Ends {
    /// Of each node, counted from the end of the chain before, and from when the data is there.
    at: Vec<[i64; 2]>,
    /// The last node that computes.
    last: Option<u32>,
    /// All that is computed.
    computes: i64,
}

impl Ends {
    fn new(graph: &StepGraph, pass: &PassNodes, costs: &[Cost]) -> Self {
        let start = pass.nodes.start;
        let begins = pass.slot.turn == Turn::Forward && pass.slot.piece == 0;
        let mut ends = Self { at: vec![[NONE; 2]; pass.nodes.len()], last: None, computes: 0 };
        for place in pass.nodes.clone() {
            let id = NodeId(place);
            let node = graph.node(id);
            if node.actor.0 != pass.position {
                continue;
            }
            let mut begin = [NONE; 2];
            let mut outside = graph.after(id).is_empty();
            for before in graph.after(id) {
                if pass.nodes.contains(&before.0) {
                    let known = ends.at[(before.0 - start) as usize];
                    begin = [begin[0].max(known[0]), begin[1].max(known[1])];
                    continue;
                }
                outside = true;
                let of_chain_or_parameters = matches!(
                    graph.node(*before).work,
                    Work::Compute { .. } | Work::Collective { purpose: Purpose::Data, .. }
                );
                if !of_chain_or_parameters && !begins {
                    begin[1] = begin[1].max(0);
                }
            }
            let cost = costs[id.index()].least;
            match node.work {
                Work::Compute { .. } => {
                    // It waits for the chain, whatever else.
                    if ends.last.is_none() {
                        begin[0] = begin[0].max(0);
                    }
                    ends.computes += cost;
                    ends.last = Some(place);
                }
                // Parameters may be gathered ahead.
                Work::Collective { purpose: Purpose::Data, .. } if outside => begin = [NONE; 2],
                // What begins a microbatch follows the chain.
                _ if outside && begins => begin[0] = begin[0].max(0),
                _ => {}
            }
            ends.at[(place - start) as usize] = begin.map(|begin| (begin + cost).max(NONE));
        }
        ends
    }
}
