//! Where nodes are added: one actor per position of the pipeline, its chain of compute, its groups.
//!
//! Compute nodes of an actor form a chain: each waits for the one before, so that a stage's order
//! holds whatever the network does. A receive is added together with its send, so that the k-th
//! receive from a peer is that of its k-th send; it is posted when the iteration of its actor begins.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Time};

use super::plan::Plan;
use crate::graph::{
    Actor, ActorId, Builder, Group, GroupId, Node, NodeId, Part, Pass, Peer, Purpose, Work,
};
use crate::spec::Axis;

/// Whom a communication spans, within one position of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Span {
    /// The shards of a layer.
    Tensor,
    /// The parts of a sample.
    Context,
    /// The replicas that share experts.
    Experts,
    /// Of these, those on one node, and those on the others at the same place.
    ExpertsNear,
    /// See there.
    ExpertsFar,
    /// The replicas of an expert.
    OfExpert,
    /// All replicas.
    Replicas,
    /// Replicas that cut their states among them.
    Shard,
    /// Those that have the same part of them.
    Copies,
    /// All replicas and their shards in space.
    ReplicasAndShards,
    /// The shards in space.
    Shards,
    /// Neighbours in space, along the first side of the grid.
    Across,
    /// And along the second.
    Along,
}

impl Span {
    pub(crate) fn axes(self) -> &'static [Axis] {
        match self {
            Self::Tensor => &[Axis::Tp],
            Self::Context => &[Axis::Cp],
            Self::Experts | Self::ExpertsNear | Self::ExpertsFar => &[Axis::Ep],
            Self::OfExpert => &[Axis::Dp, Axis::Cp],
            Self::Replicas | Self::Shard | Self::Copies => &[Axis::Dp, Axis::Cp, Axis::Ep],
            Self::ReplicasAndShards => &[Axis::Dp, Axis::Cp, Axis::Ep, Axis::Op],
            Self::Shards | Self::Across | Self::Along => &[Axis::Op],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Tensor => "tp",
            Self::Context => "cp",
            Self::Experts => "ep",
            Self::ExpertsNear => "ep in a node",
            Self::ExpertsFar => "ep over nodes",
            Self::OfExpert => "dp of experts",
            Self::Replicas => "dp",
            Self::Shard => "shards of dp",
            Self::Copies => "copies over dp",
            Self::ReplicasAndShards => "dp and op",
            Self::Shards => "op",
            Self::Across => "op across",
            Self::Along => "op along",
        }
    }
}

/// One position of the pipeline.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) actor: ActorId,
    /// The last compute node of its chain.
    pub(crate) chain: Option<NodeId>,
    /// Of ZeRO 3: that node, each time that a unit was entered.
    pub(crate) entered: Vec<Option<NodeId>>,
    /// The first of its chain.
    pub(crate) first: Option<NodeId>,
    groups: BTreeMap<Span, Option<GroupId>>,
    /// What is received from other positions.
    receives: Vec<NodeId>,
    /// By layer: the first node of an iteration that needs its parameters.
    pub(crate) users: BTreeMap<usize, Vec<NodeId>>,
    /// Of a pipeline that is never flushed: what is between an update and the iteration but one.
    pub(super) between: Option<NodeId>,
}

/// Adds nodes.
#[derive(Debug)]
pub(crate) struct Emitter<'p> {
    pub(crate) plan: &'p Plan<'p>,
    pub(crate) builder: Builder,
    pub(crate) stages: Vec<Stage>,
    pipeline: Option<GroupId>,
}

