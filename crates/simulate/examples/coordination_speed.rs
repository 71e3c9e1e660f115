//! How long it takes to run all coordinators of a job of 27,600 ranks. Nothing fails on a time.
//!
//! `cargo run --release -p allrail-simulate --example coordination_speed [policy [steps [ranks]]]`: 160
//! tensors a step of 150 ms, cycles of 1 ms, other orders on all ranks, which are up to 1 ms apart. Wall
//! time, and the largest memory of the process so far.
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::time::Instant;

use allrail_core::{Bandwidth, Bytes, Time};
use allrail_schedule::coordinate::{self, Job, Settings};
use allrail_simulate::coordination::Latency;
use allrail_simulate::coordination::steps::{Exchange, Step, run};

const RANKS: u32 = 27_600;
const TENSORS: u64 = 160;

/// The largest resident memory of the process so far.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "?".to_owned(), |peak| peak.trim().to_owned())
}

fn main() {
    // The last two thirds of a step are the backward pass.
    let offsets = (0..TENSORS).map(|tensor| Time::from_us(50_000 + tensor * 99_000 / TENSORS));
    let step = Step {
        compute: Time::from_us(150_000),
        offsets: offsets.collect(),
        bytes: vec![Bytes::new(600_000); TENSORS as usize],
        skew: Time::from_us(900),
        exchange: Exchange {
            slowdown: 0.0,
            latency: Time::from_us(50),
            bandwidth: Bandwidth::from_bytes_per_second(10_000_000_000).expect("not zero"),
        },
        lag: 0,
    };
    println!("ranks  policy       steps  asked    wall     messages  cycles left out  peak");
    for (name, steps, asked) in [
        ("cached", 100, "60 s"),
        ("coordinator", 10, "60 s"),
        ("tree", 10, "-"),
        ("agreed", 10, "-"),
    ] {
        let only: Option<String> = std::env::args().nth(1);
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let ranks = std::env::args().nth(3).and_then(|n| n.parse().ok()).unwrap_or(RANKS);
        let steps = std::env::args().nth(2).and_then(|n| n.parse().ok()).unwrap_or(steps);
        let policy = coordinate::named(name).expect("a policy");
        let job = Job::new(policy, &Settings::default(), ranks, &[]).expect("a job");
        let start = Instant::now();
        let outcome = run(policy, &job, Latency::default(), &step, steps, 1).expect("no faults");
        println!(
            "{ranks}  {name:<11}  {steps:>5}  {asked:<5}  {:>6.1} s  {:>11}  {:>15}  {}   step {:.1} ms",
            start.elapsed().as_secs_f64(),
            outcome.messages,
            outcome.skipped,
            peak(),
            outcome.step_us / 1e3,
        );
    }
}
