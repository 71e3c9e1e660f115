//! A plan for a range of sizes, and the table of plans.

use std::sync::Arc;

use allrail_collective::plan::ChunkPlan;
use allrail_collective::rank::{Buffer, Plans, RankPlan, RankPlanner};
use allrail_collective::{
    CollectiveError, CollectivePlan, DimensionSet, Operation, SizeRange, StageRef,
};
use allrail_core::{Bytes, DimensionId};

use super::cases::{plan, stage};

use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};

const KIB: u64 = 1 << 10;

/// Four chunks of unlike sizes and orders, for `sizes`.
fn ranged(sizes: Option<(u64, u64)>) -> CollectivePlan {
    let chunks: Vec<ChunkPlan> = [(100, [0, 1]), (300, [1, 0]), (200, [0, 1]), (424, [1, 0])]
        .iter()
        .map(|(bytes, order)| {
            let down = order.iter().map(|d| stage(RS, *d));
            let up = order.iter().rev().map(|d| stage(AG, *d));
            ChunkPlan { bytes: Bytes::new(*bytes * 64), stages: down.chain(up).collect() }
        })
        .collect();
    let ids = vec![DimensionId(0), DimensionId(1)];
    let mut plan = plan(&[2, 3], &["ring", "direct"], AR, ids, chunks);
    plan.sizes = sizes.map(|(from, to)| SizeRange { from: Bytes::new(from), to: Bytes::new(to) });
    // Any order that can be kept: chunk after chunk.
    for (c, chunk) in (0u32..).zip(&plan.chunks) {
        for (s, stage) in (0u32..).zip(&chunk.stages) {
            let order = &mut plan.dimension_order[stage.dimension.index()];
            order.push(StageRef { chunk: c, stage: s });
        }
    }
    plan
}

fn floats(bytes: u64) -> Buffer {
    Buffer::new(bytes / 4, 4).expect("a buffer")
}

fn both() -> DimensionSet {
    DimensionSet::default().with(DimensionId(0)).with(DimensionId(1))
}

#[test]
fn a_plan_is_cut_anew_for_every_size_of_its_range() {
    let plan = ranged(Some((1, 1 << 20)));
    plan.check().expect("a right plan");
    for size in [1, 63, 64, 65, 640, 4097, 64 * KIB - 4, 64 * KIB, 64 * KIB + 4, 1 << 20] {
        let cut = plan.for_size(Bytes::new(size)).expect("within the range");
        cut.check().unwrap_or_else(|error| panic!("{size} bytes: {error}"));
        assert_eq!((cut.size, cut.sizes), (Bytes::new(size), None));
        let inner = &cut.chunks[..cut.chunks.len() - 1];
        if size != 64 * KIB {
            assert!(inner.iter().all(|chunk| chunk.bytes.count().is_multiple_of(64)));
        }
        for (chunk, wide) in cut.chunks.iter().zip(&plan.chunks) {
            if cut.chunks.len() == plan.chunks.len() {
                assert_eq!(chunk.stages, wide.stages);
                let wanted = wide.bytes.count() as f64 * size as f64 / (64 * KIB) as f64;
                assert!((chunk.bytes.count() as f64 - wanted).abs() <= 128.0);
            }
        }
    }
    assert_eq!(plan.for_size(plan.size).map(|own| own.chunks), Ok(plan.chunks.clone()));
    assert_eq!(plan.for_size(Bytes::new(64)).map(|one| one.chunks.len()), Ok(1));
}

#[test]
fn a_rank_cuts_as_the_plan_for_that_size_does() {
    let plan = ranged(Some((1, 1 << 20)));
    for size in [64, 640, 4096, 64 * KIB + 4, 1 << 20] {
        let cut = plan.for_size(Bytes::new(size)).expect("within the range");
        for rank in 0..6 {
            let wide = RankPlan::new(&plan, rank, floats(size)).expect("a right plan");
            let own = RankPlan::new(&cut, rank, floats(size)).expect("a right plan");
            let busy = |part: &RankPlan| -> Vec<_> {
                part.chunks.iter().filter(|c| !c.messages().is_empty()).cloned().collect()
            };
            assert_eq!(busy(&wide), busy(&own), "{size} bytes, rank {rank}");
        }
    }
}

#[test]
fn outside_its_range_a_plan_is_refused_with_both_named() {
    let wide = ranged(Some((KIB, 1 << 20)));
    let exact = ranged(None);
    for (plan, size) in [(&wide, KIB - 4), (&wide, (1 << 20) + 4), (&exact, 64 * KIB - 4)] {
        let bytes = Bytes::new(size);
        let error = plan.for_size(bytes).expect_err("outside");
        assert_eq!(error, CollectiveError::Size { size: bytes, range: plan.holds_for() });
        let planner = RankPlanner::new(plan, 3).expect("a right plan");
        assert_eq!(planner.plan(floats(size)), Err(error));
        assert!(planner.plan(floats(0)).expect("nothing to do").chunks.len() == 4);
    }
    let text = wide.for_size(Bytes::new(1 << 21)).expect_err("outside").to_string();
    assert_eq!(
        text,
        format!("the plan holds for {}, not for {}", wide.holds_for(), Bytes::new(1 << 21))
    );
    assert!(text.contains(" to "), "{text}");
}

