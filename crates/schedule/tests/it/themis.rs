//! Themis' Algorithm 1, worked by hand on two dimensions.
//!
//! Chunks of 16 MB on 4 NPUs with 12 GB/s and 2 NPUs with 4 GB/s, no latency. A reduce-scatter of a
//! chunk takes, in ms:
//!
//! | order | dim1 | dim2 |
//! |---|---|---|
//! | dim1, dim2 | 16 · 3/4 / 12 = 1 | 4 · 1/2 / 4 = 0.5 |
//! | dim2, dim1 | 8 · 3/4 / 12 = 0.5 | 16 · 1/2 / 4 = 2 |
//!
//! A sixteenth of a chunk takes 0.0625 on dim1 and 0.125 on dim2: that is the threshold.

use crate::common::*;
use allrail_collective::{Operation, Stage};
use allrail_core::DimensionId;
use allrail_fabric::Fabric;
use allrail_schedule::Request;
use allrail_schedule::chunk::Loads;

fn example() -> Fabric {
    switches(&[(4, "12 GB/s"), (2, "4 GB/s")])
}

/// Six chunks.
fn six(operation: Operation) -> Request {
    Request { chunks: 6, ..request(example(), operation, "96 MB", "themis") }
}

fn orders(request: &Request) -> Vec<Vec<u32>> {
    planned(request).chunks.iter().map(|chunk| visits(&chunk.stages)).collect()
}

/// | chunk | loads before | spread, threshold | order | loads after |
/// |---|---|---|---|---|
/// | 1 | 0, 0 | 0 < 0.0625 | baseline | 1, 0.5 |
/// | 2 | 1, 0.5 | 0.5 ≥ 0.125 | dim2 first | 1.5, 2.5 |
/// | 3 | 1.5, 2.5 | 1 ≥ 0.0625 | dim1 first | 2.5, 3 |
/// | 4 | 2.5, 3 | 0.5 ≥ 0.0625 | dim1 first | 3.5, 3.5 |
/// | 5 | 3.5, 3.5 | 0 | baseline | 4.5, 4 |
/// | 6 | 4.5, 4 | 0.5 ≥ 0.125 | dim2 first | |
const SIX: [[u32; 2]; 6] = [[0, 1], [1, 0], [0, 1], [0, 1], [0, 1], [1, 0]];

#[test]
fn a_reduce_scatter_visits_the_least_loaded_dimension_first() {
    assert_eq!(orders(&six(Operation::ReduceScatter)), SIX);
}

#[test]
fn an_all_gather_visits_the_least_loaded_dimension_last() {
    let reversed = SIX.map(|[first, second]| [second, first]);
    assert_eq!(orders(&six(Operation::AllGather)), reversed);
}

#[test]
fn an_all_reduce_gathers_in_reverse() {
    use Operation::{AllGather, ReduceScatter};
    let plan = planned(&six(Operation::AllReduce));
    for (chunk, [first, second]) in plan.chunks.iter().zip(SIX) {
        let expected: [Stage; 4] = [
            stage(ReduceScatter, first),
            stage(ReduceScatter, second),
            stage(AllGather, second),
            stage(AllGather, first),
        ];
        assert_eq!(chunk.stages, expected);
    }
}

/// With a whole chunk as the threshold (2 on dim2, the least loaded) the loads may drift apart to
/// 4 and 2 before the order changes; a spread equal to the threshold does.
#[test]
fn loads_that_differ_by_less_than_the_threshold_are_equal() {
    let mut request = six(Operation::ReduceScatter);
    request.parameters.threshold = 1;
    assert_eq!(orders(&request)[..5], [[0, 1], [0, 1], [0, 1], [0, 1], [1, 0]]);
    // Half a chunk: 1 on dim2. The loads are 2 and 1 after two chunks.
    request.parameters.threshold = 2;
    assert_eq!(orders(&request)[..3], [[0, 1], [0, 1], [1, 0]]);
}

