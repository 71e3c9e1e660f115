//! Laws of a layout: what is cut adds up again, what is sent is received, bubbles are as published.

#![allow(clippy::needless_pass_by_value)]

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_workload::{ActorId, Purpose, Work};
use proptest::prelude::*;
use serde_json::{Value, json};

/// `pieces` layers that take 1 ms forward and `backward` ms backward each, for `m` microbatches.
fn pipeline(parallelism: Value, pieces: u64, microbatches: u64, backward: u64) -> Value {
    let layer = json!({"name": "layer", "repeat": pieces, "flops": 1000, "parameters": 10,
        "output": 5, "forward": format!("{microbatches} ms"),
        "backward": format!("{} ms", microbatches * backward)});
    json!({"model": {"layers": [layer]}, "batch_per_replica": microbatches, "optimizer": "none",
           "parallelism": parallelism})
}

fn milliseconds(value: Value, sizes: &[u32]) -> f64 {
    length(&built(value, sizes).graph).as_us() / 1e3
}

#[test]
fn bubbles_are_those_of_the_papers() {
    for (p, m) in [(1u32, 4u64), (2, 2), (4, 4), (4, 16), (8, 8), (8, 24), (12, 12)] {
        for schedule in ["gpipe", "1f1b"] {
            let cut = json!({"pp": p, "microbatches": m, "schedule": schedule});
            let took = milliseconds(pipeline(cut, u64::from(p), m, 2), &[p]);
            // (m + p − 1) passes of 1 + 2 ms: a bubble of (p − 1) / (m + p − 1).
            assert_eq!(took, 3.0 * (m as f64 + f64::from(p) - 1.0), "{schedule} {p} {m}");
        }
        for v in [2u32, 4] {
            if m % u64::from(p) != 0 {
                continue;
            }
            let cut = json!({"pp": p, "microbatches": m, "schedule": "interleaved",
                             "virtual_stages": v});
            let took = milliseconds(pipeline(cut, u64::from(p * v), m, 2), &[p]);
            // The bubble is v times shorter: (p − 1)(1 + 2) ms, where a stage works m·v·3 ms.
            assert_eq!(took, 3.0 * (m as f64 * f64::from(v) + f64::from(p) - 1.0), "{v} {p} {m}");
        }
        if p % 2 == 0 && m % 2 == 0 {
            let cut = json!({"pp": p, "microbatches": m, "schedule": "chimera"});
            let took = milliseconds(pipeline(cut, u64::from(p), m, 1), &[p]);
            // Li & Hoefler, table 2, with passes of equal time: (p − 2) / (2m + p − 2).
            assert_eq!(took, 2.0 * m as f64 + f64::from(p) - 2.0, "chimera {p} {m}");
        }
        if p > 1 && m >= u64::from(p) {
            let cut = json!({"pp": p, "microbatches": m, "schedule": "zero_bubble"});
            let took = milliseconds(pipeline(cut, u64::from(p), m, 2), &[p]);
            // Qi et al., §2.2, with f, b and w of 1 ms each: a bubble of (p − 1)(f + b − w).
            assert_eq!(took, 3.0 * m as f64 + f64::from(p) - 1.0, "zero_bubble {p} {m}");
        }
        if p % 2 == 0 && m >= 2 * u64::from(p) {
            let cut = json!({"pp": p, "microbatches": m, "schedule": "dual_pipe"});
            let took = milliseconds(pipeline(cut, u64::from(p), m, 2), &[p]);
            // DeepSeek-V3, table 2: (p/2 − 1)(F&B + B − 3W), B of 2 ms with its W of 1 ms, F&B of 3.
            assert_eq!(
                took,
                3.0 * m as f64 + 2.0 * (f64::from(p) / 2.0 - 1.0),
                "dual_pipe {p} {m}"
            );
        }
    }
}

