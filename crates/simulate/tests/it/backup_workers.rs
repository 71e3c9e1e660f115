//! Backup workers: steps that do not wait for the slowest, by hand and against a plain loop.

use std::ops::ControlFlow;

use allrail_simulate::SimulateError;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::graph_of;
use allrail_simulate::training::{TrainingResult, simulate};
use allrail_workload::{ActorId, NodeId};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Ranks at 100 GB/s without latency, one layer of 100 us forward, 200 us backward and 8 MB of gradients.
fn tree(ranks: u32, stragglers: &Value, tensor: &Value) -> Value {
    json!({
        "schema_version": 1,
        "fabric": {"name": "switch", "dimensions": [
            {"kind": "switch", "size": ranks, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"},
        ]},
        "workload": {
            "model": {"layers": [{"name": "only", "flops": 0, "parameters": 2_000_000, "output": 1,
                                  "forward": "100 us", "backward": "200 us"}]},
            "batch_per_replica": 1, "precision": "fp32", "optimizer": "none", "iterations": 4,
            "parallelism": {"dp": ranks}, "stragglers": stragglers,
            "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"},
        },
        "schedule": {"chunks": 1, "tensor": tensor},
    })
}

fn run(tree: &Value) -> Result<TrainingResult, SimulateError> {
    let scenario = TrainingScenario::from_json(&tree.to_string())?;
    simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(()))
}

fn steps(ranks: u32, stragglers: &Value, tensor: &Value) -> (Vec<f64>, String) {
    let result = run(&tree(ranks, stragglers, tensor)).expect("it runs");
    let note = result.notes.iter().find(|note| note.contains("does not wait")).cloned();
    (result.steps_us, note.unwrap_or_default())
}

/// The all-reduce among four takes 2 · 3/4 · 8 MB / 100 GB/s = 120 us.
#[test]
fn a_step_is_the_third_fastest_s_of_four() {
    let backup = json!({"policy": "fifo", "backup_workers": 1});
    let slow = |factor: f64| json!([{"ranks": [3], "factor": factor}]);
    assert_eq!(steps(4, &slow(3.0), &json!({"policy": "fifo"})).0, [1020.0; 4]);
    // Rank 3 is at the first exchange at 900, when two steps are over; it leaves the second out, begins
    // with the third, is late again, and so on.
    let (times, note) = steps(4, &slow(3.0), &backup);
    assert_eq!(times, [420.0; 4]);
    assert!(note.contains("25.0 % of all gradients"), "{note}");
    // It comes at 390 while the exchange is under way, from 300 to 420, and waits for its result.
    let (times, note) = steps(4, &slow(1.3), &backup);
    assert_eq!(times, [420.0; 4]);
    assert!(note.contains("25.0 % of all gradients"), "{note}");
    // Those that come at the same time are all in it.
    let (times, note) = steps(4, &json!([]), &backup);
    assert_eq!(times, [420.0; 4]);
    assert!(note.contains(" 0.0 % of all gradients"), "{note}");
    // Two are slow, and one of them has to be waited for: the faster one.
    let two = json!([{"ranks": [2], "factor": 2.0}, {"ranks": [3], "factor": 3.0}]);
    assert_eq!(steps(4, &two, &backup).0, [720.0; 4]);
}

/// What is averaged, not what is computed, counts as throughput.
#[test]
fn throughput_leaves_out_what_was_dropped() {
    let slow = json!([{"ranks": [3], "factor": 3.0}]);
    let result = run(&tree(4, &slow, &json!({"backup_workers": 1}))).expect("it runs");
    let throughput = result.throughput.expect("samples are said");
    assert!((throughput.samples_per_s - 3.0 / 420e-6).abs() < 1e-6 * throughput.samples_per_s);
    assert!(result.bound_step_time_us <= result.step_time_us);
}

