//! Context parallelism: samples cut by their tokens.

#![allow(clippy::needless_pass_by_value)]

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::{ActorId, NodeId, Peer, Purpose, StepGraph, Work};
use serde_json::{Value, json};

/// Of the small transformer, of 8 samples: keys and values of all tokens, in bytes.
const KEYS: u64 = 8 * 32 * 2 * 64 * 2;

/// (name, bytes) of messages to the next rank.
fn round(graph: &StepGraph) -> Vec<(String, u64)> {
    let of = |id: NodeId| match graph.node(id).work {
        Work::Send { bytes, peer: Peer::Next(1), purpose: Purpose::Tensor, .. } => {
            Some((graph.name(id).to_owned(), bytes.count()))
        }
        _ => None,
    };
    graph.ids().filter_map(of).collect()
}

#[test]
fn keys_and_values_pass_round_beside_attention() {
    for (cp, tp) in [(2u64, 1u64), (4, 1), (8, 1), (4, 2)] {
        let graph = built(job(json!({"cp": cp, "tp": tp})), &[16]).graph;
        let sent = round(&graph);
        let of = |layer: &str, pass: &str| -> Vec<u64> {
            let start = format!("{layer}.attention {pass}");
            sent.iter().filter(|(name, _)| name.starts_with(&start)).map(|(_, b)| *b).collect()
        };
        let block = KEYS / cp / tp;
        let mut back = vec![2 * block; cp as usize];
        (back[0], back[cp as usize - 1]) = (block, block);
        for layer in ["layer0", "layer7"] {
            assert_eq!(of(layer, "forward"), vec![block; cp as usize - 1], "{cp} {tp}");
            assert_eq!(of(layer, "backward"), back, "{cp} {tp}");
        }
        assert_eq!(sent.len() as u64, 8 * (2 * cp - 1), "no other layer sends");
    }
}

#[test]
fn a_block_travels_while_the_one_before_is_attended_to() {
    let graph = built(job(json!({"cp": 4})), &[4]).graph;
    let named = |name: &str| graph.ids().find(|id| graph.name(*id) == name).expect(name);
    let waits = |node: &str, before: &str| graph.after(named(node)).contains(&named(before));
    let forward = "layer3.attention forward";
    let receive = |k: u32| format!("{forward} keys and values {k} receive");
    for k in 1..4u32 {
        let block = format!("{forward} of block {k}");
        assert!(!waits(&receive(k), &block), "it does not wait for the block it passes beside");
        assert!(waits(&format!("{forward} of block {}", k + 1), &receive(k)));
    }
    assert!(waits(&format!("{forward} keys and values 1 send"), forward));
    assert!(waits(&format!("{forward} keys and values 2 send"), &receive(1)));
    let back = "layer3.attention backward";
    let gradient = format!("{back} keys and values 3 send");
    assert!(
        waits(&gradient, &format!("{back} of block 2")),
        "the gradient of a block is behind it"
    );
    assert!(waits(back, &format!("{back} keys and values 4 receive")));
}

#[test]
fn gathered_keys_and_values_are_scattered_once() {
    let cut = json!({"cp": 4, "dp": 1, "context": "all_gather"});
    let graph = built(job(cut), &[4]).graph;
    assert!(round(&graph).is_empty());
    let mut seen = std::collections::BTreeMap::new();
    for (_, operation, bytes, purpose) in collectives(&graph, ActorId(0)) {
        if purpose == Purpose::Tensor {
            assert_eq!(bytes, KEYS);
            *seen.entry(operation).or_insert(0) += 1;
        }
    }
    assert_eq!(seen, [(Operation::AllGather, 16), (Operation::ReduceScatter, 8)].into());
}

/// Work, activations and what crosses a pipeline or a tensor group are cut; parameters are not.
#[test]
fn every_rank_has_its_part_of_the_tokens() {
    let of = |more: Value, npus: u32| {
        let mut value = job(more);
        value["optimizer"] = json!("adam");
        built(value, &[npus])
    };
    for context in ["ring", "all_gather"] {
        for recompute in ["none", "selective", "full"] {
            let cut = |cp: u32| {
                let context = if cp == 1 { "ring" } else { context };
                json!({"cp": cp, "dp": 1, "tp": 2, "pp": 2, "recompute": recompute,
                       "context": context})
            };
            let (one, four) = (of(cut(1), 4), of(cut(4), 16));
            for actor in [ActorId(0), ActorId(1)] {
                let [whole, part] = [&one, &four].map(|b| compute(&b.graph, actor).as_ps());
                assert!((4 * part).abs_diff(whole) < whole / 1_000_000 + 10_000, "{part} {whole}");
            }
            // Of one stage: with several, the fullest may be another one.
            let alone = |cp: u32| {
                let mut cut = cut(cp);
                cut["pp"] = json!(1);
                of(cut, 2 * cp).memory
            };
            let [whole, part] = [alone(1), alone(4)];
            assert_eq!(whole.activations.count(), 4 * part.activations.count());
            assert_eq!(whole.parameters, part.parameters);
            let messages = |built: &allrail_workload::Built| -> u64 {
                let graph = &built.graph;
                let of = |id: NodeId| match graph.node(id).work {
                    Work::Send { bytes, purpose: Purpose::Pipeline, .. } => bytes.count(),
                    _ => 0,
                };
                graph.ids().map(of).sum()
            };
            assert_eq!(messages(&one), 4 * messages(&four));
            assert_eq!(one.work.expect("known").flops, four.work.expect("known").flops);
        }
    }
}