#[test]
fn gradients_carry_every_parameter_once() {
    // In fp16: two bytes a parameter, over all stages; tp cuts all but norms, positions and biases.
    let whole = built(job(json!({})), &[8]).model;
    let replicated: u64 = whole.layers.iter().map(|layer| layer.replicated).sum();
    let cut: u64 = whole.layers.iter().map(|layer| layer.parameters).sum();
    for (parallelism, tp) in [
        (json!({}), 1),
        (json!({"pp": 4}), 1),
        (json!({"tp": 2}), 2),
        (json!({"tp": 2, "pp": 2}), 2),
        (json!({"tp": 4, "sp": true}), 4),
        (json!({"pp": 2, "schedule": "interleaved", "virtual_stages": 4}), 1),
        (json!({"pp": 4, "schedule": "gpipe", "microbatches": 8}), 1),
    ] {
        let graph = built(job(parallelism.clone()), &[16]).graph;
        let expected = 2 * (cut / tp + replicated);
        assert_eq!(bytes(&graph, Purpose::Data), expected, "{parallelism}");
        let gradients = graph
            .ids()
            .filter(|id| graph.node(*id).tensor.is_some())
            .filter(|id| matches!(graph.node(*id).work, Work::Collective { .. }));
        let places: std::collections::BTreeSet<u32> =
            gradients.filter_map(|id| graph.node(id).tensor).collect();
        assert_eq!(places.len(), whole.layers.len(), "each layer has its place");
    }
}

#[test]
fn zero_moves_what_the_paper_says() {
    let of = |zero: u32| {
        let graph = built(job(json!({"zero": zero})), &[8]).graph;
        let mut moved = std::collections::BTreeMap::new();
        for (_, operation, bytes, purpose) in collectives(&graph, ActorId(0)) {
            assert_eq!(purpose, Purpose::Data);
            *moved.entry(operation).or_insert(0) += bytes;
        }
        moved
    };
    let parameters = 2 * built(job(json!({})), &[8]).model.parameters();
    assert_eq!(of(0), [(Operation::AllReduce, parameters)].into());
    for zero in [1, 2] {
        let expected = [(Operation::ReduceScatter, parameters), (Operation::AllGather, parameters)];
        assert_eq!(of(zero), expected.into(), "ZeRO {zero}");
    }
    // Gathered before the forward and before the backward pass.
    let expected = [(Operation::ReduceScatter, parameters), (Operation::AllGather, 2 * parameters)];
    assert_eq!(of(3), expected.into());
}

#[test]
fn tensor_parallelism_sums_twice_forward_and_twice_backward_per_layer() {
    let graph = built(job(json!({"tp": 4, "dp": 1})), &[4]).graph;
    // 8 samples of 32 tokens, 64 wide, in fp16; one more each for the embedding and the head.
    let size = 8 * 32 * 64 * 2;
    let sums = collectives(&graph, ActorId(0));
    assert_eq!(sums.len(), 8 * 4 + 2);
    for (_, operation, bytes, purpose) in &sums {
        assert_eq!((*operation, *bytes, *purpose), (Operation::AllReduce, size, Purpose::Tensor));
    }
    // With sequence parallelism each becomes a reduce-scatter, and an all-gather where it is used.
    let graph = built(job(json!({"tp": 4, "dp": 1, "sp": true})), &[4]).graph;
    let count = |operation| {
        let all = collectives(&graph, ActorId(0));
        all.into_iter().filter(|c| c.1 == operation && c.2 == size).count()
    };
    assert_eq!(count(Operation::ReduceScatter), 8 * 4 + 2);
    assert_eq!(count(Operation::AllGather), 8 * 4 + 2);
}

#[test]
fn gradients_of_weights_hide_sums_of_inputs() {
    let graph = built(job(json!({"tp": 2, "dp": 1})), &[2]).graph;
    for (id, ..) in collectives(&graph, ActorId(0)) {
        if !graph.name(id).contains("backward") || graph.name(id).starts_with("head") {
            continue;
        }
        let weights = graph.name(id).to_owned() + " of weights";
        let named = graph.ids().find(|other| graph.name(*other) == weights).expect("it is there");
        assert!(!graph.after(named).contains(&id), "{weights} does not wait for the sum");
        let waits = graph.ids().any(|other| graph.after(other).contains(&id));
        assert!(waits || graph.name(id).starts_with("layer0.attention"), "somebody needs the sum");
    }
}

#[test]
fn experts_exchange_tokens_four_times_per_layer() {
    let mut value = job(json!({"ep": 4, "dp": 2}));
    value["model"]["transformer"]["experts"] = json!({"count": 8, "top_k": 2});
    let built = built(value, &[8]);
    let all = collectives(&built.graph, ActorId(0));
    let exchanges: Vec<_> = all.iter().filter(|c| c.1 == Operation::AllToAll).collect();
    assert_eq!(exchanges.len(), 8 * 4);
    for (_, _, bytes, purpose) in exchanges {
        // Two visits a token.
        assert_eq!((*bytes, *purpose), (2 * 8 * 32 * 64 * 2, Purpose::Expert));
    }
    // Experts are reduced over the two replicas of each, the rest over all eight.
    let experts: u64 =
        built.model.layers.iter().filter_map(|l| l.experts).map(|e| 8 * e.parameters).sum();
    let rest = built.model.parameters() - experts;
    assert_eq!(bytes(&built.graph, Purpose::Data), 2 * (rest + experts / 4));
}

