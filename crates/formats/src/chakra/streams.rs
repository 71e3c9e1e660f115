//! Streams of accelerators: what runs on one does so in order, whatever else nodes wait for.
//!
//! A trace that was recorded from PyTorch and converted has a launch on the host before every kernel, and
//! often no waits between kernels: those of one `stream` are put in order here ([`Builder::queue`]), and
//! communication that neither waits for another stream nor is waited for is counted. A simulation
//! overlaps it with everything, which the job may not have done.

use allrail_core::{counted, either};
use allrail_workload::graph::{Builder, NodeId, StepGraph, Work};

/// Nodes on the accelerator that say their stream, and whether the trace has nodes of the host.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    /// Ascending by node.
    nodes: Vec<(NodeId, u64)>,
    /// Whether nodes of the host were seen.
    pub(super) hosts: bool,
}

/// Whose nodes a node waits for, or is waited for by, on the accelerator.
#[derive(Clone, Copy, PartialEq)]
enum Met {
    Nobody,
    /// Nodes of one stream.
    Stream(u64),
    /// Of several, or that say none.
    Others,
}

impl Met {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nobody, met) | (met, Self::Nobody) => met,
            (mine, theirs) if mine == theirs => mine,
            _ => Self::Others,
        }
    }
}

impl Streams {
    /// Notes the stream of a node, which comes after all that were noted.
    pub(super) fn put(&mut self, node: NodeId, stream: u64) {
        self.nodes.push((node, stream));
    }

    /// Takes back all nodes from `base` on.
    pub(super) fn truncate(&mut self, base: usize) {
        self.nodes.retain(|(node, _)| node.index() < base);
    }

    /// Puts the nodes of each stream in order.
    pub(super) fn order(&self, builder: &mut Builder) {
        builder.queue(&self.nodes);
    }

    /// What a reader should know of communication that nothing orders; `None` if there is none.
    pub(super) fn warning(&self, graph: &StepGraph) -> Option<String> {
        if !self.hosts {
            return None;
        }
        let communicates = |id: &NodeId| !matches!(graph.node(*id).work, Work::Compute { .. });
        let all = graph.ids().filter(communicates).count();
        let computes =
            graph.ids().any(|id| self.is_on_accelerator(graph, id) && !communicates(&id));
        let free = if computes { self.free(graph) } else { 0 };
        (free > 0).then(|| {
            format!(
                "in the trace, {free} of {} {} for no kernel, and no kernel waits for {} with all \
                 computing, so the overlap is an upper bound and the step's time a lower one",
                counted(all, "communication"),
                either(&free, "waits", "wait"),
                either(&free, "it: it overlaps", "them: they overlap"),
            )
        })
    }

    /// How many communications neither wait for what runs elsewhere on the accelerator nor are waited for.
    fn free(&self, graph: &StepGraph) -> usize {
        let order = graph.in_order();
        let (starts, successors) = graph.successors();
        let after = |id: NodeId| graph.after(id).to_vec();
        let before = |id: NodeId| {
            successors[starts[id.index()] as usize..starts[id.index() + 1] as usize].to_vec()
        };
        let waits = self.meets(graph, order.iter().copied(), after);
        let awaited = self.meets(graph, order.iter().rev().copied(), before);
        let meets_none = |id: &NodeId| {
            let own = self.stream(*id).map_or(Met::Nobody, Met::Stream);
            [waits[id.index()], awaited[id.index()]]
                .iter()
                .all(|met| *met == Met::Nobody || *met == own)
        };
        let communicates = |id: &NodeId| !matches!(graph.node(*id).work, Work::Compute { .. });
        graph.ids().filter(communicates).filter(meets_none).count()
    }

    /// Of each node, the nearest on the accelerator in the direction of `next`.
    fn meets(
        &self,
        graph: &StepGraph,
        order: impl Iterator<Item = NodeId>,
        next: impl Fn(NodeId) -> Vec<NodeId>,
    ) -> Vec<Met> {
        let mut met = vec![Met::Nobody; graph.len()];
        for id in order {
            met[id.index()] = next(id).into_iter().fold(Met::Nobody, |met_so_far, other| {
                met_so_far.and(match self.stream(other) {
                    Some(stream) => Met::Stream(stream),
                    None if self.is_on_accelerator(graph, other) => Met::Others,
                    None => met[other.index()],
                })
            });
        }
        met
    }

    fn stream(&self, id: NodeId) -> Option<u64> {
        let at = self.nodes.binary_search_by_key(&id, |(node, _)| *node).ok()?;
        Some(self.nodes[at].1)
    }

    /// Whether it runs on the accelerator for some time: joins take none, the host's nodes are delays.
    fn is_on_accelerator(&self, graph: &StepGraph, id: NodeId) -> bool {
        match graph.node(id).work {
            Work::Compute { time } => {
                self.stream(id).is_some()
                    || (!graph.is_delay(id) && time > allrail_core::Time::ZERO)
            }
            _ => true,
        }
    }
}
