//! A switch that reduces: fewer bytes and fewer steps, and the imbalance that Themis uses remains.
//!
//! A reduce-scatter or all-gather of `s` bytes is charged `s(P + 1)/2P` and one step; from four NPUs
//! on that is less than `s(P − 1)/P`.

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::Time;
use allrail_fabric::Fabric;
use allrail_schedule::chunk::Composition;
use allrail_schedule::evaluate::{Task, Work, evaluate};
use allrail_schedule::scheduled::model_of;
use allrail_schedule::{Order, Request, queue};

fn reducing(dimensions: &[(u32, &str)], latency: &str) -> Fabric {
    let mut fabric = switches(dimensions);
    for dimension in &mut fabric.dimensions {
        dimension.in_network_reduction = true;
        dimension.latency = latency.parse().expect("a time");
    }
    fabric
}

fn work(request: &Request) -> Work {
    let plan = planned(request);
    let model = model_of(&plan, &request.fabric).expect("a planned plan");
    Work::new(&model, plan.chunks.iter().map(|c| (c.bytes, c.stages.as_slice()))).expect("short")
}

/// The only stage of one chunk of 48 MB on `ranks` NPUs at 48 GB/s, 1 us a step.
fn stage_of(operation: Operation, ranks: u32, reduces: bool) -> Task {
    let mut fabric = reducing(&[(ranks, "48 GB/s")], "1 us");
    fabric.dimensions[0].in_network_reduction = reduces;
    let mut request = request(fabric, operation, "48 MB", "baseline");
    request.chunks = 1;
    request.parameters.composition = Composition::Sequential;
    work(&request).tasks()[0]
}

#[test]
fn bytes_and_steps_fall_by_the_formula() {
    use Operation::{AllGather, AllReduce, Broadcast, ReduceScatter};
    for (operation, ranks, bytes, us, steps) in [
        (ReduceScatter, 4, 30e6, 625, 1),
        (AllGather, 4, 30e6, 625, 1),
        (ReduceScatter, 16, 25.5e6, 0, 1),
        (AllReduce, 16, 48e6, 1_000, 2),
        (Broadcast, 16, 48e6, 1_000, 1),
    ] {
        let with = stage_of(operation, ranks, true);
        let without = stage_of(operation, ranks, false);
        assert!((with.sent.0 - bytes).abs() < 1e-3, "{operation} {:?}", with.sent);
        // 48 bytes take a nanosecond.
        assert_eq!(with.occupancy, Time::from_ps((bytes / 48.0) as u64 * 1_000));
        assert!(us == 0 || with.occupancy == Time::from_us(us));
        assert_eq!(with.latency, Time::from_us(steps), "{operation}");
        assert!(with.sent < without.sent && with.latency < without.latency, "{operation}");
    }
}

#[test]
fn a_switch_that_would_only_add_bytes_does_not_reduce() {
    for ranks in [2, 3] {
        let (with, without) = (
            stage_of(Operation::ReduceScatter, ranks, true),
            stage_of(Operation::ReduceScatter, ranks, false),
        );
        assert_eq!(
            (with.sent, with.occupancy, with.latency),
            (without.sent, without.occupancy, without.latency)
        );
    }
}

#[test]
fn an_all_to_all_has_nothing_to_reduce() {
    let (with, without) =
        (stage_of(Operation::AllToAll, 8, true), stage_of(Operation::AllToAll, 8, false));
    assert_eq!((with.sent, with.latency), (without.sent, without.latency));
}

fn time(fabric: &Fabric, policy: &str) -> Time {
    let mut request = request(fabric.clone(), Operation::AllReduce, "1 GB", policy);
    request.chunks = 64;
    let mut queues = queue::queues(Order::SMALLEST_FIRST, fabric.dimensions.len(), &[]);
    evaluate(&work(&request), &mut queues, None).finish
}

#[test]
fn themis_still_beats_the_baseline() {
    let dimensions = [(16, "100 GB/s"), (8, "100 GB/s"), (8, "100 GB/s")];
    let fabric = reducing(&dimensions, "700 ns");
    let (baseline, themis) = (time(&fabric, "baseline"), time(&fabric, "themis"));
    assert!(themis.ratio(baseline) < 0.5, "{themis:?} {baseline:?}");
    // Both gain from the switches.
    let mut plain = fabric;
    for dimension in &mut plain.dimensions {
        dimension.in_network_reduction = false;
    }
    assert!(baseline < time(&plain, "baseline") && themis < time(&plain, "themis"));
}
