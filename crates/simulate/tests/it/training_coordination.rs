//! Training steps whose ranks agree on what is ready: what coordinators launch together travels together.

#![allow(clippy::needless_pass_by_value)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use allrail_coordinate as coordinate;
use allrail_schedule::tensor;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{TrainingResult, simulate};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Gradients of so many bytes, each 100 us after the one before, on 8 ranks of 100 GB/s.
fn scenario(gradients: &[u64], schedule: &Value, latency: &str) -> TrainingScenario {
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
        "network_model": "dims",
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
            let result = run(&scenario(&gradients, &schedule, "0 ns"));
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
        let result = run(&scenario(&[1_000_000; 4], &schedule, "0 ns"));
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
    let alone = run(&scenario(&[1_000_000; 4], &schedule, "0 ns"));
    assert_eq!(operations(&alone), [1_000_000; 4]);
    schedule["coordination"]["groups"] = json!([["t3", "t2", "t0"]]);
    let grouped = run(&scenario(&[1_000_000; 4], &schedule, "0 ns"));
    assert_eq!(operations(&grouped), [1_000_000, 3_000_000]);
}

/// Five steps; of the workload, what is disturbed.
fn steps(gradients: &[u64], workload: &Value, schedule: &Value) -> TrainingResult {
    let mut scenario = scenario(gradients, schedule, "0 ns");
    scenario.job.workload.lag = workload["lag"].as_u64().unwrap_or(0) as u32;
    scenario.job.workload.exchange_slowdown = workload["exchange_slowdown"].as_f64().unwrap_or(0.0);
    scenario.job.workload.iterations = 5;
    run(&scenario)
}

/// 4 MB take 70 us. Computing goes on meanwhile, at half the speed: 70 us do the work of 35.
#[test]
fn exchanges_slow_computing_down() {
    let step = |slowdown: f64| {
        let schedule = json!({"chunks": 1});
        let result = steps(&[4_000_000; 3], &json!({"exchange_slowdown": slowdown}), &schedule);
        assert!(result.timeline.iter().flatten().all(|span| span.end_us > span.start_us));
        result.step_time_us
    };
    assert_eq!(step(0.0), 370.0);
    // Two of three exchanges hide behind computing.
    assert_eq!(step(1.0), 370.0 + 2.0 * 35.0);
    // As fast as with nothing under way but for what overlaps: 70 us do the work of 70 / 1.5.
    assert!((step(0.5) - (370.0 + 2.0 * (70.0 - 70.0 / 1.5))).abs() < 1e-3);
}

/// An exchange that takes longer than the computing behind it: all of that is slow, and ends later.
#[test]
fn what_computes_slows_down_and_speeds_up_again() {
    // 20 MB: 350 us, behind 100 us of computing that take 150 at half as much again.
    let step = |slowdown: f64| {
        let workload = json!({"exchange_slowdown": slowdown});
        steps(&[20_000_000, 1_000_000], &workload, &json!({"chunks": 1})).step_time_us
    };
    // 100, then the exchanges one after the other: the second is ready long before.
    assert_eq!(step(0.0), 100.0 + 350.0 + 17.5);
    assert_eq!(step(0.5), 100.0 + 350.0 + 17.5);
    // Now the second is ready 400 us after the first began.
    assert!((step(10.0) - (100.0 + 350.0 + (100.0 - 350.0 / 11.0) + 17.5)).abs() < 1e-3);
}

/// The next iteration computes while gradients are exchanged, and no more than one is ahead.
#[test]
fn a_lag_lets_the_next_iteration_compute() {
    let step = |bytes: u64, lag: u64, schedule: Value| {
        let result = steps(&[bytes; 3], &json!({"lag": lag}), &schedule);
        assert_eq!(result.steps_us.len(), 5);
        result.step_time_us
    };
    let plain = json!({"chunks": 1});
    assert_eq!(step(4_000_000, 0, plain.clone()), 370.0);
    assert_eq!(step(4_000_000, 1, plain.clone()), 300.0);
    // 20 MB take 350 us: three times that is what a step lasts, whatever computes.
    assert_eq!(step(20_000_000, 1, plain.clone()), 1050.0);
    for policy in tensor::ALL {
        let mut tensor = json!({"policy": policy.tag()});
        if policy.reads().contains(&"cycle") {
            tensor["cycle"] = json!("10 us");
        }
        let schedule = json!({"chunks": 1, "tensor": tensor});
        assert!((step(4_000_000, 1, schedule) - 300.0).abs() < 10.0 / 4.0 + 1.0, "{policy:?}");
        let schedule = json!({"chunks": 1, "tensor": tensor,
                              "coordination": {"policy": "cached", "cycle": "50 us"}});
        // The last of four ends waits for up to a cycle more or less than the first.
        assert!((step(4_000_000, 1, schedule) - 300.0).abs() < 50.0 / 4.0 + 1.0, "{policy:?}");
    }
}

