//! A step graph in which collectives are replaced by the sends, receives and reductions of their traces.
//!
//! A collective becomes a node that opens it, those of its trace, and one that closes it. What waited for
//! the collective waits for the close; the trace's first nodes wait for the open. The two hold the turn of
//! a player that issues one communication after the other, and what is between them takes none: within a
//! collective everything that is ready runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allrail_core::{Bytes, FieldError, Rank as FabricRank, Time};
use allrail_workload::graph::{
    Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, StepGraph, Work,
};

use super::super::groups::Shape;
use super::load;
use super::program::{Does, Message, Rank};

/// One collective to be replaced.
struct Place {
    trace: usize,
    /// The position of the node's rank in its group.
    position: usize,
}

/// Puts the trace of each node that is listed, ascending, in its place. Every actor has one rank.
///
/// # Errors
/// A trace is wrong; see [`super::verify`] and [`super::msccl`].
pub(in super::super) fn expand(
    graph: &StepGraph,
    sizes: &[u32],
    listed: &[(NodeId, PathBuf)],
) -> Result<StepGraph, FieldError> {
    let mut known: BTreeMap<(PathBuf, Vec<u32>, String, Bytes), usize> = BTreeMap::new();
    let mut traces: Vec<Vec<Rank>> = Vec::new();
    let mut places: BTreeMap<NodeId, Place> = BTreeMap::new();
    let mut members: BTreeMap<GroupId, Vec<u32>> = BTreeMap::new();
    for (id, path) in listed {
        let node = graph.node(*id);
        let Work::Collective { operation, bytes, group, .. } = node.work else { continue };
        let own = graph.actors()[node.actor.index()].ranks[0];
        let ranks = members
            .entry(group)
            .or_insert_with(|| ranks_of(&graph.groups()[group.index()], own, sizes));
        if ranks.len() < 2 {
            continue;
        }
        let key = (path.clone(), ranks.clone(), operation.to_string(), bytes);
        let trace = match known.get(&key) {
            Some(trace) => *trace,
            None => {
                traces.push(load(path, ranks.len(), operation, bytes)?);
                known.insert(key, traces.len() - 1);
                traces.len() - 1
            }
        };
        let position = ranks.iter().position(|rank| *rank == own.0).expect("it is in its group");
        places.insert(*id, Place { trace, position });
    }
    Expansion { graph, traces: &traces, places: &places, members: &members }.run()
}

/// The ranks of a group's instance around one of them, ascending.
fn ranks_of(group: &Group, around: FabricRank, sizes: &[u32]) -> Vec<u32> {
    let mut ranks: Vec<u32> = if group.parts.is_empty() {
        group.ranks.iter().map(|rank| rank.0).collect()
    } else {
        Shape::Parts(group.parts.clone()).around(around, sizes)
    };
    ranks.sort_unstable();
    ranks
}

struct Expansion<'a> {
    graph: &'a StepGraph,
    traces: &'a [Vec<Rank>],
    places: &'a BTreeMap<NodeId, Place>,
    members: &'a BTreeMap<GroupId, Vec<u32>>,
}

impl Expansion<'_> {
    fn run(&self) -> Result<StepGraph, FieldError> {
        let (first, last) = self.numbers();
        let mut builder = Builder::default();
        for actor in self.graph.actors() {
            builder.actor(actor.clone());
        }
        for group in self.graph.groups() {
            builder.group(group.clone());
        }
        let mut channels: BTreeMap<(GroupId, u64, Bytes), GroupId> = BTreeMap::new();
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            let after: Vec<NodeId> =
                self.graph.after(id).iter().map(|before| last[before.index()]).collect();
            let name = self.graph.name(id);
            let Some(place) = self.places.get(&id) else {
                let added = builder.node(name, node, &after);
                builder.mark_as(added, self.graph, id);
                continue;
            };
            self.replace(&mut builder, &mut channels, (name, node), &after, place);
        }
        for (node, before) in self.graph.carried() {
            builder.carry(first[node.index()], last[before.index()]);
        }
        builder.finish()
    }

    /// Of every node of the graph, the first and the last that it becomes.
    fn numbers(&self) -> (Vec<NodeId>, Vec<NodeId>) {
        let mut next = 0u32;
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for id in self.graph.ids() {
            first.push(NodeId(next));
            if let Some(Place { trace, position }) = self.places.get(&id) {
                let many = self.traces[*trace][*position].nodes.len();
                next += u32::try_from(many).expect("fewer than 2^32 nodes") + 1;
            }
            last.push(NodeId(next));
            next += 1;
        }
        (first, last)
    }

    fn replace(
        &self,
        builder: &mut Builder,
        channels: &mut BTreeMap<(GroupId, u64, Bytes), GroupId>,
        (name, node): (&str, Node),
        after: &[NodeId],
        place: &Place,
    ) {
        let Work::Collective { group, purpose, .. } = node.work else { return };
        let join = Node { work: Work::Compute { time: Time::ZERO }, pass: Pass::Unknown, ..node };
        let join = Node { tensor: None, ..join };
        let open = builder.node(name, join, after);
        builder.open(open);
        let nodes = &self.traces[place.trace][place.position].nodes;
        let at = |place: usize| NodeId(open.0 + 1 + u32::try_from(place).expect("few"));
        let mut waited_for = vec![false; nodes.len()];
        for one in nodes {
            let before: Vec<NodeId> = if one.after.is_empty() {
                vec![open]
            } else {
                one.after.iter().map(|place| at(*place)).collect()
            };
            one.after.iter().for_each(|place| waited_for[*place] = true);
            let mut channel = |Message { peer, tag, bytes }: Message| {
                let id = *channels.entry((group, tag, bytes)).or_insert_with(|| {
                    let meant = &self.graph.groups()[group.index()];
                    let ranks = self.members[&group].iter().copied().map(FabricRank).collect();
                    let name = format!("{}: messages of {bytes}, tag {tag}", meant.name);
                    let parts: Vec<Part> = Vec::new();
                    builder.group(Group { name, parts, ranks, actors: meant.actors.clone() })
                });
                (id, bytes, Peer::At(peer))
            };
            let work = match one.does {
                Does::Compute(time) => Work::Compute { time },
                Does::Send(message) => {
                    let (group, bytes, peer) = channel(message);
                    Work::Send { bytes, group, peer, purpose }
                }
                Does::Receive(message) => {
                    let (group, bytes, peer) = channel(message);
                    Work::Receive { bytes, group, peer, purpose }
                }
            };
            let added = builder.node(&one.name, Node { work, ..join }, &before);
            builder.within(added);
            if matches!(work, Work::Compute { .. }) {
                // A reduction beside everything else, as ASTRA-sim has it.
                builder.delay(added);
            }
        }
        let ends: Vec<NodeId> = if nodes.is_empty() {
            vec![open]
        } else {
            (0..nodes.len()).filter(|place| !waited_for[*place]).map(at).collect()
        };
        let close = builder.node(name, join, &ends);
        builder.close(close);
    }
}
