//! The presets in `python/allrail/presets/workloads`: their sizes are the published ones, their
//! sources are given, and each can be laid out.

#![allow(clippy::needless_pass_by_value)]

use std::path::Path;

use crate::common::*;
use allrail_collective::Operation;
use allrail_workload::models::{ModelLayers, model};
use allrail_workload::{ActorId, Purpose};
use serde_json::{Value, json};

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/allrail/presets/workloads")
}

fn preset(name: &str) -> Value {
    let path = folder().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    yaml::read(&text)
}

/// A workload of a preset, with its defaults.
fn of(name: &str, parallelism: Value) -> Value {
    let preset = preset(name);
    let mut value = json!({"name": name, "model": preset["model"], "parallelism": parallelism,
                           "compute": {"device": "a100"}});
    for (key, given) in preset["defaults"].as_object().expect("a mapping") {
        value[key] = given.clone();
    }
    value
}

fn layers(name: &str) -> ModelLayers {
    model(&workload(of(name, json!({})))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn all() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the presets are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        // Steps that are written out have no layers; `steps.rs` builds them.
        .filter(|name| !name.starts_with("hammingmesh_"))
        .collect();
    names.sort();
    names
}

#[test]
fn sizes_are_the_published_ones() {
    // (name, parameters, multiply-adds of a forward pass, accepted either side)
    let cases: &[(&str, f64, Option<f64>, f64)] = &[
        ("resnet50", 25.557e6, Some(4.09e9), 0.002),
        ("resnet152", 60.193e6, Some(11.51e9), 0.002),
        ("vgg16", 138.358e6, Some(15.47e9), 0.002),
        ("gnmt", 278e6, None, 0.01),
        ("transformer_base", 65e6, None, 0.035),
        ("transformer_big", 213e6, None, 0.01),
        ("bert_large", 336.2e6, None, 0.001),
        ("gpt3_175b", 174.6e9, None, 0.001),
        ("transformer_1t", 1_008e9, None, 0.001),
        ("cosmoflow", 8.9076e6, None, 0.001),
        ("stemdl_fc_densenet", 220e6, None, 0.005),
        // Tables of 187.8 M rows of 128, and the MLPs.
        ("dlrm", 187_767_399.0 * 128.0 + 2.37e6, None, 0.0001),
        // Attention and embeddings of GPT-3, and 96 × 16 experts of 113 M.
        ("gpt3_moe", 232.6e9, None, 0.002),
    ];
    assert_eq!(cases.len(), all().len());
    for (name, parameters, multiply_adds, within) in cases {
        let model = layers(name);
        let near = |ours: f64, published: f64| (ours / published - 1.0).abs() <= *within;
        let ours = model.parameters() as f64;
        assert!(near(ours, *parameters), "{name}: {ours:e} parameters, published {parameters:e}");
        if let Some(published) = multiply_adds {
            let ours = model.forward_flops() as f64 / 2.0;
            assert!(near(ours, *published), "{name}: {ours:e} multiply-adds, {published:e}");
        }
    }
}

#[test]
fn torchvisions_counts_to_the_last_parameter() {
    for (name, parameters) in
        [("resnet50", 25_557_032), ("resnet152", 60_192_808), ("vgg16", 138_357_544)]
    {
        assert_eq!(layers(name).parameters(), parameters, "{name}");
    }
}

#[test]
fn transformers_have_the_flops_of_megatrons_formula() {
    for (name, l, h, vocabulary) in
        [("gpt3_175b", 96.0, 12288.0, 50257.0), ("transformer_1t", 128.0, 25600.0, 51200.0)]
    {
        let s = 2048.0;
        let formula = 72.0 * s * l * h * h * (1.0 + s / (6.0 * h) + vocabulary / (12.0 * l * h));
        let ours = layers(name).flops() as f64;
        assert!((ours / formula - 1.0).abs() < 1e-9, "{name}: {ours:e}, formula {formula:e}");
    }
}

#[test]
fn every_number_has_a_source_and_every_preset_runs() {
    for name in all() {
        let preset = preset(&name);
        assert_eq!(preset["name"], json!(name));
        assert_eq!(preset["schema_version"], json!(1));
        let sources = preset["sources"].as_object().expect("sources");
        assert!(sources.contains_key("batch_per_replica"), "{name}");
        assert!(sources.values().all(|text| text.as_str().is_some_and(|t| t.len() > 8)), "{name}");
        let built = built(of(&name, json!({})), &[4]);
        assert!(!built.graph.is_empty(), "{name}");
        length(&built.graph);
    }
}

#[test]
fn gpt3_sends_what_hammingmesh_counts() {
    // 25,165,824 elements of 4 bytes: its all-reduces over 4 shards and its sends.
    let mut value = of("gpt3_175b", json!({"tp": 4, "pp": 96}));
    value["precision"] = json!("fp32");
    value["batch_per_replica"] = json!(96);
    let graph = built(value, &[4, 96]).graph;
    let inner = collectives(&graph, ActorId(50));
    let sums: Vec<_> = inner.iter().filter(|c| c.3 == Purpose::Tensor).collect();
    assert_eq!(sums.len(), 96 * 4);
    assert!(sums.iter().all(|c| c.1 == Operation::AllReduce && c.2 == 4 * 25_165_824));
    // 12 h² parameters a layer; its gradient buffer there is a 32nd of them, biases aside.
    let layer = &layers("gpt3_175b").layers[3..5];
    let ours = layer.iter().map(|part| part.parameters).sum::<u64>() as f64 / 32.0;
    assert!((ours / 56_623_104.0 - 1.0).abs() < 1e-4, "{ours}");
}

#[test]
fn experts_of_gpt3_exchange_what_hammingmesh_counts() {
    let graph = built(of("gpt3_moe", json!({"ep": 16})), &[16]).graph;
    let all = collectives(&graph, ActorId(0));
    let exchanges: Vec<u64> =
        all.iter().filter(|c| c.1 == Operation::AllToAll).map(|c| c.2).collect();
    assert_eq!(exchanges.len(), 96 * 4);
    assert!(exchanges.iter().all(|bytes| *bytes == 100_663_296));
}

#[test]
fn cosmoflows_gradients_and_borders_are_hammingmeshs() {
    let graph = built(of("cosmoflow", json!({"op": 4})), &[4, 256]).graph;
    let all = collectives(&graph, ActorId(0));
    let gradients: Vec<u64> =
        all.iter().filter(|c| c.1 == Operation::AllReduce).map(|c| c.2 / 4).collect();
    let dense: u64 = gradients[..3].iter().sum();
    assert_eq!(dense, 1_050_737);
    assert_eq!(gradients[3..], [3_539_456, 884_992, 221_312, 55_360, 3_488]);
    let gathered: Vec<u64> =
        all.iter().filter(|c| c.1 == Operation::AllGather).map(|c| c.2 / 4).collect();
    assert_eq!(gathered, [65_536, 256, 128]);
}

#[test]
fn recurrent_layers_read_their_weights_per_step_and_not_per_sample() {
    let forward = |batch: u32| {
        let mut value = of("gnmt", json!({}));
        value["batch_per_replica"] = json!(batch);
        value["compute"]["efficiency"] = json!(0.5);
        let graph = built(value, &[1]).graph;
        let named = graph.ids().find(|id| graph.name(*id) == "encoder.2 forward").expect("a layer");
        match graph.node(named).work {
            allrail_workload::Work::Compute { time } => time.as_us(),
            other => panic!("{other:?}"),
        }
    };
    // One sample: 50 times 12.6 M weights of 2 bytes at 2,039 GB/s, and activations.
    assert!((forward(1) / (50.0 * 12.583e6 * 2.0 / 2.039e6) - 1.0).abs() < 0.01, "{}", forward(1));
    // 512 samples: 2 FLOPs for each weight, step and sample at 156 TFLOP/s.
    let flops = 2.0 * 12.583e6 * 50.0 * 512.0;
    assert!((forward(512) / (flops / 156e6) - 1.0).abs() < 0.01, "{}", forward(512));
}

#[test]
fn tables_are_updated_where_they_were_read() {
    let graph = built(of("dlrm", json!({})), &[8]).graph;
    let update = graph.ids().find(|id| graph.name(*id) == "embedding update").expect("an update");
    let allrail_workload::Work::Compute { time } = graph.node(update).work else {
        panic!("a time")
    };
    // 512 samples × 26 rows of 128: gradient 2, and state 12 and parameter 2 twice, at 2,039 GB/s.
    let bytes = 512.0 * 26.0 * 128.0 * 30.0;
    assert!((time.as_us() / (bytes / 2.039e6) - 1.0).abs() < 1e-3, "{}", time.as_us());
}
