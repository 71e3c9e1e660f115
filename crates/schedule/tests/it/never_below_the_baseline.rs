//! What `search` promises on any fabric, in the time of `dims`:
//!
//! - under an order that it is told, it never ends after the baseline or Themis under that order;
//! - under its own (`planned`), it never ends after either of them first come, first served,
//!   smallest first or planned: so never after what they do by default.
//!
//! 60 pinned seeds; `LAW_SEEDS=10000` tries more.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::{Bandwidth, Bytes, Time};
use allrail_fabric::{Contention, Dimension, Fabric, Kind};
use allrail_schedule::evaluate::{Work, evaluate};
use allrail_schedule::scheduled::model_of;
use allrail_schedule::{ActiveChunks, Order, Request, queue};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const RIVALS: [&str; 2] = ["baseline", "themis"];
/// What a user would run.
const ORDERS: [Order; 3] = [Order::FIFO, Order::SMALLEST_FIRST, Order::PLANNED];

fn any_dimension(operation: Operation, rng: &mut Pcg64Mcg) -> Dimension {
    let kind = *[Kind::Ring, Kind::FullyConnected, Kind::Switch].choose(rng).expect("some");
    // Ratios of bandwidths up to a thousand; latencies from none to those between sites.
    let rate = 10f64.powf(rng.random_range(0.0..3.0)) * 1e9;
    // A broadcast is not modelled without contention.
    let alone = rng.random_bool(0.1) && operation != Operation::Broadcast;
    let contention = if alone { Contention::None } else { Contention::Shared };
    Dimension {
        kind,
        // Without contention, only powers of two have a closed form on a switch.
        size: match contention {
            Contention::Shared => rng.random_range(2..=9),
            Contention::None => 1 << rng.random_range(1..=3),
        },
        links: rng.random_range(1..=4),
        bandwidth: Bandwidth::from_bytes_per_second(rate as u64).expect("not zero"),
        latency: Time::from_ns(*[0, 20, 700, 1_700, 50_000].choose(rng).expect("some")),
        message_latency: Time::ZERO,
        packet: None,
        payload: Bytes::default(),
        header: Bytes::default(),
        in_network_reduction: kind == Kind::Switch && rng.random_bool(0.1),
        reduction_bandwidth: None,
        contention,
        fastest: BTreeMap::new(),
        mean_bandwidth: None,
        wiring: None,
    }
}

/// Anything that may be planned, but for its policy and order.
pub(crate) fn any_request(seed: u64) -> Request {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let operation = *Operation::ALL.choose(&mut rng).expect("some");
    let count = rng.random_range(1..=4);
    let dimensions = (0..count).map(|_| any_dimension(operation, &mut rng)).collect();
    let bytes = 10f64.powf(rng.random_range(2.0..9.5)) as u64;
    Request {
        operation,
        size: Bytes::new(bytes),
        chunks: *[2, 3, 4, 7, 8, 16, 31, 64].choose(&mut rng).expect("some"),
        active_chunks: rng.random_bool(0.2).then(|| ActiveChunks::AtMost(rng.random_range(1..=4))),
        seed,
        ..request(
            Fabric { memory_bandwidth: None, window: None, name: String::new(), dimensions },
            operation,
            "1 kB",
            "search",
        )
    }
}

/// When the policy's plan ends under the order.
fn time(request: &Request, policy: &str, order: Order) -> Time {
    let request = Request { policy: policy.to_owned(), order, ..request.clone() };
    let plan = planned(&request);
    let model = model_of(&plan, &plan.fabric).expect("a planned plan");
    let chunks = plan.chunks.iter().map(|chunk| (chunk.bytes, chunk.stages.as_slice()));
    let work = Work::new(&model, chunks).expect("short").side_by_side(request.active_chunks);
    let fixed = std::slice::from_ref(&plan.dimension_order);
    let mut queues = queue::queues(order, plan.fabric.dimensions.len(), fixed);
    evaluate(&work, &mut queues, request.active_chunks).finish
}

/// A seed in two tries its own order, the others an order that it is told.
fn holds(seed: u64) {
    let request = any_request(seed);
    let order = match seed % 4 {
        0 | 2 => Order::PLANNED,
        1 => Order::FIFO,
        _ => Order::SMALLEST_FIRST,
    };
    let ours = time(&request, "search", order);
    let beside: &[Order] = if order == Order::PLANNED { &ORDERS } else { &[order] };
    for (rival, beside) in RIVALS.iter().flat_map(|rival| beside.iter().map(move |o| (rival, *o))) {
        let theirs = time(&request, rival, beside);
        assert!(
            ours <= theirs,
            "seed {seed}: search, {order:?}: {ours}; {rival}, {beside:?}: {theirs}\n{request:?}"
        );
    }
}

#[test]
fn on_any_fabric_under_any_order() {
    let number = |key| std::env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("LAW_FIRST_SEED").unwrap_or(0);
    let seeds = first + number("LAW_SEEDS").unwrap_or(60);
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let run = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|s| *s < seeds) {
            holds(seed);
        }
    };
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(run))));
}

/// The example that it was once slower on: with 8 chunks the inner dimension is the bottleneck, and
/// a chunk that goes the other way loads the outer one with more than there is to gain, so that the
/// baseline's stages are best; smallest-first leaves gaps in them, first come, first served none.
#[test]
fn on_a_cluster_of_its_day_in_few_chunks() {
    let dimensions = vec![
        dimension(Kind::Switch, 16, "1200 Gb/s", "700 ns"),
        dimension(Kind::Switch, 64, "100 Gb/s", "1700 ns"),
    ];
    let fabric = Fabric { memory_bandwidth: None, window: None, name: "today".into(), dimensions };
    for chunks in [8, 16] {
        let request =
            Request { chunks, ..request(fabric.clone(), Operation::AllReduce, "1 GiB", "search") };
        assert_eq!(time(&request, "search", Order::PLANNED), Time::from_ps(13_424_572_800));
        assert_eq!(time(&request, "baseline", Order::FIFO), Time::from_ps(13_424_572_800));
    }
}
