//! Slow links: none changes nothing, all are a slower network, and no one is faster for them.

use std::ops::ControlFlow;

use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

fn dimensions(bandwidth: &str) -> Value {
    let dimension = |kind: &str, size: u32, links: u32| {
        json!({"kind": kind, "size": size, "links": links, "bandwidth": bandwidth,
               "latency": "100 ns"})
    };
    json!({"name": "three", "dimensions": [dimension("ring", 4, 2), dimension("switch", 4, 1),
                                           dimension("fully_connected", 3, 2)]})
}

fn torus(bandwidth: &str) -> Value {
    json!({"topology": "torus", "shape": [4, 4], "planes": 1,
           "link": {"bandwidth": bandwidth, "latency": "20 ns"}})
}

fn job(fabric: &Value, network_model: &str, parallelism: &Value) -> Value {
    json!({"schema_version": 1, "fabric": fabric, "network_model": network_model,
        "schedule": {"chunks": 4}, "workload": {
            "model": {"transformer": {"layers": 4, "hidden": 64, "heads": 8, "vocabulary": 256,
                                      "sequence_length": 32, "tied": true}},
            "batch_per_replica": 4, "parallelism": parallelism, "iterations": 3,
            "compute": {"peak": "100 TFLOP/s", "memory_bandwidth": "10 TB/s"}}})
}

