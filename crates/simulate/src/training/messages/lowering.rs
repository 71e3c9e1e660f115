//! What is asked as messages between ranks: where ranks are, and what collectives are made of.
//!
//! On a graph a collective is its algorithm's messages (`lowered`), and a message of the job is one of
//! the world; on a fabric of dimensions it is the stages of its plan (`staged`), and a message takes
//! one dimension on which its ranks differ after the other.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_core::{Bytes, Rank, Time};
use allrail_fabric::graph::NodeId;
use allrail_schedule::Request;
use allrail_workload::StepGraph;

use super::super::lowered::{Algorithms, Parts, on_graph};
use super::super::players::Players;
use super::super::staged::on_dimensions;
use super::super::steady::Steady;
use crate::SimulateError;

/// What the world's ends are to the job's ranks.
pub enum Wiring<'a> {
    /// NPUs of a graph.
    Graph {
        /// The NPU of each rank.
        places: &'a [NodeId],
        /// What collectives are made of.
        algorithms: &'a Algorithms,
        /// The job's dimensions: where messages count, not where they go.
        sizes: &'a [u32],
    },
    /// Ranks of a fabric of dimensions; with everything of the schedule but what is communicated.
    Dimensions(&'a Request),
}

/// How long a message between two NPUs is under way beside its bytes.
pub type Latency<'a> = Box<dyn FnMut(NodeId, NodeId) -> Time + 'a>;

/// See the module.
pub(super) struct Lowering<'a> {
    pub(super) graph: &'a StepGraph,
    pub(super) players: &'a Players,
    wiring: Wiring<'a>,
    sizes: Vec<u32>,
    known: BTreeMap<(Operation, Bytes, u32), Parts>,
    pub(super) latency: Option<Latency<'a>>,
    /// What is added to a steady collective's end, by what it does and where, whatever its size.
    added: BTreeMap<(Operation, u32), Time>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(graph: &'a StepGraph, players: &'a Players, wiring: Wiring<'a>) -> Self {
        let sizes = match &wiring {
            Wiring::Graph { sizes, .. } => sizes.to_vec(),
            Wiring::Dimensions(request) => {
                request.fabric.dimensions.iter().map(|dimension| dimension.size).collect()
            }
        };
        let (known, added) = (BTreeMap::new(), BTreeMap::new());
        Self { graph, players, wiring, sizes, known, latency: None, added }
    }

    /// What a collective is made of; nothing where there is nothing to send, or nobody to send it to.
    pub(super) fn parts(
        &mut self,
        operation: Operation,
        bytes: Bytes,
        instance: u32,
    ) -> Result<Parts, SimulateError> {
        let held = &self.players.instances[instance as usize];
        let key = (operation, bytes, held.group.0);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let ranks = u32::try_from(held.ranks.len()).expect("fewer than 2^32 ranks");
        let group = &self.graph.groups()[held.group.index()];
        let parts = if ranks < 2 || bytes == Bytes::default() {
            Vec::new()
        } else {
            match &self.wiring {
                Wiring::Graph { algorithms, .. } => {
                    on_graph(algorithms, group, ranks, operation, bytes)?
                }
                Wiring::Dimensions(request) => {
                    on_dimensions(request, &group.parts, operation, bytes)?
                }
            }
        };
        self.known.insert(key, parts.clone());
        Ok(parts)
    }

    /// Where a rank is.
    pub(super) fn npu(&self, rank: Rank) -> NodeId {
        match &self.wiring {
            Wiring::Graph { places, .. } => places[rank.index()],
            Wiring::Dimensions(_) => NodeId(rank.0),
        }
    }

    /// How many dimensions messages may count on.
    pub(super) fn dimensions(&self) -> usize {
        self.sizes.len()
    }

    /// The dimension on which a message counts: the first on which its ranks differ.
    pub(super) fn dimension(&self, from: Rank, to: Rank) -> u32 {
        let (mut from, mut to) = (from.0, to.0);
        for (d, size) in (0u32..).zip(&self.sizes) {
            if from % size != to % size {
                return d;
            }
            from /= size;
            to /= size;
        }
        0
    }

    /// The ranks that a message of the job passes on its way, the last of them `to`; none where it is
    /// from `to` itself.
    pub(super) fn passed(&self, from: Rank, to: Rank) -> Vec<Rank> {
        if matches!(self.wiring, Wiring::Graph { .. }) {
            return if from == to { Vec::new() } else { vec![to] };
        }
        let mut passed = Vec::new();
        let (mut at, mut stride) = (from.0, 1);
        for size in &self.sizes {
            let place = |rank: u32| rank / stride % size;
            if place(at) != place(to.0) {
                at = at - place(at) * stride + place(to.0) * stride;
                passed.push(Rank(at));
            }
            stride *= size;
        }
        passed
    }

    /// What a steady collective waits for after its last byte; each of its messages waits for
    /// `overhead`.
    pub(super) fn added(
        &mut self,
        operation: Operation,
        instance: u32,
        steady: &Steady,
        overhead: Time,
    ) -> Time {
        if let Some(known) = self.added.get(&(operation, instance)) {
            return *known;
        }
        let Some(mut latency) = self.latency.take() else { return Time::ZERO };
        let ranks = &self.players.instances[instance as usize].ranks;
        let added = steady.added(&mut |from, to| {
            let ends = (self.npu(ranks[from as usize]), self.npu(ranks[to as usize]));
            overhead + latency(ends.0, ends.1)
        });
        self.latency = Some(latency);
        self.added.insert((operation, instance), added);
        added
    }
}
