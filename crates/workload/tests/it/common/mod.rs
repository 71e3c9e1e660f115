//! Workloads from JSON, and a plain evaluator of step graphs.

#![allow(clippy::needless_pass_by_value)]

pub(crate) mod yaml;

use std::collections::BTreeMap;

use allrail_core::{FieldError, Time};
use allrail_workload::spec::Workload;
use allrail_workload::{ActorId, Built, NodeId, Pass, Peer, Purpose, StepGraph, Work, build};
use serde_json::{Value, json};

/// A workload from JSON.
pub(crate) fn workload(value: Value) -> Workload {
    serde_json::from_value(value).expect("a workload")
}

/// It laid out.
pub(crate) fn built(value: Value, sizes: &[u32]) -> Built {
    build(&workload(value), sizes).unwrap_or_else(|error| panic!("{error}; {}", error.hint))
}

/// Why it cannot be.
pub(crate) fn refused(value: Value, sizes: &[u32]) -> FieldError {
    match serde_json::from_value(value) {
        Ok(workload) => build(&workload, sizes).map(|_| ()).expect_err("it is refused"),
        Err(error) => FieldError::new("", "", error.to_string(), ""),
    }
}

/// A small transformer: 8 layers, width 64, 8 heads, 32 tokens.
pub(crate) fn small() -> Value {
    json!({"transformer": {"layers": 8, "hidden": 64, "heads": 8, "vocabulary": 256,
                           "positions": 32, "sequence_length": 32}})
}

/// `small` over some degrees; no memory roof, efficiency 1, updates take no time.
pub(crate) fn job(parallelism: Value) -> Value {
    json!({"model": small(), "batch_per_replica": 8, "parallelism": parallelism, "optimizer": "none",
           "compute": {"peak": "1 GFLOP/s", "efficiency": 1.0}})
}

/// (node, operation, bytes, purpose) of an actor's collectives.
pub(crate) fn collectives(
    graph: &StepGraph,
    actor: ActorId,
) -> Vec<(NodeId, allrail_collective::Operation, u64, Purpose)> {
    let of = |id| match graph.node(id).work {
        Work::Collective { operation, bytes, purpose, .. } if graph.node(id).actor == actor => {
            Some((id, operation, bytes.count(), purpose))
        }
        _ => None,
    };
    graph.ids().filter_map(of).collect()
}

/// Bytes of the collectives of a purpose, over all actors.
pub(crate) fn bytes(graph: &StepGraph, purpose: Purpose) -> u64 {
    let of = |id| match graph.node(id).work {
        Work::Collective { bytes, purpose: p, .. } if p == purpose => bytes.count(),
        _ => 0,
    };
    graph.ids().map(of).sum()
}

/// Compute time of an actor, updates aside.
pub(crate) fn compute(graph: &StepGraph, actor: ActorId) -> Time {
    let of = |id| match (graph.node(id).work, graph.node(id)) {
        (Work::Compute { time }, node) if node.actor == actor && node.pass != Pass::Update => time,
        _ => Time::ZERO,
    };
    graph.ids().map(of).sum()
}

/// When each node of one iteration ends if communication takes no time: the longest path over
/// dependencies, chains of compute and messages. Nodes are in an order that allows one sweep.
pub(crate) fn ends(graph: &StepGraph) -> Vec<Time> {
    let mut ends = vec![Time::ZERO; graph.len()];
    let mut sent: BTreeMap<(ActorId, ActorId), Vec<Time>> = BTreeMap::new();
    let mut taken: BTreeMap<(ActorId, ActorId), usize> = BTreeMap::new();
    let at = |peer: Peer| match peer {
        Peer::At(position) => Some(ActorId(position)),
        Peer::Next(_) => None,
    };
    for id in graph.ids() {
        let node = graph.node(id);
        assert!(graph.after(id).iter().all(|before| *before < id), "a sweep is enough");
        let start = graph.after(id).iter().map(|before| ends[before.index()]).max();
        let start = start.unwrap_or(Time::ZERO);
        ends[id.index()] = match node.work {
            Work::Compute { time } => start + time,
            Work::Collective { .. } => start,
            Work::Send { peer, .. } => {
                if let Some(other) = at(peer) {
                    sent.entry((node.actor, other)).or_default().push(start);
                }
                start
            }
            Work::Receive { peer, .. } => match at(peer) {
                Some(other) => {
                    let next = taken.entry((other, node.actor)).or_default();
                    let arrived = sent[&(other, node.actor)][*next];
                    *next += 1;
                    start.max(arrived)
                }
                None => start,
            },
        };
    }
    for (pair, times) in &sent {
        assert_eq!(taken.get(pair), Some(&times.len()), "every send has its receive");
    }
    ends
}

/// How long an iteration takes if communication takes no time.
pub(crate) fn length(graph: &StepGraph) -> Time {
    ends(graph).into_iter().max().expect("a node")
}
