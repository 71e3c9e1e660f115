//! Trees of a network, as algorithms of its one dimension: at the bound in every network model, and chosen where an
//! algorithm is open.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use allrail_simulate::collectives::{plan, simulate};
use allrail_simulate::{CollectiveScenario, SimulationResult};
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [&str; 3] = ["all_gather", "reduce_scatter", "all_reduce"];

fn read(tree: &Value) -> CollectiveScenario {
    CollectiveScenario::from_json(&tree.to_string()).expect("a scenario")
}

fn run(tree: &Value) -> SimulationResult {
    simulate(&read(tree), None, false, &mut |_, _| ControlFlow::Continue(())).expect("it runs")
}

fn scenario(fabric: &Value, model: &str, kind: &str, size: &str) -> Value {
    json!({"schema_version": 1, "fabric": fabric, "network_model": model,
        "collective": [{"kind": kind, "size": size}], "schedule": {"policy": "baseline"}})
}

fn with(mut tree: Value, key: &str, value: Value) -> Value {
    tree["schedule"][key] = value;
    tree
}

fn torus_less_a_cable() -> Value {
    json!({"topology": "torus", "shape": [4, 4], "failed_links": [[0, 1]],
        "link": {"bandwidth": "50 GB/s", "latency": "0 ns"}})
}

/// 6,711 us are the bound by cuts; a ring took 20,550.
#[test]
fn a_torus_less_a_cable_is_at_its_bound() {
    let fabric = torus_less_a_cable();
    let time = |kind| run(&scenario(&fabric, "flows", kind, "1 GiB")).time_us;
    assert!(time("all_gather") <= 6_850.0, "{}", time("all_gather"));
    assert!(time("reduce_scatter") <= 6_850.0, "{}", time("reduce_scatter"));
    assert!(time("all_reduce") <= 2.04 * 6_711.0, "{}", time("all_reduce"));
}

/// Two boxes of four, each with a switch inside, and a NIC an NPU but for one.
fn boxes() -> Value {
    let mut links = Vec::new();
    for npu in 0..8 {
        let name = format!("p{npu}");
        links.push(json!({"from": name, "to": format!("box{}", npu / 4), "bandwidth": "450 GB/s"}));
        if npu != 0 {
            links.push(json!({"from": name, "to": "spine", "bandwidth": "25 GB/s"}));
        }
    }
    let names: Vec<String> = (0..8).map(|npu| format!("p{npu}")).collect();
    json!({"topology": "graph", "npus": names, "switches": ["box0", "box1", "spine"],
        "links": links, "link": {"latency": "0 ns"}})
}

/// Both ways between two NPUs of a box have two cables, one of them through NICs.
#[test]
fn messages_take_the_ways_of_their_trees() {
    for kind in ["all_gather", "reduce_scatter"] {
        for model in ["dims", "flows"] {
            let tree = scenario(&boxes(), model, kind, "1 GiB");
            let result = run(&with(tree, "algorithms", json!(["trees"])));
            let times = result.time_us / result.bound_time_us;
            assert!((1.0..1.05).contains(&times), "{kind} in {model}: {times}");
        }
    }
}

#[test]
fn packets_and_dims_are_near_it() {
    let fabric = torus_less_a_cable();
    let most = [("dims", "1 GiB", 1.02), ("packets", "16 MiB", 1.08)];
    for kind in KINDS {
        for (model, size, most) in most {
            let tree = scenario(&fabric, model, kind, size);
            let result = run(&with(tree, "algorithms", json!(["trees"])));
            // The bound of an all-reduce is lower than what any is known to reach.
            let bound = match kind {
                "all_reduce" => {
                    2.0 * run(&scenario(&fabric, model, "all_gather", size)).bound_time_us
                }
                _ => result.bound_time_us,
            };
            let times = result.time_us / bound;
            assert!(
                result.time_us >= result.bound_time_us && times < most,
                "{kind} in {model}: {times}"
            );
        }
    }
}

/// A saved plan has the program, and is simulated as it was made.
#[test]
fn a_plan_carries_its_trees() {
    let tree = scenario(&torus_less_a_cable(), "flows", "all_reduce", "4 MiB");
    let scenario = read(&tree);
    let made = plan(&scenario).expect("a plan");
    assert_eq!(made.plans[0].algorithms, ["trees"]);
    let text = serde_json::to_string(&made).expect("it is data");
    let again = serde_json::from_str(&text).expect("it is read back");
    assert!(serde_json::to_string(&again).expect("it is data") == text, "it is another");
    let watch = &mut |_, _| ControlFlow::Continue(());
    let planned = simulate(&scenario, Some(&again), false, watch).expect("it runs");
    assert_eq!(planned.time_us, run(&tree).time_us);
}

#[test]
fn trees_that_are_not_there_are_refused_by_name() {
    let refused = |fabric: Value, kind: &str, dimensions: usize| {
        let named = json!(vec!["trees"; dimensions]);
        let tree = with(scenario(&fabric, "flows", kind, "1 MiB"), "algorithms", named);
        let watch = &mut |_, _| ControlFlow::Continue(());
        simulate(&read(&tree), None, false, watch).expect_err("refused").to_string()
    };
    let torus = torus_less_a_cable();
    assert!(refused(torus, "broadcast", 1).contains("`broadcast`"));
    let whole = json!({"topology": "torus", "shape": [4, 4],
        "link": {"bandwidth": "50 GB/s", "latency": "0 ns"}});
    assert!(refused(whole, "all_gather", 2).contains("several dimensions"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// NPUs joined by cables of unequal rates, latencies among them.
    #[test]
    fn trees_are_near_the_bound_of_any_cables(
        npus in 4u32..10,
        path in prop::collection::vec(1u64..=4, 9),
        more in prop::collection::vec((0u32..10, 1u32..10, 1u64..=4), 0..12),
        kind in 0usize..3,
    ) {
        let path = (1..npus).zip(&path).map(|(npu, rate)| (npu - 1, npu, *rate));
        let more = more.iter().map(|(a, by, rate)| (a % npus, (a + by) % npus, *rate));
        let mut cables: BTreeMap<[u32; 2], u64> = BTreeMap::new();
        for (a, b, rate) in path.chain(more.filter(|(a, b, _)| a != b)) {
            *cables.entry([a.min(b), a.max(b)]).or_default() += rate;
        }
        let links: Vec<Value> = cables
            .into_iter()
            .map(|([from, to], rate)| json!({"from": from.to_string(), "to": to.to_string(),
                "bandwidth": format!("{rate} GB/s")}))
            .collect();
        let names: Vec<String> = (0..npus).map(|npu| npu.to_string()).collect();
        let fabric = json!({"topology": "graph", "npus": names, "links": links,
            "link": {"latency": "10 ns"}});
        let tree = scenario(&fabric, "flows", KINDS[kind], "256 MiB");
        let trees = run(&with(tree, "algorithms", json!(["trees"])));
        let bound = match KINDS[kind] {
            "all_reduce" => {
                2.0 * run(&scenario(&fabric, "dims", "all_gather", "256 MiB")).bound_time_us
            }
            _ => trees.bound_time_us,
        };
        prop_assert!(trees.time_us >= trees.bound_time_us);
        prop_assert!(trees.time_us <= 1.05 * bound, "{} for {bound}", trees.time_us);
    }
}
