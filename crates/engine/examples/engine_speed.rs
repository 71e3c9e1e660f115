//! How long an engine takes to decide, per event, and whether it allocates: 160 tensors of 8 parts in each
//! step, or as many calls, on every rank of a small job whose stages take no time.
//!
//! `cargo run --release -p allrail-engine --example engine_speed`
//!
//! An event is one call of `Engine::on` with its `settle`. Steps before the count are left out: until then
//! plans are cut and memory grows to what a step needs.

#![allow(clippy::print_stdout, reason = "a table is what it is for")]

mod job;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::time::Instant;

use job::{Job, Load};

/// The system's allocator, counted.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it came, and counting changes nothing that an
// allocator promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Atomic::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from the system's allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Atomic::Relaxed);
        // SAFETY: `at` came from the system's allocator, with this layout, and the caller keeps the
        // promises of `realloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM: u32 = 3;
const STEPS: u32 = 10;

fn main() {
    println!(
        "{:<8} {:>8} {:>7} {:>10} {:>9} {:>12}",
        "load", "ranks", "chunks", "events", "ns/event", "alloc/event"
    );
    let loads = [("tagged", Load::Tagged), ("common", Load::Common), ("calls", Load::Calls)];
    for (name, load) in loads {
        for (sizes, chunks) in [(&[4][..], 1), (&[4, 2], 4), (&[4, 2, 2], 8)] {
            let mut job = Job::new(sizes, chunks, load);
            for _ in 0..WARM {
                job.step();
            }
            let (events, allocations) = (job.events, ALLOCATIONS.load(Atomic::Relaxed));
            let start = Instant::now();
            for _ in 0..STEPS {
                job.step();
            }
            let elapsed = start.elapsed().as_nanos() as f64;
            let events = (job.events - events) as f64;
            let allocations = (ALLOCATIONS.load(Atomic::Relaxed) - allocations) as f64;
            let shape: Vec<String> = sizes.iter().map(ToString::to_string).collect();
            println!(
                "{name:<8} {:>8} {chunks:>7} {events:>10} {:>9.0} {:>12.5}",
                shape.join("x"),
                elapsed / events,
                allocations / events
            );
        }
    }
}