#[test]
fn kernels_of_a_part_of_the_tokens_take_part_of_the_time() {
    let of = |cp: u32| {
        let mut value = job(json!({"cp": cp, "dp": 1}));
        value["model"] = json!({"transformer": {"layers": 2, "hidden": 4096, "heads": 32,
            "vocabulary": 32000, "sequence_length": 8192}});
        value["batch_per_replica"] = json!(1);
        value["compute"] = json!({"device": "h100"});
        compute(&built(value, &[cp]).graph, ActorId(0)).as_s()
    };
    // No less than its share, and a tenth of the whole for launches and waves at most.
    let (whole, part) = (of(1), of(4));
    assert!(part > 0.249 * whole && part < 0.35 * whole, "{part} {whole}");
}

#[test]
fn gradients_and_shards_are_over_data_and_context_ranks() {
    let sizes = |cut: Value| {
        let graph = built(job(cut), &[16]).graph;
        let of = |id: NodeId| match graph.node(id).work {
            Work::Collective { group, purpose: Purpose::Data, .. } => {
                let parts = &graph.groups()[group.index()].parts;
                Some(parts.iter().map(|part| part.size).product::<u32>())
            }
            _ => None,
        };
        graph.ids().filter_map(of).collect::<std::collections::BTreeSet<u32>>()
    };
    assert_eq!(sizes(json!({"cp": 4, "tp": 2})), [8].into());
    assert_eq!(sizes(json!({"cp": 4, "tp": 2, "zero": 1})), [8].into());
    let optimizer = |cp: u32, dp: u32| {
        let mut value = job(json!({"cp": cp, "dp": dp, "zero": 1}));
        value["optimizer"] = json!("adam");
        built(value, &[cp * dp]).memory.optimizer
    };
    assert_eq!(optimizer(4, 2), optimizer(1, 8));
}

/// Gathered keys and values are in memory, in a backward pass with their gradients; a ring has two blocks of them.
#[test]
fn what_attention_sees_of_other_ranks_is_in_memory() {
    let passes = |context: &str| {
        let cut = json!({"cp": 8, "dp": 1, "context": context, "recompute": "full"});
        let held = built(job(cut), &[8]).memory;
        held.activations.count() + held.working.count() + held.loss.count()
    };
    // Less, where the ring is fullest at another moment.
    let more = passes("all_gather") - passes("ring");
    assert!(more > 0 && more <= 2 * (KEYS - 2 * KEYS / 8), "{more}");
}

/// Llama-3.1-405B on 262,144 tokens, as torchtitan has trained it over eight ranks of context.
#[test]
fn the_longest_published_samples_are_counted() {
    let mut value = job(json!({"tp": 8, "cp": 8, "pp": 8, "dp": 1, "microbatches": 8}));
    value["model"] = json!({"transformer": {"layers": 126, "hidden": 16384, "heads": 128,
        "kv_heads": 8, "feed_forward": 53248, "gated": true, "vocabulary": 128_256}});
    value["sequence_length"] = json!(262_144);
    value["compute"] = json!({"device": "h100"});
    let built = built(value, &[8, 64]);
    let flops = built.model.flops() as f64;
    // 6 a parameter and token, and attention's 12 · layers · tokens² · width.
    let tokens = 262_144.0;
    let table = 128_256.0 * 16384.0;
    let expected = 6.0 * (built.model.parameters() as f64 - table) * tokens
        + 12.0 * 126.0 * tokens * tokens * 16384.0;
    assert!((flops / expected - 1.0).abs() < 1e-3, "{flops} {expected}");
}

#[test]
fn layouts_that_cannot_cut_tokens_are_refused() {
    for (cut, field, why) in [
        (json!({"cp": 32, "dp": 1}), "cp", "two equal parts of the 32 tokens"),
        (json!({"context": "all_gather"}), "context", "on one rank"),
        (json!({"cp": 0}), "cp", "at least 1"),
    ] {
        let error = refused(job(cut), &[32]);
        assert_eq!(error.field, format!("workload.parallelism.{field}"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut dense = job(json!({"cp": 2}));
    dense["model"] = json!({"layers": [{"name": "a", "dense": {"inputs": 8, "outputs": 8}}]});
    assert_eq!(refused(dense, &[2]).field, "workload.parallelism.cp");
}

#[test]
fn keys_that_are_copied_to_every_head_travel_so() {
    let sent = |repeated: bool| -> u64 {
        let mut value = job(json!({"cp": 4, "tp": 2, "dp": 1}));
        value["model"] = json!({"transformer": {"layers": 2, "hidden": 64, "heads": 8, "kv_heads": 2,
            "vocabulary": 96, "sequence_length": 32, "repeated_keys": repeated}});
        round(&built(value, &[8]).graph).iter().map(|(_, bytes)| bytes).sum()
    };
    assert_eq!(sent(true), 4 * sent(false));
}