/// Ranks that are apart hold a gradient up by as much as the last is late.
#[test]
fn ranks_are_as_late_as_the_skew_says() {
    let step = |skew: &str, seed: u64| {
        let mut schedule = json!({"chunks": 1, "coordination": {"policy": "agreed"}});
        if skew != "0 s" {
            schedule["coordination"]["skew"] = json!(skew);
        }
        let mut scenario = scenario(&[1_000_000; 2], &schedule, "0 ns");
        scenario.seed = seed;
        run(&scenario).first_step_time_us
    };
    let alike = step("0 s", 1);
    assert_eq!(alike, step("0 s", 2));
    let apart: Vec<f64> = (0..20).map(|seed| step("400 us", seed)).collect();
    assert!(apart.iter().all(|one| *one > alike && *one < alike + 420.0), "{alike} {apart:?}");
    // The latest of eight is late by eight ninths of it in the mean.
    let mean = apart.iter().sum::<f64>() / 20.0 - alike;
    assert!((300.0..400.0).contains(&mean), "{mean}");
    assert_eq!(apart[7], step("400 us", 7));
}

#[test]
fn what_is_out_of_range_is_refused() {
    let rows = [
        (json!({"lag": 65}), "workload.lag"),
        (json!({"exchange_slowdown": -0.1}), "workload.exchange_slowdown"),
        (json!({"exchange_slowdown": 101}), "workload.exchange_slowdown"),
    ];
    for (keys, field) in rows {
        let mut tree = json!({"schema_version": 1, "fabric": {"name": "one", "dimensions": [
                {"kind": "switch", "size": 8, "links": 1, "bandwidth": "1 GB/s", "latency": "0 ns"}]},
            "workload": {"model": {"steps": {}}}});
        for (key, value) in keys.as_object().expect("keys") {
            tree["workload"][key] = value.clone();
        }
        let report = TrainingScenario::from_json(&tree.to_string()).expect_err("refused").report();
        assert_eq!(report.field, field, "{report:?}");
        assert!(!report.hint.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Under every pair of a coordination and a tensor scheduler, with a skew, a lag and a slowdown, every byte
    /// goes once an iteration.
    #[test]
    fn nothing_is_lost_and_nothing_goes_twice(
        gradients in prop::collection::vec(1u64..3_000_000, 1..8),
        threshold in 1u64..6_000_000,
        cycle in 50u64..500,
        (skew, lag, slowdown) in (0u64..300, 0u32..2, 0.0f64..2.0),
    ) {
        for coordination in coordinate::ALL {
            for policy in tensor::ALL {
                let mut tree = json!({"policy": coordination.tag(), "threshold": format!("{threshold} B"),
                                      "skew": format!("{skew} us")});
                if coordination.reads().contains(&"cycle") {
                    tree["cycle"] = json!(format!("{cycle} us"));
                }
                let schedule = json!({"chunks": 1, "coordination": tree,
                                      "tensor": {"policy": policy.tag()}});
                let mut scenario = scenario(&gradients, &schedule, "1 us");
                (scenario.job.workload.lag, scenario.job.workload.exchange_slowdown) = (lag, slowdown);
                let result = run(&scenario);
                let sum: u64 = operations(&result).iter().sum();
                prop_assert_eq!(sum, gradients.iter().sum::<u64>(), "{:?} {:?}", coordination.tag(), policy);
                prop_assert!(result.steps_us.len() == 3);
            }
        }
    }
}

/// Four steps of these nodes on 8 ranks, under a coordination with a cycle of 20 us.
fn nodes(steps: &Value, coordination: &Value, tensor: &str, lag: u32) -> TrainingResult {
    let mut settings = json!({"cycle": "20 us", "skew": "5 us"});
    for (key, value) in coordination.as_object().expect("keys") {
        settings[key] = value.clone();
    }
    let tree = json!({
        "schema_version": 1,
        "fabric": {"name": "switch", "dimensions": [
            {"kind": "switch", "size": 8, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"}]},
        "workload": {"iterations": 4, "lag": lag, "model": {"steps": {
            "ranks": [{"rank": 8}], "groups": {"data": ["rank"], "model": ["rank"]},
            "steps": {"all": steps}}}},
        "schedule": {"chunks": 1, "tensor": {"policy": tensor}, "coordination": settings},
        "network_model": "dims",
    });
    run(&TrainingScenario::from_json(&tree.to_string()).expect("a scenario"))
}

fn gradient(place: usize) -> Value {
    json!({"all_reduce": "1 MB", "over": "data", "tensor": place, "name": format!("t{place}"),
           "background": true})
}

fn backward() -> Value {
    json!({"compute": "100 us", "pass": "backward"})
}

/// A backward pass of four gradients; behind the second, in the way of computing, a sum of statistics.
fn with_statistics(collectives: &str, policy: &str, lag: u32) -> TrainingResult {
    let steps = json!([
        {"broadcast": "8 B", "over": "data", "name": "step"},
        backward(), gradient(3), backward(), gradient(2),
        {"all_reduce": "4 KB", "over": "data", "name": "statistics"},
        backward(), gradient(1), backward(), gradient(0),
        {"all_gather": "8 KB", "over": "data", "name": "rows"},
    ]);
    nodes(&steps, &json!({"policy": policy, "collectives": collectives}), "fifo", lag)
}

fn talk(result: &TrainingResult) -> (u64, u64) {
    let one = result.coordinators.as_ref().expect("they talk");
    (one.messages, one.bytes)
}

/// What is asked for of other collectives is said, too, and computing that waits for one waits for the ranks'
/// word: a cycle of 20 us each.
#[test]
fn other_collectives_are_agreed_on_where_it_is_asked_for() {
    for policy in coordinate::ALL {
        for lag in [0, 1] {
            let (alone, all) = (
                with_statistics("gradients", policy.tag(), lag),
                with_statistics("all", policy.tag(), lag),
            );
            let ((_, bytes), (_, more)) = (talk(&alone), talk(&all));
            let tag = policy.tag();
            assert!(more > bytes, "{tag}, lag {lag}: {bytes} {more}");
            let (free, agreed) = (alone.step_time_us, all.step_time_us);
            assert!(agreed > free, "{tag}, lag {lag}: {free} {agreed}");
            // Three of them, at most two cycles and their talk each.
            assert!(agreed < free + 3.0 * 60.0, "{tag}, lag {lag}: {free} {agreed}");
            // Each is run once in an iteration all the same.
            let small = |result: &TrainingResult| {
                operations(result).iter().filter(|bytes| **bytes < 100_000).count()
            };
            assert_eq!((small(&alone), small(&all)), (3, 3), "{tag}, lag {lag}");
        }
    }
}

/// In `central` every rank but rank 0 sends one request for each, and is sent one answer: of 4 steps, 7 ranks and 100
/// bytes. A barrier, which has no bytes, is asked for like all others; so are the collectives of a group without gradients.
#[test]
fn a_collective_more_is_a_request_and_an_answer_of_every_rank() {
    let more = [
        json!({"all_gather": "8 KB", "over": "data"}),
        json!({"broadcast": "8 B", "over": "data"}),
        json!({"all_to_all": "64 KB", "over": "data"}),
        json!({"reduce_scatter": "64 KB", "over": "data"}),
        json!({"all_reduce": "0 B", "over": "data", "name": "barrier"}),
        json!({"all_to_all": "64 KB", "over": "model"}),
        json!({"all_reduce": "4 KB", "over": "model", "background": true}),
    ];
    let entries = |count: usize, collectives: &str| {
        let mut steps = vec![backward(), gradient(1), backward(), gradient(0)];
        for (index, one) in more[..count].iter().enumerate() {
            steps.insert(2 * index % 5, one.clone());
        }
        let central = json!({"policy": "central", "threshold": "1 B", "collectives": collectives});
        let (messages, bytes) = talk(&nodes(&json!(steps), &central, "fifo", 0));
        bytes - 8 * messages
    };
    for count in 0..=more.len() {
        let each = 100 * 2 * 7 * 4;
        assert_eq!(entries(count, "all"), each * (2 + count as u64), "{count}");
        assert_eq!(entries(count, "gradients"), each * 2, "{count}");
    }
}

/// Ranks that exchange no gradients agree all the same.
#[test]
fn a_step_without_gradients_is_agreed_on() {
    let steps = json!([backward(), {"all_to_all": "64 KB", "over": "model", "name": "tokens"}]);
    for policy in coordinate::ALL {
        let step = |collectives: &str| {
            nodes(&steps, &json!({"policy": policy.tag(), "collectives": collectives}), "fifo", 0)
        };
        let (free, agreed) = (step("gradients"), step("all"));
        assert!(free.coordinators.is_none());
        assert!(talk(&agreed).0 > 0);
        assert!(agreed.step_time_us > free.step_time_us);
    }
}

/// Where iterations overlap, a collective in the background may be asked for again before it was launched: the second
/// waits for the first.
#[test]
fn who_asks_twice_waits() {
    let steps = json!([
        backward(), gradient(0), {"compute": "1 us"},
        {"all_gather": "8 KB", "over": "model", "background": true},
    ]);
    for policy in coordinate::ALL {
        let coordination = json!({"policy": policy.tag(), "cycle": "400 us", "collectives": "all"});
        let result = nodes(&steps, &coordination, "bytescheduler", 0);
        assert!(result.step_time_us > 100.0, "{}", policy.tag());
    }
}

/// Who asks for no other collectives talks as before.
#[test]
fn a_step_of_gradients_alone_is_the_same_either_way() {
    for policy in coordinate::ALL {
        let step = |collectives: &str| {
            let schedule = json!({"chunks": 1, "coordination": {
                "policy": policy.tag(), "skew": "30 us", "collectives": collectives}});
            let result = run(&scenario(&[1_000_000; 4], &schedule, "0 ns"));
            (result.step_time_us, talk(&result))
        };
        assert_eq!(step("gradients"), step("all"), "{}", policy.tag());
    }
}