/// Three workers and one server of 80 GB/s, so that a push and a pull take 100 us each.
#[test]
fn a_server_answers_the_first_two_of_three() {
    let slow = json!([{"ranks": [2], "factor": 10.0}]);
    let servers = json!({"count": 1, "colocated": false, "big_array": "9 MB"});
    let tensor = |backup: u32| {
        json!({"exchange": "parameter_server", "servers": servers, "backup_workers": backup,
               "barrier": true})
    };
    let steps = |backup: u32| {
        let mut tree = tree(3, &slow, &tensor(backup));
        tree["fabric"]["dimensions"][0]["bandwidth"] = json!("80 GB/s");
        tree["workload"]["iterations"] = json!(3);
        run(&tree).expect("it runs").steps_us
    };
    // Pushes of the two arrive at 400 and 500, which answers both, and their pulls at 600 and 700. They are one
    // class of ranks, and go on together.
    assert_eq!(steps(1), [700.0, 700.0, 700.0]);
    // Else the push of the slow one is at the server at 3100, the pulls end at 3200, 3300 and 3400.
    assert!(steps(0)[0] >= 3400.0);
}

/// When iterations are over, and which part of gradients is in them: a plain loop over one exchange each.
fn plain(
    free: &mut [f64],
    compute: &dyn Fn(usize, u32) -> f64,
    expected: usize,
    exchange: f64,
    iterations: u32,
) -> (Vec<f64>, f64) {
    let sorted = |times: &[f64]| {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        times
    };
    let (mut ends, mut averaged) = (Vec::new(), 0);
    for iteration in 0..iterations {
        let come: Vec<f64> =
            free.iter().enumerate().map(|(rank, from)| from + compute(rank, iteration)).collect();
        let begins = sorted(&come)[expected - 1];
        averaged += come.iter().filter(|time| **time <= begins).count();
        for (from, come) in free.iter_mut().zip(come) {
            // Who begins once all is decided takes the result as it is.
            let there = if *from > begins { *from } else { come };
            *from = there.max(begins + exchange);
        }
        ends.push(sorted(free)[expected - 1]);
    }
    let all = f64::from(iterations) * free.len() as f64;
    (ends, averaged as f64 / all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn drawn_stragglers_give_what_a_plain_loop_gives(
        ranks in 2u32..7,
        backup in 0u32..6,
        probability in 0.02f64..1.0,
        factor in 1.1f64..7.0,
        deviation in 0.0f64..0.25,
        seed in 0u64..1000,
        network_model in prop::sample::select(vec!["dims", "links"]),
    ) {
        let backup = backup.min(ranks - 1);
        let all: Vec<u32> = (0..ranks).collect();
        let stragglers = json!([{"ranks": all, "factor": factor, "probability": probability}]);
        let mut tree = tree(ranks, &stragglers, &json!({"backup_workers": backup}));
        tree["workload"]["iterations"] = json!(12);
        tree["workload"]["jitter"] = json!({"deviation": deviation});
        tree["seed"] = json!(seed);
        tree["network_model"] = json!(network_model);
        let scenario = TrainingScenario::from_json(&tree.to_string()).expect("a scenario");
        let result = run(&tree).expect("it runs");
        let workload = scenario.timed_workload().expect("a tensor scheduler");
        let built = graph_of(&workload, &[ranks]).expect("a graph");
        let perturbation = built.perturbation(&workload, seed);
        // Of every rank, its compute nodes.
        let nodes = |rank: usize| -> Vec<(NodeId, f64)> {
            let of = built.graph.ids().filter(|id| built.graph.node(*id).actor.index() == rank);
            of.filter_map(|id| match built.graph.node(id).work {
                allrail_workload::Work::Compute { time } => Some((id, time.as_us())),
                _ => None,
            })
            .collect()
        };
        let nodes: Vec<Vec<(NodeId, f64)>> = (0..ranks as usize).map(nodes).collect();
        let compute = |rank: usize, iteration: u32| -> f64 {
            let actor = ActorId(u32::try_from(rank).expect("few"));
            let of = nodes[rank].iter();
            of.map(|(id, time)| time * perturbation.factor(actor, *id, iteration)).sum()
        };
        // An exchange of all at once, measured where nobody is slow.
        let mut calm = tree.clone();
        calm["workload"]["stragglers"] = json!([]);
        calm["workload"]["jitter"] = json!(null);
        let exchange = run(&calm).expect("it runs").step_time_us - 300.0;
        let mut free = vec![0.0; ranks as usize];
        let expected = (ranks - backup) as usize;
        let (ends, averaged) = plain(&mut free, &compute, expected, exchange, 12);
        let mut before = 0.0;
        for (step, end) in result.steps_us.iter().zip(&ends) {
            prop_assert!((step - (end - before)).abs() < 0.01, "{:?} {:?}", result.steps_us, ends);
            before = *end;
        }
        if backup > 0 {
            let said = format!("{:.1} % of all gradients", 100.0 * (1.0 - averaged));
            let note = result.notes.iter().find(|note| note.contains("does not wait"));
            prop_assert!(note.is_some_and(|note| note.contains(&said)), "{} {:?}", said, note);
        }
    }
}

/// A draw depends on rank, iteration and seed alone, and comes as often as it is said.
#[test]
fn draws_are_as_likely_as_said() {
    let stragglers = json!([{"ranks": [0, 1, 2, 3], "factor": 4.0, "probability": 0.25}]);
    let tree = tree(4, &stragglers, &json!({}));
    let scenario = TrainingScenario::from_json(&tree.to_string()).expect("a scenario");
    let built = graph_of(&scenario.job.workload, &[4]).expect("a graph");
    let perturbation = built.perturbation(&scenario.job.workload, 3);
    let slow = |actor: u32, iteration: u32| {
        let factor = perturbation.factor(ActorId(actor), NodeId(0), iteration);
        assert!(factor == 1.0 || factor == 4.0);
        assert_eq!(factor, perturbation.factor(ActorId(actor), NodeId(7), iteration));
        factor > 1.0
    };
    let count = (0..10_000).filter(|i| slow(i % 4, i / 4)).count();
    // Its standard deviation is 43.
    assert!((2_300..2_700).contains(&count), "{count}");
}

#[test]
fn what_cannot_be_left_out_is_refused() {
    let none = json!([]);
    let refused = |tree: &Value, why: &str| {
        let error = run(tree).expect_err("it is refused").to_string();
        assert!(error.contains("schedule.tensor.backup_workers"), "{error}");
        assert!(error.contains(why), "{error}");
    };
    let one = json!({"backup_workers": 1});
    for backup in [4, 5, 1000] {
        let tree = tree(4, &none, &json!({ "backup_workers": backup }));
        refused(&tree, "there are 4 workers, and a step needs one at least");
    }
    let with = |path: &str, value: Value| {
        let mut tree = tree(4, &none, &one);
        *tree.pointer_mut(path).expect("it is there") = value;
        tree
    };
    refused(&with("/workload/parallelism", json!({"dp": 4, "zero": 1})), "needs all ranks");
    for (key, value) in [("lag", 1), ("every", 4)] {
        let mut tree = tree(4, &none, &one);
        tree["workload"][key] = json!(value);
        refused(&tree, if key == "lag" { "applied later" } else { "train apart" });
    }
    let mut coordinated = tree(4, &none, &one);
    coordinated["schedule"]["coordination"] = json!({"policy": "central"});
    refused(&coordinated, "until every rank");
    let servers = json!({"exchange": "parameter_server", "backup_workers": 1,
                         "servers": {"synchronous": false}});
    refused(&tree(4, &none, &servers), "wait for none");
    // What is advised there runs.
    let error = run(&tree(4, &none, &servers)).expect_err("as before").report();
    let waiting = "servers: {synchronous: true}";
    assert!(error.hint.contains(waiting), "{}", error.hint);
    let mut servers = servers;
    servers["servers"]["synchronous"] = json!(true);
    run(&tree(4, &none, &servers)).expect("servers that wait have backup workers");
    let servers = json!({"exchange": "parameter_server", "backup_workers": 4});
    refused(&tree(4, &none, &servers), "there are 4 workers");
    let never = json!([{"ranks": [1], "factor": 2.0, "probability": 0.0}]);
    let error = run(&tree(4, &never, &json!({}))).expect_err("never is no probability").to_string();
    assert!(error.contains("workload.stragglers[0].probability"), "{error}");
}
