//! How fast sums are: gigabytes a second of what is held, in cache and beyond it.
//!
//!     cargo run --release -p allrail-engine --example reduce_speed
//!
//! The best of seven blocks for each element type.

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use allrail_engine::Dtype;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{:<10}{:>12}{:>12}", "GB/s", "256 KiB", "16 MiB")?;
    for dtype in Dtype::ALL {
        let speed = |bytes: usize| {
            let (mut held, came) = (vec![0u8; bytes], vec![0u8; bytes]);
            let rounds = (1 << 28) / bytes;
            let mut least = Duration::MAX;
            for _ in 0..7 {
                let begun = Instant::now();
                for _ in 0..rounds {
                    dtype.add(black_box(&mut held), black_box(&came));
                }
                least = least.min(begun.elapsed());
            }
            (rounds * bytes) as f64 / least.as_secs_f64() / 1e9
        };
        let (small, large) = (speed(256 << 10), speed(16 << 20));
        writeln!(out, "{:<10}{small:>12.1}{large:>12.1}", dtype.name())?;
    }
    Ok(())
}