impl<'p> Emitter<'p> {
    pub(crate) fn new(plan: &'p Plan<'p>) -> Self {
        let mut builder = Builder::default();
        let ranks = plan.layout.stages();
        let one = ranks.len() == 1;
        let mut stages = Vec::new();
        for (ranks, i) in ranks.into_iter().zip(0u32..) {
            let name = if one { "ranks".to_owned() } else { format!("stage {i}") };
            stages.push(Stage {
                actor: builder.actor(Actor { name, ranks }),
                chain: None,
                entered: Vec::new(),
                first: None,
                groups: BTreeMap::new(),
                receives: Vec::new(),
                users: BTreeMap::new(),
                between: None,
            });
        }
        let pipeline = (!one).then(|| {
            builder.group(Group {
                name: "pp".to_owned(),
                parts: plan.layout.parts(Axis::Pp).to_vec(),
                ranks: Vec::new(),
                actors: stages.iter().map(|stage| stage.actor).collect(),
            })
        });
        Self { plan, builder, stages, pipeline }
    }

    /// A group of a position; none where it would hold one rank.
    pub(crate) fn group(&mut self, position: usize, span: Span) -> Option<GroupId> {
        if let Some(group) = self.stages[position].groups.get(&span) {
            return *group;
        }
        let layout = &self.plan.layout;
        let parts = match span {
            Span::Across | Span::Along => {
                let (across, along) = grid(layout.parts(Axis::Op));
                if span == Span::Across { across } else { along }
            }
            Span::ExpertsNear | Span::ExpertsFar => {
                let near = span == Span::ExpertsNear;
                let parts = layout.together(span.axes()).into_iter();
                parts.filter(|part| (part.dimension.0 == 0) == near).collect()
            }
            Span::Shard | Span::Copies => {
                let shard = self.plan.workload.parallelism.shard.unwrap_or(1);
                let found = layout.nearest(span.axes(), shard).unwrap_or_default();
                if span == Span::Shard { found.0 } else { found.1 }
            }
            _ => layout.together(span.axes()),
        };
        let ranks: u64 = parts.iter().map(|part| u64::from(part.size)).product();
        let group = (ranks > 1).then(|| {
            let name = match self.stages.len() {
                1 => span.name().to_owned(),
                _ => format!("{} of stage {position}", span.name()),
            };
            let actors = vec![self.stages[position].actor];
            self.builder.group(Group { name, parts, ranks: Vec::new(), actors })
        });
        self.stages[position].groups.insert(span, group);
        group
    }

    /// How many ranks a span holds.
    pub(crate) fn ranks(&self, span: Span) -> u64 {
        let all: u64 = span.axes().iter().map(|axis| self.plan.degree(*axis)).product();
        match span {
            Span::Shard => self.plan.shards(all),
            Span::Copies => all / self.plan.shards(all),
            _ => all,
        }
    }

    /// The next node of a position's chain.
    pub(crate) fn compute(
        &mut self,
        position: usize,
        name: &str,
        (time, pass): (Time, Pass),
        after: &[NodeId],
    ) -> NodeId {
        let stage = &mut self.stages[position];
        let mut waits: Vec<NodeId> = stage.chain.into_iter().collect();
        waits.extend_from_slice(after);
        waits.sort_unstable();
        waits.dedup();
        let node = Node { actor: stage.actor, work: Work::Compute { time }, tensor: None, pass };
        let id = self.builder.node(name, node, &waits);
        stage.chain = Some(id);
        stage.first.get_or_insert(id);
        id
    }

    /// A node beside the chain that takes no time: what stands for several that are over.
    pub(super) fn instant(
        &mut self,
        position: usize,
        name: &str,
        pass: Pass,
        after: &[NodeId],
    ) -> NodeId {
        let (actor, work) = (self.stages[position].actor, Work::Compute { time: Time::ZERO });
        self.builder.node(name, Node { actor, work, tensor: None, pass }, after)
    }

    /// A compute node beside the chain: an update.
    pub(crate) fn update(
        &mut self,
        position: usize,
        (name, time): (&str, Time),
        tensor: u32,
        after: &[NodeId],
    ) -> NodeId {
        let node = Node {
            actor: self.stages[position].actor,
            work: Work::Compute { time },
            tensor: Some(tensor),
            pass: Pass::Update,
        };
        self.builder.node(name, node, after)
    }