fn attempt(tree: &Value) -> Result<TrainingResult, SimulateError> {
    let scenario = TrainingScenario::from_json(&tree.to_string())?;
    simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

fn run(tree: &Value) -> TrainingResult {
    attempt(tree).unwrap_or_else(|error| panic!("{tree}: {error}"))
}

fn with(tree: &Value, key: &str, value: Value) -> Value {
    let mut tree = tree.clone();
    match key {
        "slow" => tree["workload"]["slow_links"] = value,
        key => tree[key] = value,
    }
    tree
}

fn slow(tree: &Value, share: f64, factor: f64) -> TrainingResult {
    run(&with(tree, "slow", json!({"share": share, "factor": factor})))
}

/// Every network model, data-parallel alone and with each layer cut over the innermost dimension.
fn jobs() -> Vec<Value> {
    let mut jobs = Vec::new();
    for parallelism in [json!({}), json!({"tp": 4, "map": {"tp": [0]}})] {
        for network_model in ["dims", "links"] {
            jobs.push(job(&dimensions("10 GB/s"), network_model, &parallelism));
        }
        for network_model in ["flows", "packets"] {
            jobs.push(job(&torus("10 GB/s"), network_model, &parallelism));
        }
    }
    jobs
}

fn shown(result: &TrainingResult) -> Value {
    let mut tree = serde_json::to_value(result).expect("a tree");
    tree["host"] = Value::Null;
    tree
}

#[test]
fn links_with_all_of_their_bandwidth_are_not_slow() {
    for job in jobs() {
        let before = shown(&run(&job));
        for (share, factor) in [(1.0, 1.0), (0.0, 0.5)] {
            assert_eq!(shown(&slow(&job, share, factor)), before, "{job}");
        }
    }
}

#[test]
fn all_of_them_with_half_of_it_are_a_network_of_half_the_bandwidth() {
    for job in jobs() {
        let graph = job["fabric"].get("topology").is_some();
        let half = if graph { torus("5 GB/s") } else { dimensions("5 GB/s") };
        for what_if in [Value::Null, json!("infinite_bandwidth"), json!("ideal")] {
            if graph && what_if == json!("ideal") {
                continue; // It knows dimensions, and no cables.
            }
            let job = with(&job, "what_if", what_if.clone());
            let (ours, theirs) = (slow(&job, 1.0, 0.5), run(&with(&job, "fabric", half.clone())));
            let difference = (ours.step_time_us / theirs.step_time_us - 1.0).abs();
            // Times are rounded up to a picosecond each.
            assert!(difference < 1e-5, "{what_if} {job}: {difference}");
            if what_if == json!("infinite_bandwidth") {
                assert_eq!(ours.step_time_us, run(&job).step_time_us, "{job}");
            }
        }
    }
}

#[test]
fn nobody_is_faster_for_slower_or_more_slow_links() {
    for job in jobs() {
        let never_faster = |times: &[f64]| times.is_sorted_by(|a, b| *a <= b * (1.0 + 1e-9));
        let factors = [1.0, 0.9, 0.5, 0.25, 0.1].map(|f| slow(&job, 0.1, f).step_time_us);
        assert!(never_faster(&factors), "{job}: {factors:?}");
        assert!(factors[4] > factors[0], "{job}: one in ten is felt");
        // What is slow of a smaller share is slow of a larger one. Queues first come, first served
        // may serve unlike links worse than links that are all slow.
        let shares = [0.02, 0.1, 0.5, 1.0].map(|share| slow(&job, share, 0.5).step_time_us);
        assert!(never_faster(&shares) || job["network_model"] != "dims", "{job}: {shares:?}");
        assert!(shares.iter().all(|time| never_faster(&[factors[0], *time])), "{job}");
    }
}

#[test]
fn the_seed_says_which() {
    for job in jobs() {
        let seeded = |seed: u64| slow(&with(&job, "seed", json!(seed)), 0.1, 0.5);
        assert_eq!(shown(&seeded(1)), shown(&seeded(1)), "{job}");
        let notes = |seed: u64| {
            let notes = seeded(seed).notes;
            let found = notes.into_iter().find(|note| note.starts_with("slow "));
            found.expect("it says how many")
        };
        assert!((2..20).any(|seed| notes(seed) != notes(1)), "{job}");
    }
    // The same ones in both network models of dimensions.
    let count = |network_model: &str| {
        let job = job(&dimensions("10 GB/s"), network_model, &json!({}));
        let notes = slow(&job, 0.1, 0.5).notes;
        let found = notes.iter().find_map(|note| note.strip_prefix("slow links, "));
        found.and_then(|note| note.split(';').next()).expect("it says how many").to_owned()
    };
    assert_eq!(count("dims"), count("links"));
    assert!(count("dims").starts_with("with 0.5 of their bandwidth: "), "{}", count("dims"));
}

#[test]
fn who_does_not_use_a_dimension_does_not_feel_its_links() {
    for network_model in ["dims", "links"] {
        // Tensor-parallel on the first dimension, data-parallel on the others.
        let job = job(&dimensions("10 GB/s"), network_model, &json!({"tp": 4, "map": {"tp": [0]}}));
        let before = run(&job);
        let on = |dimension: u32| {
            let said = json!({"share": 1.0, "factor": 0.25, "dimensions": [dimension]});
            run(&with(&job, "slow", said))
        };
        let (inner, outer) = (on(0), on(1));
        assert!(inner.exposed_us["tensor"] > 1.5 * before.exposed_us["tensor"], "{network_model}");
        let same = outer.exposed_us["tensor"] / before.exposed_us["tensor"];
        assert!(same < 1.2, "{network_model}: {same}");
        assert!(outer.exposed_us["data"] > 1.5 * before.exposed_us["data"], "{network_model}");
        let busy = |result: &TrainingResult, d: usize| {
            result.dimensions[d].busy_fraction * result.step_time_us
        };
        assert!((busy(&inner, 0) / busy(&before, 0) - 4.0).abs() < 1e-3, "{network_model}");
        assert!((busy(&inner, 1) / busy(&before, 1) - 1.0).abs() < 1e-6, "{network_model}");
    }
}

#[test]
fn a_slow_link_stands_out_among_the_busiest() {
    let job = job(&dimensions("10 GB/s"), "links", &json!({}));
    let before = run(&job);
    let said = json!({"share": 0.02, "factor": 0.1, "dimensions": [0]});
    let after = run(&with(&job, "slow", said));
    let (fast, slow) = (&before.busiest_links[0], &after.busiest_links[0]);
    assert_eq!(slow.bandwidth_gbps, fast.bandwidth_gbps / 10.0);
    assert!(slow.utilisation > after.links[0].used.mean * 1.5);
}

#[test]
fn gradients_over_parameter_servers_feel_slow_links_too() {
    let fabric = json!({"name": "one", "dimensions": [
        {"kind": "switch", "size": 8, "links": 1, "bandwidth": "1 GB/s", "latency": "1 us"}]});
    let mut job = job(&fabric, "dims", &json!({}));
    job["schedule"]["tensor"] = json!({"policy": "fifo", "exchange": "parameter_server"});
    let (fast, slow) = (run(&job), slow(&job, 1.0, 0.5));
    job["fabric"]["dimensions"][0]["bandwidth"] = json!("0.5 GB/s");
    let half = run(&job);
    assert!(slow.step_time_us > fast.step_time_us);
    assert!((slow.step_time_us / half.step_time_us - 1.0).abs() < 1e-6);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |job: &Value, said: Value| {
        let report = attempt(&with(job, "slow", said)).expect_err("refused").report();
        report.field.trim_start_matches("workload.slow_links.").to_owned()
    };
    let [dims, links, flows] = ["dims", "links", "flows"].map(|network_model| {
        let fabric =
            if network_model == "flows" { torus("10 GB/s") } else { dimensions("10 GB/s") };
        job(&fabric, network_model, &json!({}))
    });
    assert_eq!(refused(&dims, json!({"share": 1.5, "factor": 0.5})), "share");
    assert_eq!(refused(&dims, json!({"share": -0.1, "factor": 0.5})), "share");
    assert_eq!(refused(&dims, json!({"share": 0.5, "factor": 0.0})), "factor");
    assert_eq!(refused(&links, json!({"share": 0.5, "factor": 1.5})), "factor");
    let third = json!({"share": 0.5, "factor": 0.5, "dimensions": [3]});
    assert_eq!(refused(&links, third), "dimensions");
    let first = json!({"share": 0.5, "factor": 0.5, "dimensions": [0]});
    assert_eq!(refused(&flows, first), "dimensions");
    let mut slow = links.clone();
    for d in 0..3 {
        slow["fabric"]["dimensions"][d]["bandwidth"] = json!("1 KB/s");
    }
    slow["workload"]["model"]["transformer"]["vocabulary"] = json!(100_000);
    assert_eq!(refused(&slow, json!({"share": 0.5, "factor": 0.001})), "factor");
}
