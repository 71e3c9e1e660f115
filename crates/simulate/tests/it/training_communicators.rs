//! Communicators that meet on a dimension: a pipeline's messages beside its replicas' gradients.

use std::ops::ControlFlow;

use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

/// Stages and replicas behind one switch.
fn fabric(network_model: &str) -> Value {
    match network_model {
        "flows" => json!({"topology": "fat_tree", "npus": 16, "levels": 2, "switch_radix": 32,
                          "planes": 1, "link": {"bandwidth": "100 Gb/s", "latency": "500 ns"}}),
        _ => json!({"name": "switch", "dimensions": [{"kind": "switch", "size": 16, "links": 1,
                    "bandwidth": "100 Gb/s", "latency": "1 us"}]}),
    }
}

fn run(network_model: &str, parallelism: &Value, communicators: &str) -> TrainingResult {
    let tree = json!({"schema_version": 1, "fabric": fabric(network_model), "network_model": network_model,
        "workload": {"model": {"transformer": {"layers": 16, "hidden": 1024, "heads": 16,
                         "vocabulary": 8192, "sequence_length": 256, "tied": true}},
            "batch_per_replica": 8, "parallelism": parallelism, "iterations": 2,
            "compute": {"peak": "100 TFLOP/s", "memory_bandwidth": "1 TB/s"}},
        "schedule": {"chunks": 8}, "compat": {"communicators": communicators}});
    let scenario = TrainingScenario::from_json(&tree.to_string()).expect("a scenario");
    simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(())).expect("it runs")
}

/// Without what the run took on this machine.
fn figures(result: &TrainingResult) -> Value {
    let mut tree = serde_json::to_value(result).expect("a tree");
    tree["host"] = Value::Null;
    tree
}

#[test]
fn a_message_waits_for_no_gradient_in_any_network_model() {
    let layout = json!({"pp": 4, "dp": 4, "microbatches": 8});
    let step = |network_model, how| run(network_model, &layout, how).step_time_us;
    let in_dims = step("dims", "share");
    // A switch of `links` stores what it passes on; in `flows` links into an NPU are shared, too.
    for (network_model, apart) in [("dims", 0.0), ("links", 0.02), ("flows", 0.06)] {
        let (share, queue) = (step(network_model, "share"), step(network_model, "queue"));
        assert!(share < 0.7 * queue, "{network_model}: {share} us, in one queue {queue} us");
        assert!(
            (share / in_dims - 1.0).abs() <= apart,
            "{network_model}: {share} us, in dims {in_dims} us"
        );
    }
}

#[test]
fn what_is_sent_does_not_depend_on_whose_turn_it_is() {
    let layout = json!({"pp": 4, "dp": 4, "microbatches": 8});
    for network_model in ["dims", "links"] {
        let sent = |how| -> Vec<u64> {
            run(network_model, &layout, how).dimensions.iter().map(|d| d.bytes_per_npu).collect()
        };
        assert_eq!(sent("share"), sent("queue"), "{network_model}");
    }
}

#[test]
fn a_job_with_one_communicator_is_as_it_was() {
    for network_model in ["dims", "links", "flows"] {
        for layout in [json!({}), json!({"zero": 3})] {
            let (share, queue) =
                (run(network_model, &layout, "share"), run(network_model, &layout, "queue"));
            assert_eq!(figures(&share), figures(&queue), "{network_model}, {layout}");
        }
    }
}
