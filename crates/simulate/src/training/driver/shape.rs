//! What the driver works out of a step graph once: who waits for whom, and which sends and receives
//! are one message.

use std::collections::BTreeMap;

use allrail_core::{FieldError, Rank};
use allrail_workload::{ActorId, GroupId, NodeId, Peer, StepGraph, Work};

use crate::SimulateError;
use crate::scenario::field;
use crate::training::players::Players;

/// What is worked out of a graph once.
pub(super) struct Shape {
    /// Place of each node among its actor's.
    pub(super) local: Vec<u32>,
    /// Every actor's nodes.
    pub(super) nodes: Vec<Vec<NodeId>>,
    /// Where each player's nodes begin in the state of an iteration.
    pub(super) offsets: Vec<usize>,
    /// How many player's nodes there are in all.
    pub(super) states: usize,
    pub(super) successors: (Vec<u32>, Vec<NodeId>),
    /// For each node, those of the next iteration that wait for it: `carried[starts[n]..]`.
    pub(super) carried: (Vec<u32>, Vec<NodeId>),
    /// For each actor, its nodes that the next iteration waits for, and those that wait.
    pub(super) sources: Vec<u32>,
    pub(super) waiters: Vec<Vec<NodeId>>,
    /// For each actor, its nodes that wait for nothing.
    pub(super) gated: Vec<Vec<NodeId>>,
    /// Whether a node is an exchange of gradients, or comes after one.
    pub(super) late: Vec<bool>,
    /// For each actor, how many of its nodes are not.
    pub(super) computing: Vec<u32>,
    /// Among its like: collectives of a group, messages of a channel.
    pub(super) ordinal: Vec<u32>,
    /// For each actor, how many messages of each channel an iteration has.
    pub(super) messages: BTreeMap<(ActorId, GroupId, Peer, bool), u32>,
    /// In `dims`: for each message node, the player and ranks at its other end.
    pub(super) peers: BTreeMap<NodeId, (u32, Rank)>,
}

impl Shape {
    pub(super) fn new(graph: &StepGraph, players: &Players) -> Result<Self, SimulateError> {
        let count = graph.len();
        let actors = graph.actors().len();
        let mut shape = Self {
            local: vec![0; count],
            nodes: vec![Vec::new(); actors],
            offsets: Vec::new(),
            states: 0,
            successors: graph.successors(),
            carried: carried(graph),
            sources: vec![0; actors],
            waiters: vec![Vec::new(); actors],
            gated: vec![Vec::new(); actors],
            late: late(graph),
            computing: vec![0; actors],
            ordinal: vec![0; count],
            messages: BTreeMap::new(),
            peers: BTreeMap::new(),
        };
        let mut waits = vec![false; count];
        let mut source = vec![false; count];
        for (node, before) in graph.carried() {
            waits[node.index()] = true;
            source[before.index()] = true;
        }
        let mut collectives: BTreeMap<(ActorId, GroupId), u32> = BTreeMap::new();
        for id in graph.ids() {
            let node = graph.node(id);
            let actor = node.actor.index();
            shape.local[id.index()] = u32::try_from(shape.nodes[actor].len()).expect("few nodes");
            shape.nodes[actor].push(id);
            shape.computing[actor] += u32::from(!shape.late[id.index()]);
            shape.sources[actor] += u32::from(source[id.index()]);
            if waits[id.index()] {
                shape.waiters[actor].push(id);
            } else if graph.after(id).is_empty() {
                shape.gated[actor].push(id);
            }
            let next = match node.work {
                Work::Compute { .. } => continue,
                Work::Collective { group, .. } => {
                    collectives.entry((node.actor, group)).or_default()
                }
                Work::Send { group, peer, .. } => {
                    shape.messages.entry((node.actor, group, peer, true)).or_default()
                }
                Work::Receive { group, peer, .. } => {
                    shape.messages.entry((node.actor, group, peer, false)).or_default()
                }
            };
            shape.ordinal[id.index()] = *next;
            *next += 1;
        }
        if players.are_classes() {
            shape.peers = peers(graph, players)?;
        }
        for actor in &players.actors {
            shape.offsets.push(shape.states);
            shape.states += shape.nodes[actor.index()].len();
        }
        shape.matched(graph, players)?;
        Ok(shape)
    }

