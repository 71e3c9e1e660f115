//! How long it takes to run all coordinators of a job of 27,600 ranks. Nothing fails on a time.
//!
//! `cargo run --release -p allrail-simulate --example coordination_speed [policy [steps [ranks]]]`: 160
//! tensors a step of 150 ms, cycles of 1 ms, other orders on all ranks, which are up to 1 ms apart. Wall
//! time, and the largest memory of the process so far.
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::ops::ControlFlow;
use std::time::Instant;

use allrail_simulate::TrainingScenario;
use allrail_simulate::training::simulate;
use serde_json::{Value, json};

const RANKS: u32 = 27_600;
const TENSORS: u64 = 160;

/// The largest resident memory of the process so far.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "?".to_owned(), |peak| peak.trim().to_owned())
}

/// Steps of 150 ms, of which the last two thirds are the backward pass; an exchange takes 50 us, and its bytes
/// at 10 GB/s.
fn scenario(policy: &str, steps: u32, ranks: u32) -> Value {
    let compute = |us: u64| json!({"compute": format!("{us} us")});
    let offset = |tensor: u64| 50_000 + tensor * 99_000 / TENSORS;
    let mut all = vec![compute(50_000)];
    for tensor in 0..TENSORS {
        all.push(json!({"all_reduce": "600 KB", "over": "data", "background": true,
                        "tensor": TENSORS - 1 - tensor, "name": format!("t{tensor}")}));
        let end = if tensor + 1 == TENSORS { 150_000 } else { offset(tensor + 1) };
        all.push(compute(end - offset(tensor)));
    }
    json!({
        "schema_version": 1,
        "fabric": {"name": "server", "dimensions": [{"kind": "switch", "size": ranks, "links": 1,
            "bandwidth": "10 GB/s", "latency": "0 ns", "in_network_reduction": true}]},
        "workload": {"iterations": steps, "model": {"steps": {
            "ranks": [{"rank": ranks}], "groups": {"data": ["rank"]}, "steps": {"all": all}}}},
        "schedule": {"policy": "baseline", "chunks": 1, "composition": "merged",
            "tensor": {"policy": "fifo", "start_overhead": "50 us"},
            "coordination": {"policy": policy, "skew": "900 us"}},
        "network_model": "dims",
        "seed": 1,
    })
}

fn main() {
    println!("ranks  policy       steps  asked    wall     messages  cycles left out  peak");
    for (name, steps, asked) in
        [("cached", 100, "60 s"), ("central", 10, "60 s"), ("tree", 10, "-"), ("agreed", 10, "-")]
    {
        let only: Option<String> = std::env::args().nth(1);
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let ranks = std::env::args().nth(3).and_then(|n| n.parse().ok()).unwrap_or(RANKS);
        let steps = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(steps);
        let scenario = scenario(name, steps, ranks).to_string();
        let scenario = TrainingScenario::from_json(&scenario).expect("a scenario");
        let start = Instant::now();
        let result = simulate(&scenario, false, &mut |_, _| ControlFlow::Continue(()));
        let result = result.expect("it runs");
        let talk = result.coordinators.expect("they talk");
        println!(
            "{ranks}  {name:<11}  {steps:>5}  {asked:<5}  {:>6.1} s  {:>11}  {:>15}  {}   step {:.1} ms",
            start.elapsed().as_secs_f64(),
            talk.messages,
            talk.cycles_left_out,
            peak(),
            result.step_time_us / 1e3,
        );
    }
}
