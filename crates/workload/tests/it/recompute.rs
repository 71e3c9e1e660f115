//! Activation recomputation, and stages that are not even.

#![allow(clippy::needless_pass_by_value)]

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::{ActorId, Purpose};
use serde_json::{Value, json};

/// Layers that take 1 ms forward and 2 ms backward, a microbatch.
fn pipeline(parallelism: Value, layers: u64, microbatches: u64) -> Value {
    let layer = json!({"name": "layer", "repeat": layers, "flops": 1000, "parameters": 10,
        "output": 5, "forward": format!("{microbatches} ms"),
        "backward": format!("{} ms", 2 * microbatches)});
    json!({"model": {"layers": [layer]}, "batch_per_replica": microbatches, "optimizer": "none",
           "parallelism": parallelism})
}

fn milliseconds(value: Value, sizes: &[u32]) -> f64 {
    length(&built(value, sizes).graph).as_us() / 1e3
}

fn transformer(layers: u32, parallelism: Value) -> Value {
    let mut value = job(parallelism);
    value["model"]["transformer"]["layers"] = json!(layers);
    value
}

/// Layers of the model on each stage: attention parts are counted.
fn stages(value: Value, sizes: &[u32]) -> Vec<usize> {
    let graph = built(value, sizes).graph;
    let of = |actor: usize| {
        let stands = |name: &str| name.contains("attention forward") && name.ends_with(" 0");
        let on = |id: &allrail_workload::NodeId| graph.node(*id).actor.index() == actor;
        let named = graph.ids().filter(|id| stands(graph.name(*id)) && on(id));
        named
            .filter(|id| matches!(graph.node(*id).work, allrail_workload::Work::Compute { .. }))
            .count()
    };
    (0..graph.actors().len()).map(of).collect()
}

#[test]
fn a_block_is_computed_once_more_before_its_gradient() {
    for (p, m) in [(1u32, 1u64), (1, 4), (4, 4), (4, 16), (8, 8)] {
        let of = |recompute: &str| {
            let cut = json!({"pp": p, "microbatches": m, "recompute": recompute});
            milliseconds(pipeline(cut, u64::from(p), m), &[p])
        };
        // (m + p − 1) passes of 1 + 2 ms, and of 1 + 1 + 2 ms.
        let passes = m as f64 + f64::from(p) - 1.0;
        assert_eq!((of("none"), of("full")), (3.0 * passes, 4.0 * passes), "{p} {m}");
    }
}

#[test]
fn what_a_block_exchanges_is_exchanged_again_and_parameters_are_not() {
    let count = |cut: Value, wanted: Operation| {
        let graph = built(job(cut), &[4]).graph;
        let all = collectives(&graph, ActorId(0)).into_iter();
        all.filter(|c| c.1 == wanted && c.3 == Purpose::Tensor).count()
    };
    // Eight layers, two sums each forward and two backward; one more each for the embedding and the head.
    let all_reduces = |recompute: &str| {
        count(json!({"tp": 4, "dp": 1, "recompute": recompute}), Operation::AllReduce)
    };
    assert_eq!(all_reduces("none"), 8 * 4 + 2);
    assert_eq!(all_reduces("selective"), 8 * 4 + 2);
    assert_eq!(all_reduces("full"), 8 * 6 + 2);
    let gathers = |recompute: &str| {
        count(json!({"tp": 4, "dp": 1, "sp": true, "recompute": recompute}), Operation::AllGather)
    };
    assert_eq!(gathers("full"), gathers("none") + 8 * 2);
    let gathered = |recompute: &str| {
        bytes(&built(job(json!({"zero": 3, "recompute": recompute})), &[8]).graph, Purpose::Data)
    };
    assert_eq!(gathered("full"), gathered("none"));
}

#[test]
fn flops_that_are_repeated_are_hardware_s_and_not_the_model_s() {
    let of = |recompute: &str| {
        let built = built(job(json!({"tp": 2, "recompute": recompute})), &[8]);
        let ranks = compute(&built.graph, ActorId(0)).as_s();
        let work = built.work.expect("it is known");
        (work.flops.expect("shapes are known"), work.recomputed, ranks)
    };
    let (model, none, plain) = of("none");
    let (full_model, full, full_time) = of("full");
    let (selective_model, selective, selective_time) = of("selective");
    assert_eq!((model, model, none), (full_model, selective_model, 0.0));
    let built = built(job(json!({})), &[1]).model;
    let blocks: u64 = built.layers.iter().filter(|l| l.block).map(|l| l.flops.forward).sum();
    // 32 samples: 8 of a replica, four replicas.
    assert_eq!(full, 32.0 * blocks as f64);
    // 4 · tokens² · width of each of the eight layers.
    assert_eq!(selective, 32.0 * 8.0 * f64::from(4 * 32 * 32 * 64));
    // At 1 GFLOP/s a rank of eight computes an eighth of them.
    let extra = |flops: f64, time: f64| (time - plain - flops / 8.0 / 1e9).abs() < 1e-9;
    assert!(extra(full, full_time), "{full_time} {plain}");
    assert!(extra(selective, selective_time), "{selective_time} {plain}");
}