#[test]
fn shards_in_space_exchange_borders_with_both_neighbours() {
    let layers = json!([
        {"name": "a", "flops": 4_000_000, "parameters": 100, "output": 64, "halo": 16},
        {"name": "b", "flops": 4_000_000, "parameters": 100, "output": 64, "halo": 0},
        {"name": "c", "dense": {"inputs": 64, "outputs": 8}, "gathered": 64},
    ]);
    let value = json!({"model": {"layers": layers}, "batch_per_replica": 2, "precision": "fp32",
        "optimizer": "none", "parallelism": {"op": 4},
        "compute": {"peak": "1 GFLOP/s", "efficiency": 1.0}});
    let graph = built(value, &[4, 8]).graph;
    let mut sends = 0;
    for id in graph.ids() {
        if let Work::Send { bytes, group, purpose, .. } = graph.node(id).work {
            assert_eq!((bytes.count(), purpose), (2 * 16 * 4, Purpose::Operator));
            let parts = &graph.groups()[group.index()].parts;
            assert_eq!(parts.iter().map(|part| part.size).product::<u32>(), 2, "a 2×2 grid");
            sends += 1;
        }
    }
    assert_eq!(sends, 2 * 2, "two neighbours, forward and backward");
    let all = collectives(&graph, ActorId(0));
    let of =
        |purpose| -> Vec<_> { all.iter().filter(|c| c.3 == purpose).map(|c| (c.1, c.2)).collect() };
    let gathered = 2 * 64 * 4;
    let expected = [(Operation::AllGather, gathered), (Operation::ReduceScatter, gathered)];
    assert_eq!(of(Purpose::Operator), expected);
    // The dense layer's shards over 8 replicas, the convolutions over all 32 NPUs.
    assert_eq!(of(Purpose::Data).iter().map(|c| c.1).collect::<Vec<_>>(), [520, 400, 400]);
    // Each of four shards computes a quarter: forward 2 × 4e6 FLOPs of two samples.
    let layer = graph.ids().find(|id| graph.name(*id) == "a forward").expect("it is there");
    let Work::Compute { time } = graph.node(layer).work else { panic!("it computes") };
    assert_eq!(time.as_us(), 2_000.0);
}

#[test]
fn embeddings_travel_while_the_bottom_computes() {
    let value = json!({"model": {"dlrm": {"tables": 8, "rows": 8000, "width": 16,
            "bottom": [13, 32, 16], "top": [32, 1]}},
        "batch_per_replica": 64, "parallelism": {},
        "compute": {"device": "a100", "efficiency": 1.0}});
    let graph = built(value, &[8]).graph;
    let named = |name: &str| {
        let computes = |id| matches!(graph.node(id).work, Work::Compute { .. });
        graph.ids().find(|id| graph.name(*id) == name && computes(*id)).expect(name)
    };
    let all = collectives(&graph, ActorId(0));
    let exchanges: Vec<_> = all.iter().filter(|c| c.1 == Operation::AllToAll).collect();
    assert_eq!(exchanges.len(), 2);
    assert!(exchanges.iter().all(|c| c.2 == 64 * 8 * 16 * 2 && c.3 == Purpose::Expert));
    let rows = exchanges[0].0;
    assert!(graph.after(named("interaction forward")).contains(&rows));
    for name in ["bottom.1 forward", "bottom.2 forward"] {
        assert!(!graph.after(named(name)).contains(&rows), "{name} runs beside it");
    }
    let back = exchanges[1].0;
    assert!(graph.after(back).contains(&named("interaction backward")));
    assert!(graph.after(named("embedding backward")).contains(&back));
    // Tables do not travel; the MLPs do.
    assert_eq!(all.iter().filter(|c| c.1 == Operation::AllReduce).count(), 4);
}

