//! Training steps whose ranks agree on what is ready: what coordinators launch together travels together.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use allrail_schedule::{coordinate, tensor};
use allrail_simulate::training::{TrainingResult, TrainingScenario, simulate};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Gradients of so many bytes, each 100 us after the one before, on 8 ranks of 100 GB/s.
fn scenario(gradients: &[u64], schedule: Value, latency: &str) -> TrainingScenario {
    let steps = gradients.iter().enumerate().flat_map(|(place, bytes)| {
        let place = gradients.len() - 1 - place;
        let gradient = json!({"all_reduce": format!("{bytes} B"), "over": "data", "tensor": place,
                              "name": format!("t{place}"), "background": true});
        [json!({"compute": "100 us", "pass": "backward"}), gradient]
    });
    let steps: Vec<Value> = steps.collect();
    let tree = json!({
        "schema_version": 1,
        "fabric": {"name": "switch", "dimensions": [
            {"kind": "switch", "size": 8, "links": 1, "bandwidth": "100 GB/s", "latency": latency}]},
        "workload": {"iterations": 3, "model": {"steps": {
            "ranks": [{"rank": 8}], "groups": {"data": ["rank"]}, "steps": {"all": steps}}}},
        "schedule": schedule,
        "world": "dims",
    });
    TrainingScenario::from_json(&tree.to_string()).expect("a scenario")
}

fn run(scenario: &TrainingScenario) -> TrainingResult {
    simulate(scenario, true, &mut |_, _| ControlFlow::Continue(())).expect("it runs")
}

/// The bytes of every operation of the last iteration, in the order in which they were asked for.
fn operations(result: &TrainingResult) -> Vec<u64> {
    let mut all = BTreeMap::new();
    for span in result.timeline.iter().flatten() {
        if let (Some(id), Some(bytes), 2) = (span.communication, span.bytes, span.iteration) {
            all.insert(id, bytes);
        }
    }
    all.into_values().collect()
}

fn coordinated(threshold: &str) -> Value {
    json!({"chunks": 1, "coordination":
        {"policy": "cached", "cycle": "10 ms", "threshold": threshold}})
}

/// All four gradients are ready within one cycle: how many operations they are is the threshold's.
#[test]
fn the_threshold_says_how_many_operations_a_step_has() {
    let gradients = [4_000_000, 2_000_000, 1_000_000, 1_000_000];
    let rows: [(&str, &[u64]); 4] = [
        ("64 MiB", &[8_000_000]),
        ("6 MB", &[6_000_000, 2_000_000]),
        ("2 MB", &[4_000_000, 2_000_000, 2_000_000]),
        ("1 B", &gradients),
    ];
    for policy in ["fifo", "ddp", "fusion"] {
        for (threshold, expected) in rows {
            let mut schedule = coordinated(threshold);
            schedule["tensor"] = json!({"policy": policy});
            let result = run(&scenario(&gradients, schedule, "0 ns"));
            let mut found = operations(&result);
            found.sort_by_key(|bytes| std::cmp::Reverse(*bytes));
            assert_eq!(found, expected, "{policy} {threshold}");
        }
    }
}

/// What an operation costs beside its bytes is paid as often as the threshold says.
#[test]
fn each_operation_more_costs_its_overhead() {
    let step = |threshold| {
        let mut schedule = coordinated(threshold);
        schedule["tensor"] = json!({"policy": "fifo", "start_overhead": "50 us"});
        let result = run(&scenario(&[1_000_000; 4], schedule, "0 ns"));
        (operations(&result).len(), result.first_step_time_us)
    };
    let ((one, once), (two, twice), (four, four_times)) = (step("4 MB"), step("2 MB"), step("1 B"));
    assert_eq!((one, two, four), (1, 2, 4));
    assert!((twice - once - 50.0).abs() < 1e-6, "{once} {twice}");
    assert!((four_times - once - 150.0).abs() < 1e-6, "{once} {four_times}");
}

#[test]
fn a_group_that_is_named_goes_as_one() {
    let mut schedule = coordinated("64 MiB");
    schedule["coordination"]["cycle"] = json!("20 us");
    let alone = run(&scenario(&[1_000_000; 4], schedule.clone(), "0 ns"));
    assert_eq!(operations(&alone), [1_000_000; 4]);
    schedule["coordination"]["groups"] = json!([["t3", "t2", "t0"]]);
    let grouped = run(&scenario(&[1_000_000; 4], schedule, "0 ns"));
    assert_eq!(operations(&grouped), [1_000_000, 3_000_000]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Under every pair of a coordination and a tensor scheduler, every byte goes once an iteration.
    #[test]
    fn nothing_is_lost_and_nothing_goes_twice(
        gradients in prop::collection::vec(1u64..3_000_000, 1..8),
        threshold in 1u64..6_000_000,
        cycle in 50u64..500,
    ) {
        for coordination in coordinate::ALL {
            for policy in tensor::ALL {
                let mut tree = json!({"policy": coordination.tag(), "threshold": format!("{threshold} B")});
                if coordination.reads().contains(&"cycle") {
                    tree["cycle"] = json!(format!("{cycle} us"));
                }
                let schedule = json!({"chunks": 1, "coordination": tree,
                                      "tensor": {"policy": policy.tag()}});
                let result = run(&scenario(&gradients, schedule, "1 us"));
                let sum: u64 = operations(&result).iter().sum();
                prop_assert_eq!(sum, gradients.iter().sum::<u64>(), "{:?} {:?}", coordination.tag(), policy);
                prop_assert!(result.steps_us.len() == 3);
            }
        }
    }
}