    /// Refuses sends without receives, and receives without sends.
    fn matched(&self, graph: &StepGraph, players: &Players) -> Result<(), SimulateError> {
        let mut balance: BTreeMap<(u32, u32, GroupId, i32), i64> = BTreeMap::new();
        for (player, actor) in (0u32..).zip(&players.actors) {
            let channels = self
                .messages
                .range((*actor, GroupId(0), Peer::At(0), false)..)
                .take_while(|((of, ..), _)| of == actor);
            for ((_, group, peer, sends), count) in channels {
                let found = players.peer(player, &graph.groups()[group.index()], *peer);
                let Some((other, _)) = found else { continue };
                let key = message_channel(player, other, *group, *peer, *sends);
                let count = i64::from(*count);
                *balance.entry(key).or_default() += if *sends { count } else { -count };
            }
        }
        let Some(((source, destination, group, _), left)) = balance.iter().find(|(_, n)| **n != 0)
        else {
            return Ok(());
        };
        let name = |player: u32| &graph.actors()[players.actors[player as usize].index()].name;
        Err(SimulateError::Field(FieldError::new(
            "workload",
            graph.groups()[group.index()].name.clone(),
            format!(
                "{} sends {} {} {} than that receives",
                name(*source),
                name(*destination),
                left.abs(),
                if *left > 0 { "messages more" } else { "messages fewer" },
            ),
            "every send has its receive, and both name each other alike: by position, or by \
                   distance",
        )))
    }

    pub(super) fn index(&self, player: u32, node: NodeId) -> usize {
        self.offsets[player as usize] + self.local[node.index()] as usize
    }
}

/// [`Shape::carried`].
fn carried(graph: &StepGraph) -> (Vec<u32>, Vec<NodeId>) {
    let mut starts = vec![0; graph.len() + 1];
    for (_, before) in graph.carried() {
        starts[before.index() + 1] += 1;
    }
    for i in 0..graph.len() {
        starts[i + 1] += starts[i];
    }
    let mut place = starts.clone();
    let mut waiting = vec![NodeId::default(); graph.carried().len()];
    for (node, before) in graph.carried() {
        waiting[place[before.index()] as usize] = *node;
        place[before.index()] += 1;
    }
    (starts, waiting)
}

/// [`Shape::peers`].
fn peers(
    graph: &StepGraph,
    players: &Players,
) -> Result<BTreeMap<NodeId, (u32, Rank)>, SimulateError> {
    let mut peers = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let (Work::Send { group, peer, .. } | Work::Receive { group, peer, .. }) = node.work else {
            continue;
        };
        let group = &graph.groups()[group.index()];
        let end = players.peer(node.actor.0, group, peer).ok_or_else(|| {
            field(
                "workload",
                graph.name(id),
                format!("its peer {peer:?} is not in group `{}`", group.name),
                "a peer is a position within the group's instance",
            )
        })?;
        peers.insert(id, end);
    }
    Ok(peers)
}

/// Of every node, whether it is an exchange of gradients, or comes after one in its iteration.
fn late(graph: &StepGraph) -> Vec<bool> {
    let (starts, next) = graph.successors();
    let exchanges = |id: &NodeId| {
        let node = graph.node(*id);
        node.tensor.is_some() && matches!(node.work, Work::Collective { .. })
    };
    let mut late = vec![false; graph.len()];
    let mut found: Vec<NodeId> = graph.ids().filter(exchanges).collect();
    while let Some(id) = found.pop() {
        if !std::mem::replace(&mut late[id.index()], true) {
            let after = starts[id.index()] as usize..starts[id.index() + 1] as usize;
            found.extend(&next[after]);
        }
    }
    late
}

pub(super) fn message_channel(
    player: u32,
    other: u32,
    group: GroupId,
    peer: Peer,
    sends: bool,
) -> (u32, u32, GroupId, i32) {
    let direction = match peer {
        Peer::At(_) => 0,
        Peer::Next(offset) if sends => offset,
        Peer::Next(offset) => -offset,
    };
    if sends { (player, other, group, direction) } else { (other, player, group, direction) }
}
