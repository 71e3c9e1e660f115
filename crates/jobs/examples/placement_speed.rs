//! How fast jobs are placed: one job on a whole mesh of 1000 × 1000 boards, and a full mix of about
//! 200,000 jobs on it. `cargo run --release -p allrail-jobs --example placement_speed [mix.yaml]`
//! prints the best of some runs on one core. Without a mix, sizes are 2^k with weight 4^-k.

#![allow(clippy::print_stdout, reason = "it prints what it measured")]

use std::time::{Duration, Instant};

use allrail_fabric::placement::{Choice, Unit};
use allrail_jobs::placement::{Histogram, Mixes, Options, place, read_floor};

fn best<T>(runs: u32, mut work: impl FnMut() -> T) -> Duration {
    let one = |_| {
        let started = Instant::now();
        std::hint::black_box(work());
        started.elapsed()
    };
    (0..runs).map(one).min().expect("there are runs")
}

fn histogram() -> Histogram {
    let mut rows: Vec<(u64, u64)> = (0..10).map(|k| (1 << k, 4u64.pow(9 - k))).collect();
    if let Some(file) = std::env::args().nth(1) {
        let text = std::fs::read_to_string(file).expect("the mix can be read");
        let lines = text.lines().skip_while(|line| !line.starts_with("jobs:")).skip(1);
        rows = lines
            .filter_map(|line| line.trim().split_once(": "))
            .map(|(size, jobs)| (size.parse().expect("a size"), jobs.parse().expect("jobs")))
            .collect();
    }
    Histogram::new(&rows).expect("a histogram of jobs")
}

fn main() {
    let fabric = serde_json::json!({ "topology": "hammingmesh", "board": [2, 2],
                                     "grid": [1000, 1000], "switch_radix": 64 });
    let floor = read_floor(&fabric).expect("a mesh");
    let plain = Options::default();
    for side in [1000u32, 500] {
        let time = best(20, || place(&floor, &mut floor.empty(), &[side * side], plain));
        println!("one job of {side} x {side} boards: {:.3} ms", 1e3 * time.as_secs_f64());
    }
    let sizes = histogram().on(&floor, Unit::Boards).expect("jobs that fit");
    let jobs = Mixes::new(sizes, 0).next().expect("mixes never end");
    let choice = Choice { transpose: true, aspect: Some(8) };
    for (name, options) in [
        ("as they come, plain", plain),
        ("sorted, transpose, aspect 8", Options { choice, sort: true, locality: false }),
        ("as they come, transpose, aspect 8", Options { choice, sort: false, locality: false }),
        ("sorted, transpose, aspect 8, locality", Options { choice, sort: true, locality: true }),
        (
            "as they come, transpose, aspect 8, locality",
            Options { choice, sort: false, locality: true },
        ),
    ] {
        let mut used = 0.0;
        let time = best(2, || {
            used = place(&floor, &mut floor.empty(), &jobs, options).boards() as f64 / 1e4;
        });
        println!("{} jobs {name}: {:.3} s, {used:.2} % used", jobs.len(), time.as_secs_f64());
    }
}