#[test]
fn inputs_of_blocks_are_kept_and_one_block() {
    let of = |recompute: &str, cut: Value| {
        let mut cut = cut;
        cut["recompute"] = json!(recompute);
        built(job(cut), &[4]).memory.activations.count()
    };
    for cut in [json!({}), json!({"tp": 2}), json!({"tp": 4, "sp": true}), json!({"pp": 4})] {
        let [none, selective, full] = ["none", "selective", "full"].map(|r| of(r, cut.clone()));
        assert_eq!(none, selective, "{cut}");
        assert!(full < none / 2, "{cut}: {full} of {none}");
    }
    let model = built(job(json!({})), &[1]).model;
    // Of the small model on one rank, 8 samples in fp16.
    let kept = |layer: &allrail_workload::models::Layer| 16 * (layer.saved + layer.saved_whole);
    let ends = kept(&model.layers[0]) + kept(model.layers.last().expect("a head"));
    let input = 16 * 32 * 64;
    assert_eq!(of("full", json!({})), ends + 8 * input);
    // What attention gives, and of q, k, v, o and of the two products behind them the first and the third.
    let attention = 3 * input;
    let inner = 16 * 32 * model.layers[2].matrices[0][0];
    assert_eq!(of("alternate", json!({})), ends + 8 * (input + attention + inner));
}

#[test]
fn what_is_computed_again_of_a_block_is_there_while_it_is() {
    let of = |recompute: &str| built(job(json!({"recompute": recompute})), &[1]).memory;
    let [none, alternate, full] = ["none", "alternate", "full"].map(of);
    assert!(full.activations < alternate.activations && alternate.activations < none.activations);
    let model = built(job(json!({})), &[1]).model;
    let kept = |layer: &allrail_workload::models::Layer| 16 * (layer.saved + layer.saved_whole);
    let block: u64 = model.layers[1..3].iter().map(kept).sum();
    let repeated = block - 16 * 32 * 64;
    assert!(full.working.count() + full.loss.count() >= repeated, "{full:?}");
    assert!(full.total() < alternate.total() && alternate.total() < none.total());
}

#[test]
fn layers_that_do_not_divide_are_shared_out_evenly() {
    let of = |more: Value| {
        let mut cut = json!({"pp": 4, "microbatches": 4});
        cut.as_object_mut().expect("a mapping").extend(more.as_object().expect("one").clone());
        cut
    };
    assert_eq!(stages(transformer(10, of(json!({}))), &[4]), [3, 3, 2, 2]);
    assert_eq!(stages(transformer(10, of(json!({"stages": [1, 4, 4, 1]}))), &[4]), [1, 4, 4, 1]);
    // 126 layers over 16 stages are Llama-3-405B's: 128 places, of which the ends take two.
    let cut = json!({"pp": 16, "microbatches": 16, "ends_as_layers": true});
    let mut large = transformer(126, cut);
    large["batch_per_replica"] = json!(16);
    let found = stages(large, &[16]);
    assert_eq!((found[0], found[1], found[15]), (7, 8, 7));
    assert_eq!(found.iter().sum::<usize>(), 126);
    let cut = of(json!({"stages": [3, 3, 3, 3], "ends_as_layers": true}));
    assert_eq!(stages(transformer(10, cut), &[4]), [2, 3, 3, 2]);
    // A place of its own for either end.
    let cut = of(json!({"stages": [1, 2, 2, 1], "ends_as_layers": true}));
    assert_eq!(stages(transformer(4, cut), &[4]), [0, 2, 2, 0]);
    assert_eq!(stages(transformer(2, of(json!({"ends_as_layers": true}))), &[4]), [0, 1, 1, 0]);
}

#[test]
fn stages_that_do_not_add_up_are_refused() {
    for (layers, more, field, why) in [
        (10, json!({"stages": [3, 3, 4]}), "stages", "3 numbers for 4 pieces"),
        (10, json!({"stages": [3, 3, 3, 3]}), "stages", "add up to 12, and the model has 10"),
        (10, json!({"stages": [5, 5, 0, 0]}), "stages", "a stage has no layer"),
        (
            4,
            json!({"stages": [1, 1, 1, 2], "ends_as_layers": true}),
            "stages",
            "6 layers with the emb",
        ),
        (3, json!({}), "pp", "has 3 layers"),
    ] {
        let mut cut = json!({"pp": 4, "microbatches": 4});
        cut.as_object_mut().expect("a mapping").extend(more.as_object().expect("one").clone());
        let error = refused(transformer(layers, cut), &[4]);
        assert_eq!(error.field, format!("workload.parallelism.{field}"), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let mut dense = pipeline(json!({"recompute": "selective"}), 2, 1);
    assert_eq!(refused(dense.clone(), &[1]).field, "workload.parallelism.recompute");
    dense["parallelism"]["recompute"] = json!("full");
    built(dense, &[1]);
}
