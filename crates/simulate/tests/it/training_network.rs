//! What a training step says of its network in network models of messages: how busy links are, when what is
//! under way, and what there is to gain.

#![allow(clippy::needless_pass_by_value)]

use std::ops::ControlFlow;

use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::SpanResult;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

fn dimensions() -> Value {
    let dimension = |kind: &str, size: u32| {
        json!({"kind": kind, "size": size, "links": if kind == "ring" { 2 } else { 1 },
               "bandwidth": "10 GB/s", "latency": "100 ns"})
    };
    json!({"name": "ring and switch", "dimensions": [dimension("ring", 4), dimension("switch", 4)]})
}

fn torus() -> Value {
    json!({"topology": "torus", "shape": [4, 4], "planes": 4})
}

fn transformer(parallelism: Value) -> Value {
    json!({"model": {"transformer": {"layers": 4, "hidden": 64, "heads": 8, "vocabulary": 256,
                                     "sequence_length": 32, "tied": true}},
        "batch_per_replica": 8, "parallelism": parallelism, "iterations": 3,
        "compute": {"peak": "10 TFLOP/s", "memory_bandwidth": "1 TB/s"}})
}

fn tree(fabric: Value, network_model: &str, workload: Value) -> Value {
    json!({"schema_version": 1, "fabric": fabric, "workload": workload, "network_model": network_model,
           "schedule": {"chunks": 4}})
}

fn attempt(tree: &Value, timeline: bool) -> Result<TrainingResult, SimulateError> {
    let scenario = TrainingScenario::from_json(&tree.to_string())?;
    simulate(&scenario, timeline, &mut |_, _| ControlFlow::Continue(()))
}

fn run(tree: &Value) -> TrainingResult {
    attempt(tree, true).unwrap_or_else(|error| panic!("{tree}: {error}"))
}

fn under(tree: &Value, what_if: Value) -> Result<TrainingResult, SimulateError> {
    let mut tree = tree.clone();
    tree["what_if"] = what_if;
    attempt(&tree, false)
}

/// Data-parallel, tensor-parallel, and both with sharded parameters.
fn layouts() -> Vec<Value> {
    vec![json!({}), json!({"tp": 4, "map": {"tp": [0]}}), json!({"zero": 3})]
}

#[test]
fn links_of_a_dimension_are_as_busy_as_it_is() {
    for layout in layouts() {
        let result = run(&tree(dimensions(), "links", transformer(layout.clone())));
        assert_eq!(result.links.len(), 2);
        for (links, dimension) in result.links.iter().zip(&result.dimensions) {
            assert_eq!(links.name, dimension.name);
            let difference = links.used.mean - dimension.busy_fraction;
            assert!(difference.abs() < 1e-6, "{layout}: {links:?} {dimension:?}");
            assert!(links.used.max >= links.used.mean - 1e-9 && links.used.max <= 1.0 + 1e-9);
        }
        // All NPUs do the same, so no link of a dimension is busier than another.
        let [_, switch] = &result.links[..] else { panic!("two classes") };
        // With ZeRO, parameters are on their way when a step ends, and on some links already.
        let cut = if layout.get("zero").is_some() { 0.01 } else { 1e-6 };
        assert!((switch.used.max - switch.used.mean).abs() < cut, "{layout}: {switch:?}");
        assert_eq!((result.links[0].links, result.links[1].links), (32, 32));
        let (first, named) = (&result.busiest_links[0], &result.links[0].used);
        assert_eq!((result.busiest_links.len(), first.utilisation), (10, named.max));
        assert_eq!(first.name, named.busiest);
        assert_eq!(first.name, "NPU 0 to NPU 1 (dim1)");
    }
}

#[test]
fn all_bytes_cross_the_links_of_a_graph() {
    // A ring along a cycle of the torus: each message crosses one cable of each plane.
    for network_model in ["flows", "packets"] {
        let result = run(&tree(torus(), network_model, transformer(json!({}))));
        let [class] = &result.links[..] else { panic!("one class: {:?}", result.links) };
        assert_eq!((class.name.as_str(), class.links), ("NPU to NPU", 64));
        let gigabits = class.used.mean * class.links as f64 * class.bandwidth_gbps * 4.0;
        let crossed = gigabits / 8e-3 * result.step_time_us;
        let sent: u64 = result.dimensions.iter().map(|d| d.bytes_per_npu).sum();
        let ratio = crossed / (sent as f64 * 16.0);
        // Each plane's share of a message is rounded up.
        assert!((ratio - 1.0).abs() < 1e-3, "{network_model}: {ratio}");
    }
}

#[test]
fn servers_of_dims_have_no_links() {
    let result = run(&tree(dimensions(), "dims", transformer(json!({}))));
    let shown = serde_json::to_value(&result).expect("a tree");
    assert!(shown.get("links").is_none() && shown.get("busiest_links").is_none());
}

/// How long one of these is under way at least, from `from` on.
fn covered<'a>(spans: impl Iterator<Item = &'a SpanResult>, from: f64) -> f64 {
    let mut spans: Vec<(f64, f64)> = spans.map(|span| (span.start_us, span.end_us)).collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut covered, mut until) = (0.0, from);
    for (start, end) in spans {
        covered += (end - start.max(until)).max(0.0);
        until = until.max(end);
    }
    covered
}

