//! The bound, by hand and beneath every schedule.

use crate::common::*;
use allrail_collective::{Operation, Stage};
use allrail_core::{Bytes, Time};
use allrail_fabric::{Fabric, Kind};
use allrail_schedule::bound::{lower, lower_of_messages};
use allrail_schedule::chunk::stages;
use allrail_schedule::evaluate::{Work, evaluate};
use allrail_schedule::scheduled::model_of;
use allrail_schedule::{ActiveChunks, Order, queue};
use proptest::prelude::*;

/// The bound of a collective in so many chunks, in nanoseconds.
fn bound(fabric: &Fabric, operation: Operation, size: &str, chunks: u32) -> u64 {
    let mut request = request(fabric.clone(), operation, size, "baseline");
    request.chunks = chunks;
    let plan = planned(&request);
    let model = model_of(&plan, fabric).expect("a planned plan");
    let bytes: Vec<Bytes> = plan.chunks.iter().map(|chunk| chunk.bytes).collect();
    let bound = lower(&model, operation, &plan.dimensions, &bytes).expect("short");
    // Within the 1e-9 that the solver's floats are given.
    (bound.as_ps() + 500) / 1_000
}

/// Halving-doubling on 4 NPUs: 12 of 16 MB at 12 GB/s are 1 ms, and two steps of 10 us.
fn one_switch() -> Fabric {
    let mut fabric = switches(&[(4, "12 GB/s")]);
    fabric.dimensions[0].latency = "10 us".parse().expect("a time");
    fabric
}

#[test]
fn on_one_dimension_it_is_the_time_by_hand() {
    let fabric = one_switch();
    for chunks in [1, 4] {
        assert_eq!(bound(&fabric, Operation::ReduceScatter, "16 MB", chunks), 1_020_000);
        assert_eq!(bound(&fabric, Operation::AllGather, "16 MB", chunks), 1_020_000);
    }
    // One chunk pays the latency of both its stages, of several the last one's only.
    assert_eq!(bound(&fabric, Operation::AllReduce, "16 MB", 1), 2_040_000);
    assert_eq!(bound(&fabric, Operation::AllReduce, "16 MB", 4), 2_020_000);
}

#[test]
fn on_one_dimension_a_reduce_scatter_reaches_it() {
    let request = request(one_switch(), Operation::ReduceScatter, "16 MB", "baseline");
    let plan = planned(&request);
    let model = model_of(&plan, &plan.fabric).expect("a planned plan");
    let work = Work::new(&model, plan.chunks.iter().map(|c| (c.bytes, c.stages.as_slice())));
    let mut queues = queue::queues(Order::FIFO, 1, &[]);
    let finish = evaluate(&work.expect("short"), &mut queues, None).finish;
    assert_eq!(finish, Time::from_us(1_020));
}

/// Even if all chunks leave the fast dimension first, the slow one carries a quarter of the buffer:
/// 3/4 of 4 MB at 50 MB/ms.
#[test]
fn an_under_provisioned_fabric_has_a_bound_above_the_plain_one() {
    let fabric = switches(&[(4, "1000 GB/s"), (4, "50 GB/s")]);
    let plain = 16e6 * (15.0 / 16.0) / 1_050e9 * 1e9;
    let tight = bound(&fabric, Operation::ReduceScatter, "16 MB", 64);
    assert_eq!(tight, 60_000);
    assert!(tight as f64 > 4.0 * plain);
}

/// Enough on both: any division over the dimensions is some mix of orders, and it is the plain one.
#[test]
fn an_over_provisioned_fabric_has_the_plain_bound() {
    let fabric = switches(&[(4, "50 GB/s"), (4, "50 GB/s")]);
    // 15 of 16 MB, twice, at 100 GB/s.
    assert_eq!(bound(&fabric, Operation::AllReduce, "16 MB", 64), 300_000);
}

/// In messages, a dimension has sent its bytes one step before the end, not all of a chunk's.
#[test]
fn the_bound_of_messages_waits_for_one_step_only() {
    let fabric = one_switch();
    let plan = planned(&request(fabric.clone(), Operation::AllReduce, "16 MB", "baseline"));
    let model = model_of(&plan, &fabric).expect("a planned plan");
    let latency = [fabric.dimensions[0].latency];
    let chunks = [Bytes::new(16_000_000)];
    let bound =
        lower_of_messages(&model, Operation::AllReduce, &plan.dimensions, &chunks, Some(&latency))
            .expect("short");
    assert_eq!((bound.as_ps() + 500_000) / 1_000_000, 2_040, "of one chunk alone");
    let chunks = [Bytes::new(4_000_000); 4];
    let bound =
        lower_of_messages(&model, Operation::AllReduce, &plan.dimensions, &chunks, Some(&latency))
            .expect("short");
    assert_eq!((bound.as_ps() + 500_000) / 1_000_000, 2_010);
}

fn any_fabric() -> impl Strategy<Value = Fabric> {
    let kinds = prop::sample::select(vec![Kind::Ring, Kind::FullyConnected, Kind::Switch]);
    let bandwidths = prop::sample::select(vec!["20 GB/s", "50 GB/s", "400 GB/s"]);
    let latencies = prop::sample::select(vec!["0 ns", "700 ns", "50 us"]);
    prop::collection::vec((kinds, 2u32..=9, bandwidths, latencies), 1..=4).prop_map(|dimensions| {
        let dimensions = dimensions
            .into_iter()
            .map(|(kind, size, bandwidth, latency)| dimension(kind, size, bandwidth, latency));
        Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: dimensions.collect(),
        }
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_schedule_ends_before_it(
        fabric in any_fabric(),
        operation in prop::sample::select(&Operation::ALL),
        keys in prop::collection::vec(any::<[[u32; 4]; 2]>(), 1..=6),
        order in prop::sample::select(Order::all().map(Order::while_planning).collect::<Vec<_>>()),
        active_chunks in prop::sample::select(vec![None, Some(1.into()), Some(ActiveChunks::FILL)]),
    ) {
        let mut request = request(fabric, operation, "9 MB", "baseline");
        request.chunks = u32::try_from(keys.len()).expect("few");
        let plan = planned(&request);
        let model = model_of(&plan, &plan.fabric).expect("a planned plan");
        let sorted = |keys: &[u32; 4]| {
            let mut dimensions = plan.dimensions.clone();
            dimensions.sort_by_key(|d| keys[d.index()]);
            dimensions
        };
        let schedule: Vec<Vec<Stage>> = keys
            .iter()
            .map(|[scatter, gather]| stages(operation, &sorted(scatter), &sorted(gather)))
            .collect();
        let bytes: Vec<Bytes> = plan.chunks.iter().map(|chunk| chunk.bytes).collect();
        let work = Work::new(&model, bytes.iter().copied().zip(schedule.iter().map(Vec::as_slice)))
            .expect("short");
        let mut queues = queue::queues(order, plan.fabric.dimensions.len(), &[]);
        let finish = evaluate(&work, &mut queues, active_chunks).finish;
        let bound = lower(&model, operation, &plan.dimensions, &bytes).expect("short");
        prop_assert!(bound <= finish, "{bound:?} above {finish:?}");
        let latency: Vec<Time> = plan.fabric.dimensions.iter().map(|d| d.latency).collect();
        let messages = lower_of_messages(&model, operation, &plan.dimensions, &bytes, Some(&latency));
        // A stage's latency counts all its steps; rounded up in one, not in the other.
        let rounding = Time::from_ps(work.tasks().len() as u64);
        prop_assert!(messages.expect("short") <= bound + rounding);
    }
}
