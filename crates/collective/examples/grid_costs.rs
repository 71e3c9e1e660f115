//! What the all-reduces over grids cost on a torus, in closed form.
//!
//! `cargo run -p allrail-collective --example grid_costs`
//!
//! `share` compares with half of what an NPU's four links inject, as `HammingMesh` (SC'22, Table II)
//! does: without latencies (p/(p − 1) at best, as the last 1/p of a buffer need not be sent), and of
//! 1 GiB and 16 MiB over four links of 400 Gb/s with 1 µs a step.

#![allow(clippy::print_stdout, reason = "an example prints")]

use allrail_collective::grid::{self, GridAllReduce, GridCost, LinkCost};
use allrail_core::{Bandwidth, Bytes, Time};

const SHAPES: [(u32, u32); 8] =
    [(4, 4), (8, 4), (9, 3), (16, 8), (16, 16), (32, 32), (64, 64), (128, 128)];

fn main() {
    println!("{}", header());
    for (rows, columns) in SHAPES {
        for algorithm in grid::ALL.iter().filter(|one| one.check(rows, columns).is_ok()) {
            println!("{}", row(*algorithm, rows, columns));
        }
    }
}

fn header() -> String {
    format!(
        "{:<8} {:<13} {:>6} {:>11} {:>9} {:>8} {:>8} {:>8}",
        "grid", "algorithm", "steps", "link_of_S", "in_step", "share_%", "1GiB_%", "16MiB_%"
    )
}

fn row(algorithm: &dyn GridAllReduce, rows: u32, columns: u32) -> String {
    let cost = algorithm.cost(rows, columns);
    let head =
        format!("{:<8} {:<13} {:>6}", format!("{rows}x{columns}"), algorithm.tag(), cost.steps);
    let Some(LinkCost { bytes, in_step }) = cost.link else {
        return format!("{head} {:>11} {:>9}", "by routing", "");
    };
    let of = |(above, below): (u64, u64)| above as f64 / below as f64;
    let shares = [cost.share_of_peak(), share(&cost, 1 << 30), share(&cost, 16 << 20)]
        .map(|share| format!("{:>8.2}", 100.0 * share.unwrap_or(f64::NAN)));
    format!("{head} {:>11.4} {:>9.4} {}", of(bytes), of(in_step), shares.join(" "))
}

/// With 1 µs a step and 400 Gb/s a link.
fn share(cost: &GridCost, size: u64) -> Option<f64> {
    let link = Bandwidth::from_bytes_per_second(50_000_000_000)?;
    let time = cost.time(Bytes::new(size), Time::from_us(1), link)?;
    Some(link.time_for(Bytes::new(size / 2))?.ratio(time))
}
