//! What `search` promises on any fabric, in every network model: it never ends after Themis or the baseline there.
//!
//! - Under its own order (`planned`), never after either of them first come, first served, smallest first or
//!   planned: so never after what they do by default.
//! - Under an order that it is told, never after either of them under that order.
//!
//! A few pinned seeds; `LAW_FABRICS=60` tries more, and `--nocapture` prints the rows.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use allrail_simulate::collectives::simulate;
use allrail_simulate::{CollectiveScenario, PlanFile, SimulateError};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

const MODELS: [&str; 4] = ["dims", "links", "flows", "packets"];
const RIVALS: [&str; 2] = ["baseline", "themis"];
/// Of networks whose ranks are not alike: an order that all ranks share takes 2 to 11 % longer there than the run
/// that it was read off.
const UNLIKE: [u64; 3] = [4, 9, 28];
/// What a user would run.
const ORDERS: [&str; 3] = ["fifo", "smallest_first", "planned"];

/// One to three dimensions of up to 64 NPUs in all.
fn dimensions(rng: &mut Pcg64Mcg) -> Value {
    let count = rng.random_range(2..=3);
    let mut npus = 1;
    let mut dimensions = Vec::new();
    for _ in 0..count {
        let size = rng.random_range(2..=(48 / npus).clamp(2, 6));
        npus *= size;
        let kind = *["ring", "fully_connected", "switch"].choose(rng).expect("some");
        // Ratios of bandwidths up to a hundred.
        let gbps = (100.0 * 10f64.powf(rng.random_range(0.0..2.0))).round();
        let latency = *[0, 20, 700, 1_700].choose(rng).expect("some");
        dimensions.push(json!({"kind": kind, "size": size, "links": rng.random_range(1..=4),
            "bandwidth": format!("{gbps} Gb/s"), "latency": format!("{latency} ns")}));
    }
    json!({"name": "drawn", "dimensions": dimensions})
}

/// A network of cables, now and then with one that failed.
fn cables(rng: &mut Pcg64Mcg) -> Value {
    let mut side = || rng.random_range(2..=4);
    let two = [side(), side()];
    let topologies = [
        json!({"topology": "hammingmesh", "board": [2, 2], "grid": [2, 2]}),
        json!({"topology": "torus", "shape": two}),
        json!({"topology": "hyperx", "shape": two}),
        json!({"topology": "torus", "shape": [3, 4], "failed_links": [[0, 1]]}),
        json!({"topology": "fat_tree", "npus": 24, "switch_radix": 8, "levels": 2}),
    ];
    topologies.choose(rng).expect("some").clone()
}

/// A scenario but for its policy, order and model.
fn drawn(seed: u64) -> Value {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let fabric = if rng.random_bool(0.3) { cables(&mut rng) } else { dimensions(&mut rng) };
    let kind = *["all_reduce", "all_reduce", "reduce_scatter", "all_gather"]
        .choose(&mut rng)
        .expect("some");
    let bytes = 10f64.powf(rng.random_range(5.0..6.5)).round();
    json!({
        "schema_version": 1,
        "fabric": fabric,
        "collective": [{"kind": kind, "size": format!("{bytes} B")}],
        "schedule": {"chunks": *[2, 3, 4, 7, 8, 12].choose(&mut rng).expect("some")},
        "packets": {"packet": "4 KiB"},
        "seed": seed,
    })
}

fn time(tree: &Value, model: &str, policy: &str, order: &str) -> Result<f64, SimulateError> {
    let mut tree = tree.clone();
    tree["network_model"] = json!(model);
    tree["schedule"]["policy"] = json!(policy);
    tree["schedule"]["order"] = json!(order);
    let scenario = CollectiveScenario::from_json(&tree.to_string())?;
    simulate(&scenario, None, false, &mut |_, _| ControlFlow::Continue(())).map(|r| r.time_us)
}

#[derive(Default)]
struct Row {
    compared: u32,
    below: Vec<String>,
    /// The least of the rivals' times over the search's, of each fabric.
    gains: Vec<f64>,
}