    /// A collective, or nothing but its dependencies where the span holds one rank.
    pub(crate) fn collective(
        &mut self,
        position: usize,
        name: &str,
        (operation, bytes, span): (Operation, u64, Span),
        (purpose, tensor, pass): (Purpose, Option<u32>, Pass),
        after: &[NodeId],
    ) -> Option<NodeId> {
        let group = self.group(position, span).filter(|_| bytes > 0)?;
        let bytes = Bytes::new(bytes);
        let work = Work::Collective { operation, bytes, group, purpose };
        let node = Node { actor: self.stages[position].actor, work, tensor, pass };
        Some(self.builder.node(name, node, after))
    }

    /// A message to another position of the pipeline: (send, receive).
    pub(crate) fn message(
        &mut self,
        (source, destination): (usize, usize),
        name: &str,
        (bytes, purpose, pass): (u64, Purpose, Pass),
        after: &[NodeId],
    ) -> (NodeId, NodeId) {
        let group = self.pipeline.expect("positions are in the pipeline's group");
        let bytes = Bytes::new(bytes);
        let peer = |position: usize| Peer::At(u32::try_from(position).expect("few stages"));
        let (from, to) = (self.stages[source].actor, self.stages[destination].actor);
        let work = Work::Send { bytes, group, peer: peer(destination), purpose };
        let send = Node { actor: from, work, tensor: None, pass };
        let send = self.builder.node(&format!("{name} send"), send, after);
        let work = Work::Receive { bytes, group, peer: peer(source), purpose };
        let receive = Node { actor: to, work, tensor: None, pass };
        let receive = self.builder.node(&format!("{name} receive"), receive, &[]);
        self.stages[destination].receives.push(receive);
        (send, receive)
    }

    /// Neighbours in space exchange their borders: what the next compute waits for.
    pub(crate) fn halo(
        &mut self,
        position: usize,
        name: &str,
        bytes: u64,
        pass: Pass,
        after: &[NodeId],
    ) -> Vec<NodeId> {
        let mut arrived = Vec::new();
        let actor = self.stages[position].actor;
        for span in [Span::Across, Span::Along] {
            let Some(group) = self.group(position, span).filter(|_| bytes > 0) else { continue };
            let (across, along) = grid(self.plan.layout.parts(Axis::Op));
            let parts = if span == Span::Across { across } else { along };
            let side: u32 = parts.iter().map(|part| part.size).product();
            // Of two, the neighbour on either side is the same.
            let offsets: &[i32] = if side == 2 { &[1] } else { &[1, -1] };
            for offset in offsets {
                let bytes = Bytes::new(bytes);
                let purpose = Purpose::Operator;
                let work = Work::Send { bytes, group, peer: Peer::Next(*offset), purpose };
                let node = Node { actor, work, tensor: None, pass };
                self.builder.node(&format!("{name} send"), node, after);
                let work = Work::Receive { bytes, group, peer: Peer::Next(-offset), purpose };
                let node = Node { actor, work, tensor: None, pass };
                arrived.push(self.builder.node(&format!("{name} receive"), node, after));
            }
        }
        arrived
    }

    /// Ties the iterations together: nothing of a position begins before its chain has ended.
    pub(crate) fn close_chains(&mut self) {
        for stage in &self.stages {
            let (Some(first), Some(last)) = (stage.first, stage.chain) else { continue };
            self.builder.carry(first, last);
            for receive in &stage.receives {
                self.builder.carry(*receive, last);
            }
        }
    }
}

/// The two sides of a grid of shards, as square as its size allows.
fn grid(parts: &[Part]) -> (Vec<Part>, Vec<Part>) {
    if let [only] = parts {
        let root = only.size.isqrt();
        let side = (1..=root).rev().find(|side| only.size.is_multiple_of(*side)).unwrap_or(1);
        let across = Part { size: only.size / side, ..*only };
        let along = Part { size: side, stride: only.stride * across.size, ..*only };
        return (vec![across], vec![along]);
    }
    match parts.split_first() {
        Some((first, rest)) => (vec![*first], rest.to_vec()),
        None => (Vec::new(), Vec::new()),
    }
}
