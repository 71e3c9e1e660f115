//! Every layout of a model runs to its end, in classes of ranks and rank by rank; with no time for
//! bytes, pipelines take what the papers' bubbles say.

#![allow(clippy::needless_pass_by_value)]

use std::ops::ControlFlow;

use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

fn switches(sizes: &[u32]) -> Value {
    let dimension = |size: &u32| {
        json!({"kind": "switch", "size": size, "links": 1, "bandwidth": "100 GB/s",
               "latency": "0 ns"})
    };
    json!({"name": "switches", "dimensions": sizes.iter().map(dimension).collect::<Vec<_>>()})
}

fn try_run(
    workload: &Value,
    sizes: &[u32],
    network_model: &str,
    what_if: Option<&str>,
) -> Result<TrainingResult, SimulateError> {
    let mut tree = json!({"schema_version": 1, "fabric": switches(sizes), "workload": workload,
        "network_model": network_model, "schedule": {"chunks": 4}});
    if let Some(name) = what_if {
        tree["what_if"] = json!(name);
    }
    let scenario = TrainingScenario::from_json(&tree.to_string())?;
    simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

fn run(workload: &Value, sizes: &[u32], network_model: &str) -> TrainingResult {
    try_run(workload, sizes, network_model, None)
        .unwrap_or_else(|error| panic!("{workload}: {error}"))
}

fn transformer(parallelism: Value) -> Value {
    json!({"model": {"transformer": {"layers": 8, "hidden": 64, "heads": 8, "vocabulary": 256,
                                     "sequence_length": 32, "tied": true}},
        "batch_per_replica": 8, "parallelism": parallelism, "iterations": 3,
        "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"}})
}

fn experts(parallelism: Value) -> Value {
    let mut value = transformer(parallelism);
    value["model"]["transformer"]["experts"] = json!({"count": 8, "top_k": 2});
    value
}

fn images(parallelism: Value) -> Value {
    let convolution = |halo: u64| {
        json!({"name": "conv", "repeat": 3, "halo": halo, "convolution":
            {"kernel": [3, 3], "channels": [8, 8], "output": [16, 16]}})
    };
    let dense = json!({"name": "dense", "dense": {"inputs": 2048, "outputs": 8}, "gathered": 2048});
    json!({"model": {"layers": [convolution(128), convolution(0), dense]}, "batch_per_replica": 4,
        "parallelism": parallelism, "iterations": 3, "compute": {"device": "v100"}})
}

fn clicks(parallelism: Value) -> Value {
    json!({"model": {"dlrm": {"tables": 8, "rows": 1000, "width": 16, "bottom": [13, 32, 16],
                              "top": [32, 1]}},
        "batch_per_replica": 64, "parallelism": parallelism, "iterations": 3,
        "compute": {"device": "a100"}})
}

fn layouts() -> Vec<Value> {
    vec![
        transformer(json!({})),
        transformer(json!({"zero": 1})),
        transformer(json!({"zero": 2, "tp": 2})),
        transformer(json!({"zero": 3})),
        transformer(json!({"tp": 4})),
        transformer(json!({"tp": 4, "sp": true, "pp": 2})),
        transformer(json!({"pp": 4, "schedule": "gpipe"})),
        transformer(json!({"pp": 4, "microbatches": 8})),
        transformer(json!({"pp": 4, "schedule": "interleaved", "virtual_stages": 2})),
        transformer(json!({"pp": 4, "schedule": "chimera", "microbatches": 8, "zero": 1})),
        transformer(json!({"pp": 2, "schedule": "chimera", "tp": 2})),
        transformer(json!({"tp": 2, "pp": 2, "zero": 3,
                           "map": {"tp": ["0[0:2]"], "pp": ["1[2:4]"]}})),
        experts(json!({"ep": 4})),
        experts(json!({"ep": 2, "tp": 2, "pp": 2, "sp": true, "zero": 1})),
        images(json!({"op": 4})),
        images(json!({"op": 16})),
        clicks(json!({})),
    ]
}

