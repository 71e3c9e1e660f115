//! Makes step graphs, node by node, and checks them at the end.

use std::collections::BTreeMap;

use allrail_core::FieldError;

use super::{
    Actor, ActorId, CLOSES, DELAY, Group, GroupId, Kind, MEASURED, NO_TENSOR, Names, Node, NodeId,
    OPENS, Packed, Peer, Purpose, SECOND, StepGraph, URGENT, WITHIN, Work, in_order,
};

/// Makes a [`StepGraph`].
#[derive(Debug, Default)]
pub struct Builder {
    actors: Vec<Actor>,
    groups: Vec<Group>,
    nodes: Vec<Packed>,
    starts: Vec<u32>,
    after: Vec<NodeId>,
    carried: Vec<(NodeId, NodeId)>,
    names: Names,
}

impl Builder {
    /// Adds a class of ranks.
    pub fn actor(&mut self, actor: Actor) -> ActorId {
        self.actors.push(actor);
        ActorId(u32::try_from(self.actors.len() - 1).expect("fewer than 2^32 actors"))
    }

    /// Adds a group.
    pub fn group(&mut self, group: Group) -> GroupId {
        self.groups.push(group);
        GroupId(u32::try_from(self.groups.len() - 1).expect("fewer than 2^32 groups"))
    }

    /// Adds a node that waits for `after`. These may be added later; [`Builder::finish`] checks.
    pub fn node(&mut self, name: &str, node: Node, after: &[NodeId]) -> NodeId {
        let blank = Packed {
            value: 0,
            group: 0,
            peer: 0,
            actor: node.actor.0,
            tensor: node.tensor.unwrap_or(NO_TENSOR),
            kind: Kind::Compute,
            purpose: Purpose::Other,
            pass: node.pass,
            marks: 0,
            priority: 0,
        };
        let peer_of = |peer: Peer, at: Kind, next: Kind| match peer {
            Peer::At(position) => (at, position.cast_signed()),
            Peer::Next(offset) => (next, offset),
        };
        let packed = match node.work {
            Work::Compute { time } => Packed { value: time.as_ps(), ..blank },
            Work::Collective { operation, bytes, group, purpose } => Packed {
                value: bytes.count(),
                group: group.0,
                kind: Kind::Collective(operation),
                purpose,
                ..blank
            },
            Work::Send { bytes, group, peer, purpose } => {
                let (kind, peer) = peer_of(peer, Kind::SendAt, Kind::SendNext);
                Packed { value: bytes.count(), group: group.0, peer, kind, purpose, ..blank }
            }
            Work::Receive { bytes, group, peer, purpose } => {
                let (kind, peer) = peer_of(peer, Kind::ReceiveAt, Kind::ReceiveNext);
                Packed { value: bytes.count(), group: group.0, peer, kind, purpose, ..blank }
            }
        };
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.nodes.push(packed);
        self.after.extend_from_slice(after);
        self.starts.push(u32::try_from(self.after.len()).expect("fewer than 2^32 dependencies"));
        self.names.text.push_str(name);
        self.names.ends.push(u32::try_from(self.names.text.len()).expect("4 GiB of names at most"));
        NodeId(u32::try_from(self.nodes.len() - 1).expect("fewer than 2^32 nodes"))
    }

    /// An actor that was added.
    ///
    /// # Panics
    /// If it was not.
    pub fn actor_mut(&mut self, id: ActorId) -> &mut Actor {
        &mut self.actors[id.index()]
    }

    /// How many nodes were added.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Takes back all nodes but the first so many.
    pub fn truncate(&mut self, nodes: usize) {
        if nodes >= self.nodes.len() {
            return;
        }
        self.nodes.truncate(nodes);
        self.starts.truncate(nodes + 1);
        self.after.truncate(self.starts[nodes] as usize);
        self.names.ends.truncate(nodes);
        self.names.text.truncate(self.names.ends.last().map_or(0, |end| *end as usize));
        self.carried.retain(|(node, _)| node.index() < nodes);
    }

    /// Replaces the groups: what was of group `g` is of group `now[g]`. For readers that know who
    /// takes part only at the end.
    ///
    /// # Panics
    /// If a node's group has no entry.
    pub fn regroup(&mut self, groups: Vec<Group>, now: &[GroupId]) {
        self.groups = groups;
        for node in self.nodes.iter_mut().filter(|node| node.kind != Kind::Compute) {
            node.group = now[node.group as usize].0;
        }
    }