#[test]
fn the_loads_start_at_the_fixed_delays() {
    let mut request = six(Operation::ReduceScatter);
    // Two steps of 0.3 ms: dim1 starts at 0.6, ahead of dim2 by more than the threshold.
    request.fabric.dimensions[0].latency = "300 us".parse().expect("a time");
    assert_eq!(orders(&request)[0], [1, 0]);
    // One that the threshold covers changes nothing.
    request.fabric.dimensions[0].latency = "30 us".parse().expect("a time");
    assert_eq!(orders(&request)[0], [0, 1]);
    // ASTRA-sim's implementation starts at zero.
    request.fabric.dimensions[0].latency = "300 us".parse().expect("a time");
    request.parameters.loads = Loads::Zero;
    assert_eq!(orders(&request)[0], [0, 1]);
}

/// ASTRA-sim's own all-gather: the first chunk, whose loads are alike, goes outwards, and its loads are
/// noted inwards; so the second finds dim1 the most loaded, starts there, and so on. `OfflineGreedy.cc`,
/// worked by hand in parts of what an NPU brings.
#[test]
fn astra_sims_all_gather_goes_outwards_while_its_loads_are_alike() {
    let mut request = six(Operation::AllGather);
    request.fabric = switches(&[(4, "12 GB/s"), (4, "12 GB/s")]);
    request.parameters.loads = Loads::Zero;
    // 1st: alike: outwards; dim2 is charged 3 parts, dim1 12.
    // 2nd: from the most loaded, dim1, to dim2: 3 parts to dim1, 12 to dim2: alike, 15 and 15.
    // 3rd and 4th: the same again.
    assert_eq!(orders(&request)[..4], [[0, 1], [0, 1], [0, 1], [0, 1]]);
    // Of unlike dimensions: 8 and 2, of one bandwidth. 1st: the list's other end is charged for each, so
    // dim2 takes dim1's 7 parts and dim1 dim2's 8. 2nd: from dim1; 7 more to it, 8 to dim2: 15 and 15.
    request.fabric = switches(&[(8, "12 GB/s"), (2, "12 GB/s")]);
    assert_eq!(orders(&request)[..3], [[0, 1], [0, 1], [0, 1]]);
    // A dimension that is not spanned has its place in the list all the same. 1st: of three, dim3 is charged
    // dim1's 3 parts and dim2 its own 12. 2nd: from dim2: 3 more to it, 12 to dim1: 15 and 12.
    // 3rd: from dim2: 18 and 24. 4th: from dim1.
    request.fabric = switches(&[(4, "12 GB/s"), (4, "12 GB/s"), (2, "12 GB/s")]);
    request.dimensions = vec![DimensionId(0), DimensionId(1)];
    assert_eq!(orders(&request)[..4], [[0, 1], [1, 0], [1, 0], [0, 1]]);
}

#[test]
fn where_the_order_moves_no_bytes_it_is_the_baseline() {
    for operation in [Operation::AllToAll, Operation::Broadcast] {
        let themis = planned(&six(operation));
        let baseline = planned(&Request { policy: "baseline".into(), ..six(operation) });
        assert_eq!(themis.chunks, baseline.chunks);
    }
}

#[test]
fn the_baseline_scatters_outwards_and_gathers_inwards() {
    let order = |operation| orders(&Request { policy: "baseline".into(), ..six(operation) });
    assert_eq!(order(Operation::AllReduce), vec![vec![0, 1, 1, 0]; 6]);
    assert_eq!(order(Operation::ReduceScatter), vec![vec![0, 1]; 6]);
    assert_eq!(order(Operation::AllGather), vec![vec![1, 0]; 6]);
    assert_eq!(order(Operation::AllToAll), vec![vec![0, 1]; 6]);
    assert_eq!(order(Operation::Broadcast), vec![vec![1, 0]; 6]);
}