#[test]
fn a_range_must_hold_the_plans_own_size() {
    for wrong in [(1, KIB), (1 << 20, 1 << 21), (0, 1 << 20), (1 << 20, 1)] {
        let error = ranged(Some(wrong)).check().expect_err("refused").to_string();
        assert!(error.contains("`sizes`"), "{error}");
    }
}

#[test]
fn the_table_finds_the_plan_of_a_size() {
    let mut plans = Plans::new(4, 2);
    for sizes in [(64 * KIB, 1 << 20), (KIB, 64 * KIB - 1)] {
        let mut plan = ranged(Some((1, 1 << 20)));
        plan.key = format!("from {}", sizes.0);
        let mut plan = plan.for_size(Bytes::new(sizes.0)).expect("within the range");
        plan.sizes = Some(SizeRange { from: Bytes::new(sizes.0), to: Bytes::new(sizes.1) });
        plans.add(plan).expect("a right plan");
    }
    let key = |size: u64| plans.find(AR, both(), Bytes::new(size)).map(|plan| plan.key.clone());
    for (size, from) in [(KIB, KIB), (64 * KIB - 1, KIB), (64 * KIB, 64 * KIB), (1 << 20, 64 * KIB)]
    {
        assert_eq!(key(size), Ok(format!("from {from}")), "{size}");
    }
    for size in [KIB - 1, (1 << 20) + 1] {
        let error = key(size).expect_err("no plan").to_string();
        let ranges = format!("{} to {}", Bytes::new(KIB), Bytes::new(64 * KIB - 1));
        assert!(error.contains(&ranges) && error.contains("dim1, dim2"), "{error}");
    }
    let error = plans.find(RS, both(), Bytes::new(KIB)).expect_err("no plan").to_string();
    assert!(error.contains("reduce_scatter") && error.contains("none"), "{error}");
    let inner = DimensionSet::default().with(DimensionId(0));
    assert!(plans.find(AR, inner, Bytes::new(KIB)).is_err());
    for sizes in [(32 * KIB, 64 * KIB), (1, 1 << 30), (1 << 20, 1 << 21)] {
        let mut plan = ranged(Some((1, 1 << 31)));
        plan = plan.for_size(Bytes::new(sizes.0)).expect("within the range");
        plan.sizes = Some(SizeRange { from: Bytes::new(sizes.0), to: Bytes::new(sizes.1) });
        let error = plans.add(plan).expect_err("overlaps").to_string();
        assert!(error.contains("already"), "{error}");
    }
}

#[test]
fn the_table_keeps_the_parts_used_last() {
    let mut plans = Plans::new(4, 2);
    plans.add(ranged(Some((1, 1 << 20)))).expect("a right plan");
    let mut part = |bytes: u64| plans.part(AR, both(), floats(bytes)).expect("a plan");
    let (first, second) = (part(KIB), part(2 * KIB));
    assert_eq!(*first, RankPlan::new(&ranged(Some((1, 1 << 20))), 4, floats(KIB)).expect("right"));
    assert!(Arc::ptr_eq(&first, &part(KIB)));
    let third = part(3 * KIB);
    // The second was not used for longest.
    assert!(Arc::ptr_eq(&first, &part(KIB)) && Arc::ptr_eq(&third, &part(3 * KIB)));
    let again = part(2 * KIB);
    assert!(!Arc::ptr_eq(&second, &again) && second == again);
    assert_eq!(part(0).chunks.iter().map(|chunk| chunk.messages().len()).sum::<usize>(), 0);
    assert_eq!(plans.kept(), 2);
}

/// The owner of a chunk sends its sum to all others, which send it one message each.
#[test]
fn owners_of_chunks_take_turns_and_so_do_collectives() {
    let ids = vec![DimensionId(0)];
    let chunk = || ChunkPlan { bytes: Bytes::new(KIB), stages: vec![stage(AR, 0)] };
    let mut plan = plan(&[4], &["parameter_server"], AR, ids, (0..5).map(|_| chunk()).collect());
    plan.dimension_order[0] = (0..5).map(|chunk| StageRef { chunk, stage: 0 }).collect();
    let buffer = Buffer::new(5 * KIB / 4, 4).expect("a buffer");
    for turn in 0..4 {
        for rank in 0..4 {
            let part = RankPlanner::in_turn(&plan, rank, turn).and_then(|one| one.plan(buffer));
            let chunks = part.expect("a plan that holds together").chunks;
            let owned: Vec<bool> = chunks.iter().map(|chunk| chunk.messages().len() == 6).collect();
            let expected: Vec<bool> = (0..5).map(|i| (turn + i) % 4 == rank).collect();
            assert_eq!(owned, expected, "rank {rank}, turn {turn}");
        }
    }
    let mut table = Plans::new(1, 8);
    table.add(plan).expect("a table");
    assert!(table.take_turns());
    let dimensions = DimensionSet::default().with(DimensionId(0));
    let mut part = |turn| table.part_in_turn(AR, dimensions, turn, buffer).expect("a part");
    assert!(part(1).chunks[0].messages().len() == 6 && part(2).chunks[0] != part(1).chunks[0]);
}