#[test]
fn communication_is_in_the_timeline_while_it_is_exposed() {
    for (fabric, network_model) in
        [(dimensions(), "links"), (torus(), "flows"), (torus(), "packets")]
    {
        for layout in layouts() {
            let case = format!("{layout} in {network_model}");
            let result = run(&tree(fabric.clone(), network_model, transformer(layout.clone())));
            let timeline = result.timeline.as_ref().expect("it was asked for");
            let carried = || timeline.iter().filter(|span| span.track != "compute");
            let all = result.steps_us.iter().sum::<f64>() * 1.0001 + 1.0;
            assert!(carried().all(|span| span.start_us <= span.end_us), "{case}");
            assert!(carried().all(|span| span.operation.is_some() && span.purpose.is_some()));
            assert!(carried().any(|span| span.end_us <= all), "{case}");
            let window = result.first_step_time_us;
            let steps = result.steps_us.len() as f64 - 1.0;
            let exposed = result.exposed_communication_us * steps;
            let covered = covered(carried(), window);
            assert!(exposed > 0.0 || network_model != "links", "{case}");
            assert!(exposed <= covered + 1e-6, "{case}: {exposed} {covered}");
            // One that waits for all others to come has no time of its own before.
            let tracks: Vec<&str> = carried().map(|span| span.track.as_str()).collect();
            assert!(tracks.contains(&if layout.get("tp").is_some() {
                "dim2"
            } else {
                "dim1+dim2"
            }));
        }
    }
}

#[test]
fn a_message_is_on_its_senders_track() {
    let mut workload = transformer(json!({"pp": 4, "microbatches": 4}));
    workload["model"]["transformer"]["tied"] = json!(false);
    let result = run(&tree(dimensions(), "links", workload));
    let timeline = result.timeline.expect("it was asked for");
    let sends = timeline.iter().filter(|span| span.operation.as_deref() == Some("send"));
    // Four microbatches forward over three borders, and back, in three iterations.
    assert_eq!(sends.count(), 4 * 3 * 2 * 3);
}

#[test]
fn with_infinite_bandwidth_only_latencies_are_exposed() {
    for (fabric, network_model) in
        [(dimensions(), "links"), (torus(), "flows"), (torus(), "packets")]
    {
        for layout in layouts() {
            let tree = tree(fabric.clone(), network_model, transformer(layout.clone()));
            let (real, infinite) = (run(&tree), under(&tree, json!("infinite_bandwidth")));
            let infinite = infinite.expect("every network model has it");
            assert!((infinite.compute_us / real.compute_us - 1.0).abs() < 1e-9);
            assert!(infinite.step_time_us <= real.step_time_us, "{layout} in {network_model}");
            assert!(
                infinite.step_time_us < real.step_time_us || network_model != "links",
                "{layout}"
            );
            assert!(infinite.links.is_empty(), "nothing keeps a link busy");
            // So it does not matter how fast links are.
            let mut faster = tree.clone();
            if network_model == "links" {
                for d in 0..2 {
                    faster["fabric"]["dimensions"][d]["bandwidth"] = json!("20 GB/s");
                }
            } else {
                faster["fabric"]["planes"] = json!(8);
            }
            let faster = under(&faster, json!("infinite_bandwidth")).expect("it runs");
            assert_eq!(faster.step_time_us, infinite.step_time_us, "{layout} in {network_model}");
        }
    }
}

#[test]
fn an_ideal_schedule_is_the_same_wherever_it_is_asked_for() {
    for (fabric, network_models) in
        [(dimensions(), ["links"].as_slice()), (torus(), &["flows", "packets"])]
    {
        let workload = transformer(json!({}));
        let ideal = under(&tree(fabric.clone(), "dims", workload.clone()), json!("ideal"));
        let ideal = ideal.expect("`dims` has it");
        for network_model in network_models {
            let tree = tree(fabric.clone(), network_model, workload.clone());
            let same = under(&tree, json!("ideal")).expect("dimensions have it");
            assert_eq!(same.step_time_us, ideal.step_time_us, "{network_model}");
            assert!(same.step_time_us <= run(&tree).step_time_us, "{network_model}");
            assert_eq!(&same.network_model, network_model);
            assert!(same.notes.iter().any(|note| note.starts_with("ideal:")), "{:?}", same.notes);
        }
    }
}

#[test]
fn a_cable_is_of_no_one_dimension() {
    for network_model in ["flows", "packets"] {
        let tree = tree(torus(), network_model, transformer(json!({})));
        let error = under(&tree, json!({"double": 0})).expect_err("refused").report();
        assert_eq!((error.field.as_str(), error.value.as_str()), ("what_if", "dim1_x2"));
    }
    let tree = tree(dimensions(), "links", transformer(json!({})));
    let twice = under(&tree, json!({"double": 0})).expect("links are of dimensions");
    assert!(twice.step_time_us < run(&tree).step_time_us);
}

#[test]
fn priorities_are_kept_where_ports_have_queues_and_else_it_is_said() {
    let said = |tree: &Value| run(tree).notes.iter().any(|note| note.contains("no priority"));
    for (fabric, network_model) in
        [(dimensions(), "dims"), (dimensions(), "links"), (torus(), "flows")]
    {
        let mut tree = tree(fabric, network_model, transformer(json!({})));
        tree["schedule"]["tensor"] = json!({"policy": "bytescheduler"});
        assert!(!said(&tree), "{network_model}");
    }
    let mut tree = tree(torus(), "flows", transformer(json!({})));
    tree["messages"] = json!({"algorithms": {"all_reduce": "ring"}});
    assert!(!said(&tree), "nobody asked for an order");
    tree["schedule"]["tensor"] = json!({"policy": "bytescheduler"});
    assert!(said(&tree));
}
