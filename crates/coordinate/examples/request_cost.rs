//! What a request costs the rank that hears all others, in parts: gather, unpack, copies, table, pack.
//!
//! ```text
//! cargo run --release -p allrail-coordinate --example request_cost
//! ```
//!
//! The sequence is that of Horovod's rank 0 without its cache (`message.cc`, `controller.cc`): the lists
//! of all ranks are gathered into one buffer, each list is unpacked, each request is copied into the
//! list, with it, and into the message table, where its name is looked up by the table and by the stall
//! inspector; when all ranks have asked for a tensor, their requests are compared, and a response is
//! packed. Requests are as Horovod's: a name of 70 letters, a shape of four, six numbers. They are packed
//! by postcard, not by FlatBuffers: both write strings and vectors, and both are read into owned ones.
//!
//! Printed: nanoseconds a request, the best of several rounds (as noise only adds), and their sum without
//! `pack`, which is a worker's part for requests; the ranks and tensors of Horovod's ResNet-50 on Summit.

// A benchmark measures, and prints what it has measured.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

const TENSORS: usize = 161;
const RANKS: usize = 800;
const ROUNDS: usize = 7;

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Request {
    rank: i32,
    kind: u8,
    data: u8,
    root: i32,
    device: i32,
    scale: (f64, f64),
    name: String,
    shape: Vec<i64>,
}

#[derive(Serialize)]
struct Response {
    names: Vec<String>,
    devices: Vec<i32>,
    sizes: Vec<i64>,
}

fn requests(rank: i32) -> Vec<Request> {
    (0..TENSORS)
        .map(|tensor| Request {
            rank,
            kind: 0,
            data: 7,
            root: 0,
            device: rank % 6,
            scale: (1.0, 1.0),
            name: format!(
                "DistributedOptimizer.gradient/stage4.unit{tensor:03}.convolution.weight/all"
            ),
            shape: vec![3, 3, 512, 512],
        })
        .collect()
}

/// Time of each part of one cycle.
#[derive(Clone, Copy, Default)]
struct Parts {
    pack: Duration,
    gather: Duration,
    unpack: Duration,
    copies: Duration,
    table: Duration,
}

fn cycle(lists: &[Vec<Request>]) -> Result<Parts, Box<dyn Error>> {
    let mut parts = Parts::default();
    let start = Instant::now();
    let packed: Vec<Vec<u8>> = lists.iter().map(postcard::to_allocvec).collect::<Result<_, _>>()?;
    parts.pack = start.elapsed();

    // As `MPI_Gatherv`: the lengths are known, every rank's bytes land in one buffer.
    let start = Instant::now();
    let mut buffer = vec![0u8; packed.iter().map(Vec::len).sum()];
    let mut at = 0;
    let mut ends = Vec::with_capacity(packed.len());
    for one in &packed {
        buffer[at..at + one.len()].copy_from_slice(one);
        at += one.len();
        ends.push(at);
    }
    parts.gather = start.elapsed();

    let mut table: HashMap<String, Vec<Request>> = HashMap::new();
    let mut stalls: HashMap<String, usize> = HashMap::new();
    let mut responses = 0;
    let mut begin = 0;
    for end in ends {
        let start = Instant::now();
        let list: Vec<Request> = postcard::from_bytes(&buffer[begin..end])?;
        parts.unpack += start.elapsed();
        begin = end;

        let start = Instant::now();
        let mut kept = Vec::new();
        for request in &list {
            kept.push(request.clone());
        }
        let whole = black_box(kept.clone());
        parts.copies += start.elapsed();

        let start = Instant::now();
        for request in &whole {
            *stalls.entry(request.name.clone()).or_default() += 1;
            let asked = table.entry(request.name.clone()).or_default();
            asked.push(request.clone());
            if asked.len() == lists.len() {
                let first = &asked[0];
                let alike = asked.iter().all(|other| {
                    (other.kind, other.data, &other.shape) == (first.kind, first.data, &first.shape)
                });
                let response = Response {
                    names: vec![request.name.clone()],
                    devices: asked.iter().map(|other| other.device).collect(),
                    sizes: vec![first.shape.iter().product(); usize::from(alike)],
                };
                responses += black_box(postcard::to_allocvec(&response)?).len().min(1);
            }
        }
        parts.table += start.elapsed();
    }
    if responses != TENSORS {
        return Err(format!("{responses} of {TENSORS} tensors were answered").into());
    }
    Ok(parts)
}

fn main() -> Result<(), Box<dyn Error>> {
    let ranks = std::env::args().nth(1).map_or(Ok(RANKS), |text| text.parse())?;
    let lists: Vec<Vec<Request>> = (0..i32::try_from(ranks)?).map(requests).collect();
    let mut best: Option<Parts> = None;
    for _ in 0..ROUNDS {
        let one = cycle(&lists)?;
        let least = best.get_or_insert(one);
        least.pack = least.pack.min(one.pack);
        least.gather = least.gather.min(one.gather);
        least.unpack = least.unpack.min(one.unpack);
        least.copies = least.copies.min(one.copies);
        least.table = least.table.min(one.table);
    }
    let Some(best) = best else { return Ok(()) };
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    let each = |part: Duration| part.as_nanos() as f64 / (ranks * TENSORS) as f64;
    println!("part    ns_a_request");
    for (name, part) in [
        ("pack", best.pack),
        ("gather", best.gather),
        ("unpack", best.unpack),
        ("copies", best.copies),
        ("table", best.table),
    ] {
        println!("{name:<6}  {:>12.1}", each(part));
    }
    let rank_0 = best.gather + best.unpack + best.copies + best.table;
    println!("rank_0  {:>12.1}", each(rank_0));
    Ok(())
}
