//! Communicators that meet on a dimension: a pipeline's messages beside its replicas' gradients.

use std::ops::ControlFlow;

use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use serde_json::{Value, json};

/// Stages and replicas behind one switch.
fn fabric(world: &str) -> Value {
    match world {
        "flows" => json!({"topology": "fat_tree", "npus": 16, "levels": 2, "switch_radix": 32,
                          "planes": 1, "link": {"bandwidth": "100 Gb/s", "latency": "500 ns"}}),
        _ => json!({"name": "switch", "dimensions": [{"kind": "switch", "size": 16, "links": 1,
                    "bandwidth": "100 Gb/s", "latency": "1 us"}]}),
    }
}

fn run(world: &str, parallelism: &Value, communicators: &str) -> TrainingResult {
    let tree = json!({"schema_version": 1, "fabric": fabric(world), "world": world,
        "workload": {"model": {"transformer": {"layers": 16, "hidden": 1024, "heads": 16,
                         "vocabulary": 8192, "sequence_length": 256, "tied": true}},
            "batch_per_replica": 8, "parallelism": parallelism, "iterations": 2,
            "compute": {"peak": "100 TFLOP/s", "memory_bandwidth": "1 TB/s"}},
        "schedule": {"chunks": 8, "communicators": communicators}});
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
fn a_message_waits_for_no_gradient_in_any_world() {
    let layout = json!({"pp": 4, "dp": 4, "microbatches": 8});
    let step = |world, how| run(world, &layout, how).step_time_us;
    let in_dims = step("dims", "share");
    // A switch of `links` stores what it passes on; in `flows` links into an NPU are shared, too.
    for (world, apart) in [("dims", 0.0), ("links", 0.02), ("flows", 0.06)] {
        let (share, queue) = (step(world, "share"), step(world, "queue"));
        assert!(share < 0.7 * queue, "{world}: {share} us, in one queue {queue} us");
        assert!(
            (share / in_dims - 1.0).abs() <= apart,
            "{world}: {share} us, in dims {in_dims} us"
        );
    }
}

#[test]
fn what_is_sent_does_not_depend_on_whose_turn_it_is() {
    let layout = json!({"pp": 4, "dp": 4, "microbatches": 8});
    for world in ["dims", "links"] {
        let sent = |how| -> Vec<u64> {
            run(world, &layout, how).dimensions.iter().map(|d| d.bytes_per_npu).collect()
        };
        assert_eq!(sent("share"), sent("queue"), "{world}");
    }
}

#[test]
fn a_job_with_one_communicator_is_as_it_was() {
    for world in ["dims", "links", "flows"] {
        for layout in [json!({}), json!({"zero": 3})] {
            let (share, queue) = (run(world, &layout, "share"), run(world, &layout, "queue"));
            assert_eq!(figures(&share), figures(&queue), "{world}, {layout}");
        }
    }
}
