//! An engine that never stops: so many events as given (default 100,000,000), and the memory of the process
//! on the way, which must stay as it is.
//!
//! `cargo run --release -p allrail-engine --example soak [EVENTS]`
//!
//! A third of the events goes to a job with a tagged transport, one to a job whose ranks agree on everything
//! through a coordinator, and one to calls without a name. Memory is what Linux says of the process (0 elsewhere).

#![allow(clippy::print_stdout, reason = "a table is what it is for")]

mod job;

use std::process::ExitCode;
use std::time::Instant;

use job::{Job, Load};

/// Resident memory in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).map_or(Ok(100_000_000u64), |text| text.parse());
    let Ok(wanted) = wanted else {
        println!("soak [EVENTS]: a number of events");
        return ExitCode::from(2);
    };
    let report = (wanted / 10).max(1);
    let loads = [Load::Tagged, Load::Common, Load::Calls];
    let mut jobs = loads.map(|load| Job::new(&[2, 2], 4, load));
    let start = Instant::now();
    let (mut next, mut first) = (report, None);
    println!("{:>12} {:>9} {:>9}", "events", "RSS KiB", "s");
    loop {
        if let Some(laziest) = jobs.iter_mut().min_by_key(|job| job.events) {
            laziest.step();
        }
        let events = jobs.iter().map(|job| job.events).sum::<u64>();
        if events < next {
            continue;
        }
        let resident = resident();
        println!("{events:>12} {resident:>9} {:>9.1}", start.elapsed().as_secs_f64());
        next += report;
        let first = *first.get_or_insert(resident);
        if events >= wanted {
            // A page here and there is the allocator's.
            let is_flat = resident <= first + first / 20;
            println!("{}", if is_flat { "flat" } else { "it grows" });
            return if is_flat { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
}
