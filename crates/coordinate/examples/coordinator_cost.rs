//! What a request costs allrail's own rank 0 under `central`: a list read from bytes, and taken in.
//!
//! ```text
//! cargo run --release -p allrail-coordinate --example coordinator_cost [RANKS [TENSORS]]
//! ```
//!
//! Every rank asks for every tensor; its list is packed, and rank 0 reads and takes in all of them. Printed:
//! nanoseconds a request, the best of several rounds (as noise only adds). 800 ranks and 7 tensors, what a
//! backward pass of ResNet-50 makes ready in a cycle of 5 ms, where nothing is given. Beside it is Horovod's own
//! (`benches/horovod_requests/rank_zero.cc`): there a request has its tensor's name, here a number and a hash.

// A benchmark measures, and prints what it has measured.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allrail_coordinate::central::Central;
use allrail_coordinate::wire::{Limits, decode, encode};
use allrail_coordinate::{
    Action, CYCLE, CoordinationPolicy, CoordinationSpec, Event, Request, Settings,
};
use allrail_core::{Bytes, Time};
use allrail_schedule::registry::Registry;
use allrail_schedule::signature::Signature;

const ROUNDS: usize = 7;

fn job(ranks: u32, tensors: u32) -> Result<CoordinationSpec, Box<dyn Error>> {
    let tensor = |number: u32| Signature {
        name: format!("gradient/stage4.unit{number:03}.convolution.weight"),
        dtype: "float32".to_owned(),
        shape: vec![3, 3, 512, 512],
        strides: Vec::new(),
    };
    let registry = Registry::new((0..tensors).map(tensor).collect())?;
    let spec = CoordinationSpec::new(&Central, &Settings::default(), ranks, &[])?;
    Ok(spec.over(Arc::new(registry)))
}

/// A cycle: how long rank 0 reads, and takes in.
fn cycle(
    job: &CoordinationSpec,
    tensors: u32,
) -> Result<(Duration, Duration, usize), Box<dyn Error>> {
    let mut actions = Vec::new();
    let submit = |tensor| Event::Submit(Request::all_reduce(tensor, Bytes::new(9 << 20)));
    // What every rank has to say: its list is sent when its cycle begins.
    let mut lists = Vec::new();
    let mut zero = None;
    for rank in 0..job.ranks {
        let mut one = Central.coordinator(job, rank);
        // Asked for before the job begins, so that the first cycle has it all.
        for tensor in 0..tensors {
            one.on(Time::ZERO, submit(tensor), &mut actions)?;
        }
        one.on(Time::ZERO, Event::Start, &mut actions)?;
        let mut now = Time::ZERO;
        while rank > 0 && !actions.iter().any(|action| matches!(action, Action::Send { .. })) {
            now += Time::from_us(1_000);
            one.on(now, Event::Timer { id: CYCLE }, &mut actions)?;
        }
        for action in actions.drain(..) {
            if let Action::Send { payload, .. } = action {
                let mut bytes = Vec::new();
                encode(&payload, &mut bytes)?;
                lists.push((rank, bytes));
            }
        }
        if rank == 0 {
            zero = Some(one);
        }
    }
    let Some(mut zero) = zero else { return Ok((Duration::ZERO, Duration::ZERO, 0)) };
    let limits = Limits { ranks: job.ranks, tensors, ..Limits::default() };
    let (mut reads, mut takes, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    for (from, list) in lists {
        bytes += list.len();
        let start = Instant::now();
        let payload = decode(&list, &limits)?;
        reads += start.elapsed();
        let start = Instant::now();
        zero.on(Time::from_us(1_000), Event::Message { from, payload }, &mut actions)?;
        takes += start.elapsed();
    }
    if !actions.iter().any(|action| matches!(action, Action::Ready(_))) {
        return Err("rank 0 has not answered".into());
    }
    Ok((reads, takes, bytes))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u32>());
    let ranks = words.next().unwrap_or(Ok(800))?.max(2);
    let tensors = words.next().unwrap_or(Ok(7))?.max(1);
    let job = job(ranks, tensors)?;
    let mut best: Option<(Duration, Duration, usize)> = None;
    for _ in 0..ROUNDS {
        let (reads, takes, bytes) = cycle(&job, tensors)?;
        let least = best.get_or_insert((reads, takes, bytes));
        *least = (least.0.min(reads), least.1.min(takes), bytes);
    }
    let Some((reads, takes, bytes)) = best else { return Ok(()) };
    let requests = f64::from(ranks - 1) * f64::from(tensors);
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    let each = |part: Duration| part.as_nanos() as f64 / requests;
    #[allow(clippy::cast_precision_loss)]
    let size = bytes as f64 / requests;
    println!("part    ns_a_request");
    println!("parse   {:>12.1}", each(reads));
    println!("queue   {:>12.1}", each(takes));
    println!("bytes   {size:>12.1}");
    Ok(())
}