#[test]
fn every_layout_runs_to_its_end() {
    for workload in layouts() {
        let classes = run(&workload, &[4, 4], "dims");
        let ranks = run(&workload, &[4, 4], "links");
        for result in [&classes, &ranks] {
            let parts = result.compute_us + result.exposed_communication_us + result.waiting_us;
            assert!(
                (parts / result.step_time_us - 1.0).abs() < 1e-6,
                "{workload}: {parts} of {}",
                result.step_time_us
            );
        }
        // The same nodes, whoever runs them.
        let difference = (classes.compute_us / ranks.compute_us - 1.0).abs();
        let stages = workload["parallelism"]["pp"].as_u64().unwrap_or(1);
        assert!(difference < 1e-9 || stages > 1, "{workload}: {difference}");
    }
}

#[test]
fn slow_ranks_slow_everyone_alike_in_classes_and_rank_by_rank() {
    for layout in [json!({}), json!({"tp": 2, "pp": 4}), json!({"pp": 4, "zero": 2})] {
        let mut workload = transformer(layout);
        // Slow enough that compute is what everyone waits for.
        workload["compute"]["peak"] = json!("10 GFLOP/s");
        workload["optimizer"] = json!("none");
        let before = run(&workload, &[4, 4], "dims");
        workload["stragglers"] = json!([{"ranks": [6], "factor": 2.0}]);
        let classes = run(&workload, &[4, 4], "dims");
        let ranks = run(&workload, &[4, 4], "links");
        let slower = classes.step_time_us / before.step_time_us;
        assert!((1.3..=2.0).contains(&slower), "{workload}: {slower}");
        let ratio = classes.step_time_us / ranks.step_time_us;
        assert!((0.9..1.1).contains(&ratio), "{workload}: {ratio}");
    }
}

/// Messages join ranks over others: the ring of `cp` a slow rank's neighbours' neighbours, the pipeline all of theirs.
#[test]
fn slow_ranks_are_told_apart_whatever_messages_join_them() {
    let powers = [1u32, 2, 4];
    let all = powers.iter().flat_map(|tp| powers.iter().map(move |cp| (*tp, *cp)));
    let all = all.flat_map(|(tp, cp)| powers.iter().map(move |pp| (tp, cp, *pp)));
    for (tp, cp, pp) in all.filter(|(tp, cp, pp)| tp * cp * pp <= 16) {
        let layout = json!({"tp": tp, "cp": cp, "pp": pp, "sp": tp > 1, "microbatches": 4});
        let mut workload = transformer(layout);
        workload["compute"]["peak"] = json!("10 GFLOP/s");
        workload["optimizer"] = json!("none");
        for slow in [
            json!([{"ranks": [6], "factor": 2.0}]),
            json!([{"ranks": [1, 15], "factor": 1.5}, {"ranks": [8], "factor": 2.0}]),
        ] {
            workload["stragglers"] = slow;
            let classes = run(&workload, &[4, 4], "dims");
            let ranks = run(&workload, &[4, 4], "links");
            let ratio = classes.step_time_us / ranks.step_time_us;
            assert!((0.9..1.1).contains(&ratio), "{workload}: {ratio}");
        }
    }
}

#[test]
fn pipelines_without_time_for_bytes_have_the_papers_bubbles() {
    let job = |p: u64, m: u64, schedule: &str, backward: u64| {
        let layer = json!({"name": "layer", "repeat": p, "flops": 1000, "parameters": 10,
            "output": 5, "forward": format!("{m} ms"),
            "backward": format!("{} ms", m * backward)});
        json!({"model": {"layers": [layer]}, "batch_per_replica": m, "optimizer": "none",
            "iterations": 3,
            "parallelism": {"pp": p, "microbatches": m, "schedule": schedule}})
    };
    for (p, m) in [(2u32, 4u64), (4, 4), (4, 16), (8, 8)] {
        for (schedule, backward, passes) in [
            ("gpipe", 2, m as f64 + f64::from(p) - 1.0),
            ("1f1b", 2, m as f64 + f64::from(p) - 1.0),
            ("chimera", 1, m as f64 + f64::from(p) / 2.0 - 1.0),
        ] {
            let workload = job(u64::from(p), m, schedule, backward);
            let result = try_run(&workload, &[p], "dims", Some("infinite_bandwidth"))
                .unwrap_or_else(|error| panic!("{workload}: {error}"));
            let each = (1 + backward) as f64 * 1e3;
            let first = result.first_step_time_us / each;
            assert!((first - passes).abs() < 1e-6, "{schedule} {p} {m}: {first}, {passes}");
            assert!(result.step_time_us <= result.first_step_time_us + 1e-6);
        }
    }
}