#[test]
fn tied_tables_meet_across_the_pipeline() {
    let mut value = job(json!({"pp": 4, "dp": 2}));
    value["model"]["transformer"]["tied"] = json!(true);
    let built = built(value, &[8]);
    let table = 256 * 64 * 2;
    let of = |actor: u32| -> Vec<u64> {
        let sends = built.graph.ids().filter_map(|id| match built.graph.node(id).work {
            Work::Send { bytes, purpose: Purpose::Data, .. }
                if built.graph.node(id).actor == ActorId(actor) =>
            {
                Some(bytes.count())
            }
            _ => None,
        });
        sends.collect()
    };
    assert_eq!([of(0), of(1), of(2), of(3)], [vec![table], vec![], vec![], vec![table]]);
    length(&built.graph);
    // Both ends reduce the table over their replicas.
    assert_eq!(bytes(&built.graph, Purpose::Data), 2 * built.model.parameters() + table);
}

#[test]
fn iterations_follow_by_layer_and_by_chain() {
    let graph = built(job(json!({"pp": 2, "dp": 2})), &[4]).graph;
    for (node, before) in graph.carried() {
        assert_eq!(graph.node(*node).actor, graph.node(*before).actor);
    }
    // Every layer's first forward pass waits for its update.
    for (i, layer) in built(job(json!({})), &[1]).model.layers.iter().enumerate() {
        let name = format!("{} update", layer.name);
        let update = graph.ids().find(|id| graph.name(*id) == name).expect("it is updated");
        assert_eq!(graph.node(update).tensor, u32::try_from(i).ok());
        let user = graph.carried().iter().find(|(_, before)| *before == update).expect("used").0;
        assert_eq!(graph.name(user), format!("{} forward 0", layer.name));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is cut how, all NPUs together do the FLOPs of the model, and no pass is lost.
    #[test]
    fn work_is_conserved(
        tp in prop::sample::select(vec![1u32, 2, 4]),
        pp in prop::sample::select(vec![1u32, 2, 4]),
        dp in 1u32..4,
        zero in 0u32..4,
        sp in any::<bool>(),
        schedule in prop::sample::select(vec![
            "gpipe", "1f1b", "interleaved", "chimera", "zero_bubble", "dual_pipe",
        ]),
    ) {
        let cut = json!({"tp": tp, "pp": pp, "dp": dp, "zero": zero, "sp": sp && tp > 1,
                         "microbatches": 8, "schedule": schedule});
        let graph = built(job(cut), &[tp * pp * dp]).graph;
        length(&graph);
        let one = built(job(json!({"microbatches": 8})), &[1]).graph;
        let all: u64 = graph.actors().iter().zip(0..).map(|(actor, i)| {
            prop_assert_eq!(actor.ranks.len() as u32, tp * dp);
            Ok(compute(&graph, ActorId(i)).as_ps() * u64::from(tp))
        }).sum::<Result<u64, TestCaseError>>()?;
        // Times are rounded to a picosecond, node by node.
        let whole = compute(&one, ActorId(0)).as_ps();
        prop_assert!(all.abs_diff(whole) < whole / 1_000_000_000 + 10_000, "{} {}", all, whole);
        // Every rank belongs to one actor.
        let mut ranks: Vec<u32> =
            graph.actors().iter().flat_map(|a| a.ranks.iter().map(|r| r.0)).collect();
        ranks.sort_unstable();
        prop_assert_eq!(ranks, (0..tp * pp * dp).collect::<Vec<_>>());
    }

    /// More cuts never need more memory, and ZeRO's stages each need less or as much.
    #[test]
    fn memory_falls_with_every_cut(
        tp in prop::sample::select(vec![1u32, 2, 4]),
        pp in prop::sample::select(vec![1u32, 2, 4]),
        zero in 0u32..3,
    ) {
        let need = |tp: u32, pp: u32, zero: u32| {
            let mut value = job(json!({"tp": tp, "pp": pp, "dp": 4, "zero": zero,
                                       "microbatches": 8, "schedule": "1f1b"}));
            value["optimizer"] = json!("adam");
            if zero == 3 {
                // A stage of two blocks that has both gathered would hold all, and its shards.
                value["parallelism"]["prefetch"] = json!(0);
            }
            built(value, &[tp * pp * 4]).memory
        };
        let states = |memory: allrail_workload::Memory| {
            let kept = [memory.parameters, memory.gradients, memory.optimizer, memory.gathered];
            kept.map(Bytes::count).iter().sum::<u64>()
        };
        let now = need(tp, pp, zero);
        prop_assert!(need(2 * tp, pp, zero).total() <= now.total());
        prop_assert!(need(tp, 2 * pp, zero).parameters <= now.parameters);
        // A pass has more to do with shards: gradients are on their way to them.
        prop_assert!(states(need(tp, pp, zero + 1)) <= states(now));
    }
}

#[test]
fn memory_of_mixed_precision_adam_is_sixteen_bytes_a_parameter() {
    let mut value = job(json!({}));
    value["optimizer"] = json!("adam");
    let built = built(value.clone(), &[1]);
    let memory = built.memory;
    let states = |memory: allrail_workload::Memory| {
        [memory.parameters, memory.gradients, memory.optimizer]
            .map(Bytes::count)
            .iter()
            .sum::<u64>()
    };
    assert_eq!(states(memory), 16 * built.model.parameters());
    // The shards of ZeRO 3 are the optimizer's copy: again 16 bytes, and none twice.
    let mut sharded = value.clone();
    sharded["parallelism"] = json!({"zero": 3, "dp": 4});
    let of = |value: Value| crate::common::built(value, &[4]).memory;
    assert_eq!(states(of(sharded.clone())), 4 * built.model.parameters());
    sharded["gradient_precision"] = json!("fp32");
    assert_eq!(states(of(sharded)), 4 * built.model.parameters());
    // Sums that lie apart are there beside what is added to them.
    let mut apart = value.clone();
    apart["gradient_precision"] = json!("fp32");
    let joint = of(apart.clone()).gradients.count();
    apart["parallelism"]["separate_sums"] = json!(true);
    assert_eq!(of(apart).gradients.count(), joint / 4 * 6);
    value["precision"] = json!("fp32");
    let full = crate::common::built(value, &[1]).memory;
    assert_eq!(states(full), 16 * built.model.parameters());
    // GPipe keeps all microbatches, 1F1B as many as there are stages.
    let kept = |schedule: &str| {
        let cut = json!({"pp": 2, "microbatches": 8, "schedule": schedule});
        crate::common::built(job(cut), &[2]).memory.activations.count()
    };
    assert!(kept("gpipe") >= 4 * kept("1f1b") / 2 && kept("gpipe") > kept("1f1b"));
}

#[test]
fn a_layout_that_does_not_fit_is_said_not_to() {
    let mut value = job(json!({}));
    value["compute"]["memory"] = json!("1 MB");
    let memory = built(value.clone(), &[1]).memory;
    assert_eq!(memory.fits(), Some(false));
    assert!(memory.words().contains("does not fit"), "{}", memory.words());
    // Fragmentation is no reason: what is held in vain is given back.
    value["compute"]["memory"] = json!(format!("{} B", memory.needed().count()));
    let exact = built(value.clone(), &[1]).memory;
    assert!(exact.total() > exact.needed() && exact.fits() == Some(true), "{exact:?}");
    value["compute"]["memory"] = json!("1 MB");
    value["compute"]["must_fit"] = json!(true);
    assert_eq!(refused(value, &[1]).field, "workload.compute.must_fit");
    assert_eq!(built(job(json!({})), &[1]).memory.fits(), None);
}

#[test]
fn a_stage_that_waits_for_its_messages_computes_nothing_beside_them() {
    for (overlap, waits) in [(true, false), (false, true)] {
        let cut = json!({"pp": 2, "microbatches": 4, "overlap_messages": overlap});
        let graph = built(pipeline(cut, 2, 4, 2), &[2]).graph;
        let sends: Vec<_> =
            graph.ids().filter(|id| matches!(graph.node(*id).work, Work::Send { .. })).collect();
        assert_eq!(sends.len(), 8);
        let computes =
            |id: &allrail_workload::NodeId| matches!(graph.node(*id).work, Work::Compute { .. });
        // Behind each its stage still has a pass, or its optimizer's step.
        let waited = sends
            .iter()
            .filter(|send| graph.ids().filter(computes).any(|id| graph.after(id).contains(send)));
        assert_eq!(waited.count(), if waits { 8 } else { 0 });
    }
}

#[test]
fn a_tensor_group_sends_an_output_once_and_gathers_it() {
    let messages = |scattered: bool| {
        let cut = json!({"pp": 2, "tp": 4, "microbatches": 2, "scatter_messages": scattered});
        let graph = built(job(cut), &[8]).graph;
        let mut found = (0, 0);
        for id in graph.ids() {
            match graph.node(id).work {
                Work::Send { bytes, .. } => found.0 += bytes.count(),
                Work::Collective { operation: Operation::AllGather, bytes, .. } => {
                    found.1 += bytes.count();
                }
                _ => {}
            }
        }
        found
    };
    let (whole, none) = messages(false);
    assert_eq!(none, 0);
    assert_eq!(messages(true), (whole / 4, whole));
}