    /// Makes a compute node one that only lets time pass; see [`StepGraph::is_delay`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn delay(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= DELAY;
    }

    /// Makes a compute node a communication of which only the time is known: a delay whose time is
    /// exposed communication; see [`StepGraph::communication`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn measured(&mut self, node: NodeId, purpose: Purpose) {
        let packed = &mut self.nodes[node.index()];
        packed.marks |= DELAY | MEASURED;
        packed.purpose = purpose;
    }

    /// Lets a communication overtake all that are not urgent; see [`StepGraph::is_urgent`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn urgent(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= URGENT;
    }

    /// Says how a communication stands to others; see [`StepGraph::priority`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn prioritise(&mut self, node: NodeId, priority: i32) {
        self.nodes[node.index()].priority = priority;
    }

    /// Says that a gradient's collective waits for another of it; see [`StepGraph::is_second`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn second(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= SECOND;
    }

    /// Lets a node begin a collective that is nodes of its own; see [`StepGraph::opens`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn open(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= OPENS;
    }

    /// Lets a node end such a collective; see [`StepGraph::closes`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn close(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= CLOSES;
    }

    /// Makes a node part of such a collective; see [`StepGraph::is_within`].
    ///
    /// # Panics
    /// If the node was not added.
    pub fn within(&mut self, node: NodeId) {
        self.nodes[node.index()].marks |= WITHIN;
    }

    /// Marks a node as another one is marked in its graph.
    ///
    /// # Panics
    /// If either was not added.
    pub fn mark_as(&mut self, node: NodeId, graph: &StepGraph, other: NodeId) {
        let (packed, like) = (&mut self.nodes[node.index()], &graph.nodes[other.index()]);
        (packed.marks, packed.priority) = (like.marks, like.priority);
        if packed.kind == Kind::Compute {
            // What measured time was for.
            packed.purpose = like.purpose;
        }
    }

    /// Lets nodes of one queue, such as a stream of an accelerator, run one after the other: in the order in
    /// which they were added, unless what they wait for says otherwise.
    ///
    /// # Panics
    /// If a node was not added.
    pub fn queue(&mut self, nodes: &[(NodeId, u64)]) {
        let mut places = vec![0u32; self.len()];
        for (place, id) in (0u32..).zip(self.in_order()) {
            places[id.index()] = place;
        }
        let mut queued = nodes.to_vec();
        queued.sort_by_key(|(node, _)| places[node.index()]);
        let mut last: BTreeMap<(u32, u64), NodeId> = BTreeMap::new();
        let mut more = Vec::new();
        for (node, queue) in queued {
            if let Some(before) = last.insert((self.actor_of(node).0, queue), node) {
                more.push((node, before));
            }
        }
        self.wait_also(&more);
    }

    /// Whose a node is.
    ///
    /// # Panics
    /// If the node was not added.
    fn actor_of(&self, node: NodeId) -> ActorId {
        ActorId(self.nodes[node.index()].actor)
    }

    /// All nodes, each after what it waits for, else as they were added; those of a cycle last.
    fn in_order(&self) -> Vec<NodeId> {
        in_order(&self.starts, &self.after, self.nodes.len())
    }

    /// Lets nodes wait for others, too: `(node, before)`, each once.
    fn wait_also(&mut self, more: &[(NodeId, NodeId)]) {
        let mut more = more.to_vec();
        more.sort_unstable();
        let mut more = more.into_iter().peekable();
        let (starts, after) = (std::mem::take(&mut self.starts), std::mem::take(&mut self.after));
        self.starts.extend(starts.first());
        for (id, range) in (0u32..).zip(starts.windows(2)) {
            let own = &after[range[0] as usize..range[1] as usize];
            self.after.extend_from_slice(own);
            while let Some((_, before)) = more.next_if(|(node, _)| node.0 == id) {
                if !own.contains(&before) {
                    self.after.push(before);
                }
            }
            let end = u32::try_from(self.after.len()).expect("fewer than 2^32 dependencies");
            self.starts.push(end);
        }
    }

    /// Lets `node` wait for `before` of the previous iteration.
    pub fn carry(&mut self, node: NodeId, before: NodeId) {
        self.carried.push((node, before));
    }

    /// Checks the graph and closes it. Without any dependency on the previous iteration, the first
    /// nodes wait for all of its last ones: iterations follow one another.
    ///
    /// # Errors
    /// A dependency on a node that does not exist; a cycle (printed); a group that names no actor
    /// or one that does not exist; collectives of a group's actors that differ in number, operation
    /// or size (named); sends without receives.
    pub fn finish(mut self) -> Result<StepGraph, FieldError> {
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.carried.sort_unstable();
        self.carried.dedup();
        let mut graph = StepGraph {
            actors: self.actors,
            groups: self.groups,
            nodes: self.nodes,
            starts: self.starts,
            after: self.after,
            carried: self.carried,
            names: self.names,
        };
        crate::check::check(&graph)?;
        if graph.carried.is_empty() {
            graph.carried = graph.one_after_the_other();
        }
        Ok(graph)
    }
}
