//! Jobs of fewer ranks than the fabric has NPUs, and on fabrics that are no product of dimensions.

#![allow(clippy::needless_pass_by_value)]

use std::ops::ControlFlow;

use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

fn attempt(
    fabric: Value,
    network_model: &str,
    parallelism: Value,
) -> Result<TrainingResult, SimulateError> {
    let tree = json!({"schema_version": 1, "fabric": fabric, "network_model": network_model,
        "schedule": {"chunks": 2}, "workload": {
            "model": {"transformer": {"layers": 2, "hidden": 64, "heads": 8, "vocabulary": 256,
                                      "sequence_length": 32, "tied": true}},
            "batch_per_replica": 8, "parallelism": parallelism, "iterations": 2,
            "compute": {"peak": "10 TFLOP/s", "memory_bandwidth": "1 TB/s"}}});
    let scenario = TrainingScenario::from_json(&tree.to_string())?;
    simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

fn run(fabric: Value, network_model: &str, parallelism: Value) -> TrainingResult {
    let shown = format!("{fabric} {network_model} {parallelism}");
    attempt(fabric, network_model, parallelism).unwrap_or_else(|error| panic!("{shown}: {error}"))
}

fn refused(fabric: Value, network_model: &str, parallelism: Value) -> [String; 4] {
    let report = attempt(fabric, network_model, parallelism).expect_err("refused").report();
    [report.field, report.value, report.why, report.hint]
}

fn of(kind: &str, sizes: &[u32]) -> Value {
    let dimension = |size: &u32| json!({"kind": kind, "size": size, "links": 2, "bandwidth": "100 GB/s", "latency": "1 us"});
    json!({"name": kind, "dimensions": sizes.iter().map(dimension).collect::<Vec<_>>()})
}

/// Five leaves of five NPUs and as many uplinks.
fn tree() -> Value {
    json!({"topology": "fat_tree", "npus": 25, "switch_radix": 10, "levels": 2})
}

fn note(result: &TrainingResult) -> &str {
    result.notes.iter().find(|note| note.contains("are used")).expect("a note")
}

#[test]
fn a_block_of_switches_is_the_fabric_that_has_its_sizes() {
    for network_model in ["dims", "links"] {
        let layout = json!({"tp": 8, "dp": 4});
        let part = run(of("switch", &[8, 128]), network_model, layout.clone());
        let alone = run(of("switch", &[8, 4]), network_model, layout);
        assert_eq!(part.step_time_us, alone.step_time_us, "{network_model}");
        assert_eq!((part.npus, alone.npus), (32, 32));
        assert_eq!(note(&part), "32 of 1024 NPUs are used, 8 × 4 of 8 × 128; the others are idle");
    }
}

#[test]
fn of_a_full_mesh_only_links_among_its_ranks_are_used() {
    for network_model in ["dims", "links"] {
        let part = run(of("fully_connected", &[8]), network_model, json!({"dp": 4}));
        // 3 of the 7 links of 200/7 GB/s each.
        let mut alone = of("fully_connected", &[4]);
        alone["dimensions"][0]["bandwidth"] = json!(format!("{} B/s", 100_000_000_000_u64 * 3 / 7));
        let alone = run(alone, network_model, json!({"dp": 4}));
        assert_eq!(part.step_time_us, alone.step_time_us, "{network_model}");
    }
}

#[test]
fn groups_of_tensor_parallelism_lie_within_a_leaf() {
    for network_model in ["dims", "links", "flows", "packets"] {
        let result = run(tree(), network_model, json!({"tp": 4, "dp": 4}));
        let said = note(&result);
        assert_eq!(
            said, "16 of 25 NPUs are used, 4 × 4 of 5 × 5; the others are idle",
            "{network_model}"
        );
        assert!(result.notes.iter().any(|note| note == "tp 4 on dim1, dp 4 on dim2"));
    }
    // On the cables: no message of tensor parallelism leaves its leaf.
    let result = run(tree(), "flows", json!({"tp": 4, "dp": 1}));
    let between = result.links.iter().find(|class| class.name == "switch to switch");
    assert!(between.is_none_or(|class| class.used.max == 0.0), "{:?}", result.links);
}

const NETWORK_MODELS: [&str; 4] = ["dims", "links", "flows", "packets"];

#[test]
fn what_is_no_block_runs_on_the_first_npus() {
    let layout = json!({"tp": 8, "dp": 3});
    for network_model in NETWORK_MODELS {
        let result = run(tree(), network_model, layout.clone());
        assert_eq!(
            (result.npus, note(&result)),
            (24, "24 of 25 NPUs are used; the others are idle")
        );
        let counted = result.notes.iter().find(|note| note.contains("over cables"));
        assert!(counted.is_some_and(|note| note.contains("no block of 5 × 5")), "{network_model}");
    }
    let [field, value, why, _] = refused(of("switch", &[5, 5]), "dims", layout);
    assert_eq!((field.as_str(), value.as_str()), ("workload.parallelism.dp", "tp 8 × dp 3"));
    assert!(why.contains("no block of 5 × 5 = 25"), "{why}");
}

#[test]
fn a_topology_without_dimensions_runs_jobs_in_all_network_models() {
    let uneven = json!({"topology": "fat_tree", "npus": 23, "switch_radix": 10, "levels": 2});
    let failed = json!({"topology": "torus", "shape": [3, 3], "failed_nodes": [4]});
    for (fabric, all, layout, why) in [
        (uneven.clone(), 23, json!({"tp": 4, "dp": 5}), "equally full"),
        (uneven.clone(), 23, json!({}), "equally full"),
        (failed, 8, json!({"tp": 2}), "failed"),
    ] {
        let ranks = layout.get("dp").map_or(all, |_| 20);
        for network_model in NETWORK_MODELS {
            let result = run(fabric.clone(), network_model, layout.clone());
            assert_eq!(result.npus, ranks);
            let counted = result.notes.iter().find(|note| note.contains("over cables"));
            assert!(counted.is_some_and(|note| note.contains(why)), "{network_model}");
        }
    }
    let [field, _, _, hint] = refused(uneven, "flows", json!({"tp": 4}));
    assert_eq!(
        (field.as_str(), hint.as_str()),
        ("workload.parallelism.dp", "`dp: 5` leaves the last 3 unused")
    );
}

#[test]
fn a_part_of_a_ring_is_no_ring() {
    let [_, _, why, _] = refused(of("ring", &[8]), "dims", json!({"dp": 4}));
    assert!(why.contains("rings are not cut"), "{why}");
    // Whole rings go, and in network models of cables any part.
    let result = run(of("ring", &[4, 4]), "links", json!({"dp": 4}));
    assert_eq!(note(&result), "4 of 16 NPUs are used, 4 × 1 of 4 × 4; the others are idle");
    let torus = json!({"topology": "torus", "shape": [4, 4]});
    let result = run(torus, "flows", json!({"tp": 2, "dp": 3}));
    assert_eq!(note(&result), "6 of 16 NPUs are used, 2 × 3 of 4 × 4; the others are idle");
    assert!(result.notes.iter().any(|note| note.contains("NPUs of the job, in order")));
}

/// A fabric that is written by its dimensions has cables, too: what is alone on them takes what it takes in `dims`.
#[test]
fn dimensions_are_cables_in_network_models_of_cables() {
    for kind in ["switch", "fully_connected", "ring"] {
        let layout = json!({"tp": 4, "dp": 4});
        let times = NETWORK_MODELS.map(|network_model| {
            run(of(kind, &[4, 4]), network_model, layout.clone()).step_time_us
        });
        for time in &times[1..] {
            assert!((time / times[0] - 1.0).abs() < 0.1, "{kind}: {times:?}");
        }
        // A part of it is where it is in the whole.
        let part = run(of(kind, &[4, 8]), "flows", json!({"tp": 2, "dp": 4}));
        assert!(note(&part).contains("8 of 32"), "{:?}", part.notes);
    }
}

#[test]
fn a_job_of_one_rank_only_computes() {
    for (fabric, network_model) in [
        (of("switch", &[8, 4]), "dims"),
        (of("fully_connected", &[8]), "links"),
        (tree(), "flows"),
        (tree(), "packets"),
    ] {
        let result = run(fabric, network_model, json!({"dp": 1}));
        assert_eq!((result.npus, result.exposed_communication_us), (1, 0.0), "{network_model}");
        assert_eq!(result.step_time_us, result.compute_us);
    }
}

#[test]
fn places_of_a_map_are_those_of_the_block() {
    let map = json!({"tp": 4, "dp": 4, "map": {"tp": ["1[0:2]", "0[0:2]"]}});
    let result = run(of("switch", &[8, 8]), "dims", map);
    assert!(note(&result).contains("8 × 2 of 8 × 8"));
    let beyond = json!({"tp": 4, "dp": 4, "map": {"tp": ["1[0:4]"]}});
    let [field, ..] = refused(of("switch", &[8, 8]), "dims", beyond);
    assert_eq!(field, "workload.parallelism.map.tp");
}
