//! When parameters are updated: in one step, or each with its own gradient.

use std::ops::ControlFlow;

use allrail_schedule::tensor;
use allrail_simulate::TrainingScenario;
use allrail_simulate::training::{SpanResult, TrainingResult, simulate};
use proptest::prelude::*;
use serde_json::{Value, json};

/// 8 NPUs at 100 GB/s without latency; layers of (forward us, backward us, parameters) in 32 bits, and SGD at
/// 1 TB/s: 12 bytes a parameter.
fn run(layers: &[(u64, u64, u64)], tensor: &Value, updates: Option<&str>) -> TrainingResult {
    let layer = |(place, (forward, backward, parameters)): (usize, &(u64, u64, u64))| {
        json!({"name": format!("layer{place}"), "flops": 0, "parameters": parameters, "output": 1,
               "forward": format!("{forward} us"), "backward": format!("{backward} us")})
    };
    let layers: Vec<Value> = layers.iter().enumerate().map(layer).collect();
    let mut tree = json!({
        "schema_version": 1,
        "fabric": {"name": "switch", "dimensions": [
            {"kind": "switch", "size": 8, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"},
        ]},
        "workload": {"model": {"layers": layers}, "batch_per_replica": 1, "precision": "fp32",
            "optimizer": "sgd", "iterations": 3, "parallelism": {"dp": 8},
            "compute": {"peak": "1 TFLOP/s", "memory_bandwidth": "1 TB/s"}},
        "schedule": {"chunks": 1, "tensor": tensor},
    });
    if let Some(updates) = updates {
        tree["workload"]["updates"] = json!(updates);
    }
    let scenario = TrainingScenario::from_json(&tree.to_string()).expect("a scenario");
    simulate(&scenario, true, &mut |_, _| ControlFlow::Continue(())).expect("it runs")
}

fn policy(tag: &str) -> Value {
    json!({ "policy": tag })
}

/// Gradients of 8 MB take 140 us, updates 24 us.
#[test]
fn as_worked_out_by_hand() {
    let layers = [(100, 200, 2_000_000); 2];
    let time = |tensor, updates| run(&layers, &tensor, updates).steps_us;
    // The second gradient is there at 740, then both are updated.
    assert_eq!(time(policy("fifo"), None), [788.0; 3]);
    assert_eq!(time(policy("fifo"), Some("together")), [788.0; 3]);
    // One gradient is there at 540, and updated once the backward pass leaves room, at 600.
    assert_eq!(time(policy("fifo"), Some("each")), [764.0; 3]);
    // Nothing waits for all gradients, so the first layer's forward pass needs its own update alone.
    let crossing = json!({"policy": "fifo", "barrier": false});
    assert_eq!(time(crossing.clone(), None), time(crossing, Some("each")));
}

/// A policy that crosses the barrier updates each, the others all together; whatever is said holds.
#[test]
fn policies_with_a_barrier_step_once() {
    let layers = [(50, 100, 3_000_000), (80, 60, 9_000_000), (30, 90, 1_000_000)];
    for policy in tensor::ALL {
        let tree = json!({"policy": policy.tag()});
        let usual = if policy.crosses_barrier() { "each" } else { "together" };
        let [left_out, usual] =
            [None, Some(usual)].map(|updates| run(&layers, &tree, updates).steps_us);
        assert_eq!(left_out, usual, "{}", policy.tag());
        let [together, each] =
            ["together", "each"].map(|updates| run(&layers, &tree, Some(updates)));
        // What is packed into one buffer is there at one time, too.
        assert!(together.step_time_us >= each.step_time_us, "{}", policy.tag());
        assert_eq!(together.compute_us, each.compute_us, "{}", policy.tag());
    }
}

fn of(result: &TrainingResult, iteration: u32, updates: bool) -> Vec<&SpanResult> {
    let timeline = result.timeline.as_ref().expect("asked for").iter();
    let kind = |span: &&SpanResult| match updates {
        true => span.pass == Some("update"),
        false => span.purpose.is_some() || span.pass == Some("backward"),
    };
    timeline.filter(|span| span.iteration == iteration).filter(kind).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Together: none is updated before the last gradient is there and the backward pass is over.
    #[test]
    fn no_update_runs_beside_an_exchange(
        layers in prop::collection::vec((1u64..300, 1u64..300, 1_000u64..20_000_000), 1..7),
        which in 0..tensor::ALL.len(),
    ) {
        let result = run(&layers, &policy(tensor::ALL[which].tag()), Some("together"));
        for iteration in 0..3 {
            let end = |span: &&SpanResult| span.end_us;
            let last = of(&result, iteration, false).iter().map(end).fold(0.0, f64::max);
            let updates = of(&result, iteration, true);
            prop_assert_eq!(updates.len(), layers.len());
            for update in updates {
                prop_assert!(update.start_us >= last - 1e-6, "{}: {} before {last}", update.name, update.start_us);
            }
        }
    }
}

/// Where it would do nothing it is refused.
#[test]
fn it_is_refused_where_something_else_says_when() {
    let fabric = json!({"name": "switch", "dimensions": [
        {"kind": "switch", "size": 2, "links": 1, "bandwidth": "100 GB/s", "latency": "0 ns"},
    ]});
    let layer = json!({"name": "one", "flops": 1, "parameters": 1000, "output": 1});
    let steps =
        json!({"ranks": [{"rank": 2}], "groups": {}, "steps": {"ranks": [{"compute": "1 us"}]}});
    let cases = [
        (json!({"model": {"steps": steps}, "updates": "together"}), "its own updates"),
        (
            json!({"model": {"layers": [layer]}, "batch_per_replica": 1, "every": 4, "updates": "each"}),
            "backward pass is over",
        ),
    ];
    for (workload, why) in cases {
        let tree = json!({"schema_version": 1, "fabric": fabric, "workload": workload});
        let error = TrainingScenario::from_json(&tree.to_string()).expect_err("refused").report();
        assert_eq!(error.field, "workload.updates");
        assert!(error.why.contains(why), "{}", error.why);
    }
}
