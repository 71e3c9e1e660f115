//! Asynchronous tensor parallelism.

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::{ActorId, NodeId, Peer, Purpose, StepGraph, Work};
use serde_json::json;

fn cut(tp: u32, asynchronous: bool) -> StepGraph {
    built(job(json!({"tp": tp, "sp": true, "async_tp": asynchronous})), &[tp]).graph
}

fn named(graph: &StepGraph, name: &str) -> NodeId {
    graph.ids().find(|id| graph.name(*id) == name).unwrap_or_else(|| panic!("{name}"))
}

/// Bytes of each message to the next rank.
fn messages(graph: &StepGraph) -> Vec<u64> {
    let of = |id: NodeId| match graph.node(id).work {
        Work::Send { bytes, peer: Peer::Next(1), purpose: Purpose::Tensor, .. } => {
            Some(bytes.count())
        }
        _ => None,
    };
    graph.ids().filter_map(of).collect()
}

#[test]
fn what_is_split_sends_what_it_did_and_computes_as_long() {
    for tp in [2u32, 4, 8] {
        let (plain, split) = (cut(tp, false), cut(tp, true));
        // 8 samples of 32 tokens, 64 wide, in fp16.
        let (buffer, ranks) = (8 * 32 * 64 * 2, u64::from(tp));
        let of = |graph: &StepGraph| -> u64 {
            let all = collectives(graph, ActorId(0)).into_iter();
            all.filter(|c| c.3 == Purpose::Tensor).map(|c| c.2 / ranks * (ranks - 1)).sum()
        };
        let sent = messages(&split);
        assert!(sent.iter().all(|bytes| *bytes == buffer / ranks));
        // Forward a gather and a scatter of each part of a layer, backward a gather; the head's gather.
        assert_eq!(sent.len() as u64, (ranks - 1) * (16 * 3 + 1));
        assert_eq!(sent.iter().sum::<u64>() + of(&split), of(&plain));
        let gathers = |graph: &StepGraph, wanted: Operation| {
            collectives(graph, ActorId(0)).iter().filter(|c| c.1 == wanted).count()
        };
        // The embedding multiplies nothing; the weights' gradients hide what is scattered backward.
        assert_eq!(gathers(&split, Operation::AllGather), 1);
        assert_eq!(gathers(&split, Operation::ReduceScatter), 16 + 1 + 1);
        let [before, now] = [&plain, &split].map(|graph| compute(graph, ActorId(0)).as_ps());
        assert!(before.abs_diff(now) < 10_000, "{before} {now}");
    }
}

#[test]
fn a_product_begins_with_its_own_part_and_sends_what_is_done() {
    let graph = cut(4, true);
    let waits = |node: &str, before: &str| {
        graph.after(named(&graph, node)).contains(&named(&graph, before))
    };
    let name = "layer2.feed_forward forward";
    for k in 1..4 {
        let (product, arriving) =
            (format!("{name} of input {k}"), format!("{name} input {k} receive"));
        assert!(!waits(&arriving, &product), "it arrives beside the product of the part before");
        assert!(waits(&format!("{name} of input {}", k + 1), &arriving));
        let (product, leaving) =
            (format!("{name} of output {k}"), format!("{name} output {k} send"));
        assert!(waits(&leaving, &product));
        let next = named(&graph, &format!("{name} of output {}", k + 1));
        assert!(graph.after(next).iter().all(|id| !graph.name(*id).contains("receive")));
    }
    // The next layer needs the last part and the last sum.
    let next = "layer3.attention forward of input 1";
    assert!(waits(next, &format!("{name} of output 4")));
    assert!(waits(next, &format!("{name} output 3 receive")));
}

#[test]
fn it_needs_what_it_overlaps() {
    let error = refused(job(json!({"tp": 2, "async_tp": true})), &[2]);
    assert_eq!(error.field, "workload.parallelism.async_tp");
    // Tokens are sorted between a gather and the experts.
    let mut value = job(json!({"tp": 2, "sp": true, "async_tp": true}));
    value["model"]["transformer"]["experts"] = json!({"count": 4, "top_k": 1});
    let graph = built(value, &[2]).graph;
    let experts = |id: &NodeId| graph.name(*id).starts_with("layer0.feed_forward");
    let sends =
        graph.ids().filter(experts).filter(|id| matches!(graph.node(*id).work, Work::Send { .. }));
    assert_eq!(sends.count(), 0);
    named(&graph, "layer0.attention forward of input 2");
}

#[test]
fn what_has_arrived_is_summed_behind_the_last_part() {
    let mut value = job(json!({"tp": 4, "sp": true, "async_tp": true}));
    value["compute"] = json!({"device": "a100"});
    let graph = built(value, &[4]).graph;
    let name = "layer2.feed_forward forward of outputs summed";
    let Work::Compute { time } = graph.node(named(&graph, name)).work else { panic!("{name}") };
    // 8 samples of 32 tokens, 64 wide, in fp16, and a quarter of it, at 2,039 GB/s.
    let expected = 1.25 * (8.0 * 32.0 * 64.0 * 2.0) / 2039e9;
    assert!((time.as_s() / expected - 1.0).abs() < 0.01, "{time}");
}

#[test]
fn a_sum_that_nothing_hides_waits_for_both_gradients() {
    let step =
        |beside: bool| built(job(json!({"tp": 4, "sp": true, "overlap_sums": beside})), &[4]).graph;
    let weights = |graph: &StepGraph| {
        graph.ids().filter(|id| graph.name(*id).ends_with("backward of weights")).count()
    };
    let (beside, behind) = (step(true), step(false));
    assert!(weights(&beside) > 0);
    assert_eq!(weights(&behind), 0);
    let of = |graph: &StepGraph| bytes(graph, Purpose::Tensor);
    assert_eq!(of(&beside), of(&behind));
}

#[test]
fn what_is_computed_in_eight_bits_is_gathered_in_eight() {
    let gathered = |recipe: &str| -> u64 {
        let mut value = job(json!({"tp": 4, "sp": true}));
        value["compute"] = json!({"device": "h100", "recipe": recipe});
        let graph = built(value, &[4]).graph;
        let all = collectives(&graph, ActorId(0)).into_iter();
        let of = |c: &(NodeId, Operation, u64, Purpose)| {
            c.1 == Operation::AllGather && graph.name(c.0).starts_with("layer")
        };
        all.filter(of).map(|c| c.2).sum()
    };
    let plain = gathered("plain");
    assert_eq!(gathered("fp8_delayed"), plain / 2);
    // Scales of rows are found behind the gather.
    assert_eq!(gathered("fp8_rowwise"), plain);
}
