//! The step graph: one iteration of a training job as a DAG of compute and communication nodes.
//!
//! An **actor** is a class of ranks that are alike: they run the same nodes, each with its own
//! peers. A data-parallel job has one actor, a pipeline one per stage, a trace one per rank. Network models
//! that model classes (`dims`) run every actor once; the others run its nodes on each of its ranks.
//!
//! A **group** is the set of ranks that a collective spans. It is given by *parts* of dimensions:
//! the ranks that differ from one another on these parts alone, so one group of an actor stands for
//! all its disjoint instances at once. An instance's ranks are numbered by their coordinates on the
//! parts, first part fastest; a send names its peer by that position.
//!
//! Dependencies are within an iteration, or on the *previous* iteration's nodes: the next forward
//! pass waits for this one's gradients. The graph holds one iteration, the driver repeats it.
//!
//! Nodes are kept in columns: about 40 bytes a node without its name.

mod builder;
mod node;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

pub use builder::Builder;
pub use node::{Actor, ActorId, Group, GroupId, Node, NodeId, Part, Pass, Peer, Purpose, Work};

/// A node as it is kept.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// Picoseconds or bytes.
    value: u64,
    group: u32,
    peer: i32,
    actor: u32,
    tensor: u32,
    kind: Kind,
    purpose: Purpose,
    pass: Pass,
    /// [`DELAY`], [`URGENT`], [`SECOND`], [`MEASURED`], [`OPENS`], [`CLOSES`], [`WITHIN`].
    marks: u8,
    /// Higher goes first where a scenario asks for it.
    priority: i32,
}

/// Time passes, and the engine is free meanwhile.
const DELAY: u8 = 1;
/// Overtakes whatever is not.
const URGENT: u8 = 2;
/// Of a gradient, not the first collective.
const SECOND: u8 = 4;
/// A delay that is a communication.
const MEASURED: u8 = 8;
/// Begins a collective that is nodes of its own.
const OPENS: u8 = 16;
/// Ends it.
const CLOSES: u8 = 32;
/// Between the two.
const WITHIN: u8 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Compute,
    Collective(Operation),
    SendAt,
    SendNext,
    ReceiveAt,
    ReceiveNext,
}

const NO_TENSOR: u32 = u32::MAX;

/// One iteration of a training job; see the module. Made by a [`Builder`].
#[derive(Clone, Debug)]
pub struct StepGraph {
    actors: Vec<Actor>,
    groups: Vec<Group>,
    nodes: Vec<Packed>,
    /// `after[starts[n]..starts[n + 1]]`: what node n waits for.
    starts: Vec<u32>,
    after: Vec<NodeId>,
    /// (node, node of the previous iteration that it waits for), ascending.
    carried: Vec<(NodeId, NodeId)>,
    names: Names,
}

/// The text of all names, one after the other.
#[derive(Clone, Debug, Default)]
struct Names {
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
}

impl StepGraph {
    /// The classes of ranks.
    #[must_use]
    pub fn actors(&self) -> &[Actor] {
        &self.actors
    }

    /// The groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// How many nodes an iteration has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node's handle, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..u32::try_from(self.nodes.len()).expect("fewer than 2^32 nodes")).map(NodeId)
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Node {
        let packed = &self.nodes[id.index()];
        let (bytes, group, purpose) =
            (Bytes::new(packed.value), GroupId(packed.group), packed.purpose);
        let position = || Peer::At(packed.peer.cast_unsigned());
        let offset = || Peer::Next(packed.peer);
        let work = match packed.kind {
            Kind::Compute => Work::Compute { time: Time::from_ps(packed.value) },
            Kind::Collective(operation) => Work::Collective { operation, bytes, group, purpose },
            Kind::SendAt => Work::Send { bytes, group, peer: position(), purpose },
            Kind::SendNext => Work::Send { bytes, group, peer: offset(), purpose },
            Kind::ReceiveAt => Work::Receive { bytes, group, peer: position(), purpose },
            Kind::ReceiveNext => Work::Receive { bytes, group, peer: offset(), purpose },
        };
        Node {
            actor: ActorId(packed.actor),
            work,
            tensor: (packed.tensor != NO_TENSOR).then_some(packed.tensor),
            pass: packed.pass,
        }
    }

    /// Whether a compute node only lets time pass: it leaves the actor's engine free and counts as
    /// no computing.
    #[must_use]
    pub fn is_delay(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & DELAY != 0
    }

    /// What a node's time counts to where it communicates: its purpose. Also of a delay that is a
    /// communication of which only the time is known, as a trace measured it.
    #[must_use]
    pub fn communication(&self, id: NodeId) -> Option<Purpose> {
        let packed = &self.nodes[id.index()];
        (packed.kind != Kind::Compute || packed.marks & MEASURED != 0).then_some(packed.purpose)
    }