/// Where a common order costs, the plan file says which order is quicker, and does when it is read again.
#[test]
fn an_order_that_ranks_do_not_share_is_in_the_plan() {
    let mut tree = drawn(28);
    // Trees, which would be chosen, have one order.
    tree["schedule"]["algorithms"] = json!(["ring"]);
    tree["network_model"] = json!("links");
    tree["schedule"]["policy"] = json!("search");
    tree["schedule"]["order"] = json!("planned");
    let scenario = CollectiveScenario::from_json(&tree.to_string()).expect("a scenario");
    let file = allrail_simulate::plan(&scenario).expect("a plan");
    assert!(file.free_order.is_some_and(|order| !order.keeps_to_plans()), "{:?}", file.free_order);
    let text = serde_json::to_string(&file).expect("plain data");
    let read = PlanFile::from_json(&text).expect("a good plan");
    let run = |plan: Option<&PlanFile>| {
        simulate(&scenario, plan, false, &mut |_, _| ControlFlow::Continue(()))
            .expect("it runs")
            .time_us
    };
    let strict = PlanFile { free_order: None, ..read.clone() };
    assert_eq!(run(None), run(Some(&read)));
    assert!(run(Some(&strict)) > 1.02 * run(Some(&read)));
    // All ranks of a fabric of dimensions are alike.
    tree["schedule"]["algorithms"] = Value::Null;
    tree["fabric"] = json!({"name": "alike", "dimensions": [
        {"kind": "ring", "size": 4, "links": 2, "bandwidth": "400 Gb/s", "latency": "700 ns"},
        {"kind": "switch", "size": 4, "links": 1, "bandwidth": "100 Gb/s", "latency": "1700 ns"},
    ]});
    let alike = CollectiveScenario::from_json(&tree.to_string()).expect("a scenario");
    assert_eq!(allrail_simulate::plan(&alike).expect("a plan").free_order, None);
}

#[test]
#[expect(clippy::print_stdout, reason = "the rows, for whoever asks")]
fn on_any_fabric_in_every_model() {
    let number = |key| std::env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LAW_FIRST_SEED").unwrap_or(0);
    let seeds: Vec<u64> = match number("LAW_FABRICS") {
        Some(count) => (first..first + count).collect(),
        None => [&UNLIKE[..], &[1]].concat(),
    };
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for seed in seeds {
        let tree = drawn(seed);
        let order = ["planned", "planned", "fifo", "smallest_first"][seed as usize % 4];
        let beside = if order == "planned" { &ORDERS[..] } else { &[order][..] };
        for model in MODELS {
            let ours =
                time(&tree, model, "search", order).unwrap_or_else(|e| panic!("{tree}: {e}"));
            let row = rows.entry(model).or_default();
            let mut least = f64::INFINITY;
            for (rival, beside) in RIVALS.iter().flat_map(|r| beside.iter().map(move |o| (r, o))) {
                let theirs = time(&tree, model, rival, beside).expect("it runs as well");
                least = least.min(theirs);
                row.compared += 1;
                if ours > theirs {
                    let off = 100.0 * (ours / theirs - 1.0);
                    row.below.push(format!(
                        "seed {seed}, {order}: {ours} us; {rival}, {beside}: {theirs} us, {off:.2} % less; {tree}"
                    ));
                }
            }
            row.gains.push(least / ours);
        }
    }
    let mut below = 0;
    for (model, row) in &rows {
        let mean = row.gains.iter().sum::<f64>() / row.gains.len() as f64;
        let most = row.gains.iter().copied().fold(0.0, f64::max);
        println!(
            "`search` below Themis or baseline in `{model}`: {} of {} comparisons on {} fabrics; the best of both takes \
             {mean:.4} times as long on average, {most:.3} times at most",
            row.below.len(),
            row.compared,
            row.gains.len()
        );
        for line in &row.below {
            println!("  {line}");
        }
        below += row.below.len();
    }
    assert_eq!(below, 0);
}
