//! One scenario has one job, and is read as one of any kind or as one of the kind that is needed.

use std::ops::ControlFlow;

use allrail_simulate::{
    CollectiveScenario, Job, Options, Outcome, Scenario, SimulateError, TrafficScenario,
    TrainingScenario, simulate,
};
use serde_json::{Value, json};

/// The three kinds on one network: key, job.
fn jobs() -> [(&'static str, Value); 3] {
    let layer = json!({"name": "one", "dense": {"inputs": 64, "outputs": 64}});
    [
        ("collective", json!([{"kind": "all_reduce", "size": "1 MB"}])),
        (
            "workload",
            json!({
                "model": {"layers": [layer]},
                "compute": {"forward": "1 ms", "backward": "2 ms"},
                "batch_per_replica": 1,
                "precision": "fp32",
            }),
        ),
        ("traffic", json!({"pattern": "permutation", "size": "1 MB"})),
    ]
}

fn with(jobs: &[(&str, Value)]) -> String {
    let mut tree = json!({
        "schema_version": 1, "fabric": {"topology": "torus", "shape": [4, 4]}, "network_model": "flows",
    });
    for (key, job) in jobs {
        tree[key] = job.clone();
    }
    tree.to_string()
}

fn field<T: std::fmt::Debug>(read: Result<T, SimulateError>) -> String {
    read.expect_err("it is refused").report().field
}

#[test]
fn every_kind_is_read_by_one_function_and_simulated_by_one() {
    for (key, job) in jobs() {
        let text = with(&[(key, job)]);
        let scenario: Scenario = Scenario::from_json(&text).expect(key);
        let kind = match &scenario.job {
            Job::Collectives(_) => "collective",
            Job::Workload(_) => "workload",
            Job::Traffic(_) => "traffic",
            job => panic!("of which kind is {job:?}?"),
        };
        assert_eq!(kind, key);
        let mut go_on = |_, _| ControlFlow::Continue(());
        let outcome = simulate(scenario, &Options::default(), &mut go_on).expect(key);
        let tree = serde_json::to_value(&outcome).expect("plain data");
        let time = match outcome {
            Outcome::Collectives(result) => (result.time_us, "time_us"),
            Outcome::Workload(result) => (result.step_time_us, "step_time_us"),
            Outcome::Traffic(result) => (result.time_us, "time_us"),
            outcome => panic!("of which kind is {outcome:?}?"),
        };
        assert!(time.0 > 0.0, "{key}");
        assert_eq!(
            tree[time.1],
            json!(time.0),
            "{key}: the result's own keys, without a name of its kind"
        );
    }
}

#[test]
fn another_kind_is_refused_by_its_key() {
    for (key, job) in jobs() {
        let text = with(&[(key, job)]);
        let kinds = [
            ("collective", CollectiveScenario::from_json(&text).map(|_| ())),
            ("workload", TrainingScenario::from_json(&text).map(|_| ())),
            ("traffic", TrafficScenario::from_json(&text).map(|_| ())),
        ];
        for (needed, read) in kinds {
            match needed == key {
                true => read.expect("the kind that it is"),
                false => assert_eq!(field(read), key),
            }
        }
    }
}

#[test]
fn two_jobs_are_refused_and_none_is_missed() {
    let all = jobs();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let text = with(&[all[one].clone(), all[other].clone()]);
        assert_eq!(field(Scenario::<Job>::from_json(&text)), all[other].0);
    }
    assert_eq!(field(Scenario::<Job>::from_json(&with(&[]))), "collective");
}