    /// Whether a communication overtakes all that are not, whatever the order of collectives.
    #[must_use]
    pub fn is_urgent(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & URGENT != 0
    }

    /// What its trace says of who goes first: the higher does, where `schedule.collective_order` asks for it.
    #[must_use]
    pub fn priority(&self, id: NodeId) -> i32 {
        self.nodes[id.index()].priority
    }

    /// Whether a gradient's collective waits for another one of the same gradient: one tensor
    /// scheduler is told of the first ones, another of these.
    #[must_use]
    pub fn is_second(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & SECOND != 0
    }

    /// Whether a node begins a collective that is sends and receives of its own: it takes the turn of a
    /// player's communication, which the node that [`closes`](Self::closes) it gives back.
    #[must_use]
    pub fn opens(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & OPENS != 0
    }

    /// Whether a node ends such a collective.
    #[must_use]
    pub fn closes(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & CLOSES != 0
    }

    /// Whether a node is part of such a collective, and so waits for no turn.
    #[must_use]
    pub fn is_within(&self, id: NodeId) -> bool {
        self.nodes[id.index()].marks & (CLOSES | WITHIN) != 0
    }

    /// What a node waits for within its iteration.
    #[must_use]
    pub fn after(&self, id: NodeId) -> &[NodeId] {
        &self.after[self.starts[id.index()] as usize..self.starts[id.index() + 1] as usize]
    }

    /// (node, node of the previous iteration that it waits for), ascending.
    #[must_use]
    pub fn carried(&self) -> &[(NodeId, NodeId)] {
        &self.carried
    }

    /// The other way round: `(starts, successors)`, and `successors[starts[n]..starts[n + 1]]` wait
    /// for node n within the iteration.
    #[must_use]
    pub fn successors(&self) -> (Vec<u32>, Vec<NodeId>) {
        let mut starts = vec![0u32; self.nodes.len() + 1];
        for before in &self.after {
            starts[before.index() + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut place = starts.clone();
        let mut successors = vec![NodeId::default(); self.after.len()];
        for id in self.ids() {
            for before in self.after(id) {
                successors[place[before.index()] as usize] = id;
                place[before.index()] += 1;
            }
        }
        (starts, successors)
    }

    /// All nodes, each after what it waits for, else as they are numbered.
    #[must_use]
    pub fn in_order(&self) -> Vec<NodeId> {
        in_order(&self.starts, &self.after, self.nodes.len())
    }

    /// A node's name; empty where it has none.
    #[must_use]
    pub fn name(&self, id: NodeId) -> &str {
        let Some(end) = self.names.ends.get(id.index()) else { return "" };
        let start = if id.0 == 0 { 0 } else { self.names.ends[id.index() - 1] };
        &self.names.text[start as usize..*end as usize]
    }
}

impl StepGraph {
    /// Each actor's first nodes after each of its last ones.
    fn one_after_the_other(&self) -> Vec<(NodeId, NodeId)> {
        let mut waited_for = vec![false; self.nodes.len()];
        for before in &self.after {
            waited_for[before.index()] = true;
        }
        let mut last: Vec<Vec<NodeId>> = vec![Vec::new(); self.actors.len()];
        for id in self.ids().filter(|id| !waited_for[id.index()]) {
            last[self.nodes[id.index()].actor as usize].push(id);
        }
        self.ids()
            .filter(|id| self.after(*id).is_empty())
            .flat_map(|id| {
                let before = &last[self.nodes[id.index()].actor as usize];
                before.iter().map(move |before| (id, *before))
            })
            .collect()
    }
}

/// The nodes 0 to `count`, each after what it waits for (`after[starts[n]..starts[n + 1]]`), else as they are
/// numbered; those of a cycle, and what waits for them, last. What a node waits for may not exist.
fn in_order(starts: &[u32], after: &[NodeId], count: usize) -> Vec<NodeId> {
    let own = |id: usize| &after[starts[id] as usize..starts[id + 1] as usize];
    let ids = || (0..u32::try_from(count).expect("fewer than 2^32 nodes")).map(NodeId);
    if ids().all(|id| own(id.index()).iter().all(|before| *before < id)) {
        return ids().collect();
    }
    let mut successors: Vec<Vec<NodeId>> = vec![Vec::new(); count];
    let mut missing = vec![0u32; count];
    for id in ids() {
        for before in own(id.index()) {
            if let Some(list) = successors.get_mut(before.index()) {
                list.push(id);
            }
            missing[id.index()] += 1;
        }
    }
    let mut free: BinaryHeap<Reverse<NodeId>> =
        ids().filter(|id| missing[id.index()] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(Reverse(id)) = free.pop() {
        order.push(id);
        for next in std::mem::take(&mut successors[id.index()]) {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                free.push(Reverse(next));
            }
        }
    }
    order.extend(ids().filter(|id| missing[id.index()] > 0));
    order
}
