//! What waits for what, against a plain version that compares every two messages; and what goes wrong
//! where nothing waits.

use std::ops::Range;

use allrail_collective::plan::ChunkPlan;
use allrail_collective::rank::{Action, Buffer, Chunk, RankPlan};
use allrail_collective::{Operation, algorithm};
use allrail_core::{Bytes, DimensionId};

use super::cases::{Case, Draw, plan, stage};
use super::runner::{Adversary, Waits, run};

fn overlap(a: &[Range<u64>], b: &[Range<u64>]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.start < y.end && y.start < x.end))
}

/// For each message all that must be done before it, directly or not.
fn all_before(chunk: &Chunk, directly: impl Fn(usize, usize) -> bool) -> Vec<Vec<bool>> {
    let count = chunk.messages().len();
    let mut before = vec![vec![false; count]; count];
    for later in 0..count {
        for earlier in 0..later {
            if directly(earlier, later) {
                let inherited = before[earlier].clone();
                for (mine, theirs) in before[later].iter_mut().zip(inherited) {
                    *mine |= theirs;
                }
                before[later][earlier] = true;
            }
        }
    }
    before
}

#[test]
fn what_waits_is_what_touches() {
    for (seed, algorithm) in (0..).zip(algorithm::ALL.iter().cycle().take(60)) {
        let mut draw = Draw(seed);
        let operation = draw.one_of(algorithm.operations());
        let case = Case::draw(&mut draw, operation, *algorithm, 60);
        let rank = draw.one_of(&case.ranks);
        let part = RankPlan::new(&case.plan, rank, case.buffer).expect("a right plan");
        for chunk in &part.chunks {
            let ranges: Vec<Vec<Range<u64>>> =
                chunk.messages().iter().map(|message| chunk.ranges(message).collect()).collect();
            let sends = |i: usize| chunk.messages()[i].action == Action::Send;
            let plain = all_before(chunk, |earlier, later| {
                !(sends(earlier) && sends(later)) && overlap(&ranges[earlier], &ranges[later])
            });
            let waits = all_before(chunk, |earlier, later| {
                chunk.waits_for(later as u32).contains(&(earlier as u32))
            });
            assert!(plain == waits, "`{}` {operation}, seed {seed}", algorithm.tag());
            for place in 0..chunk.messages().len() as u32 {
                for next in chunk.frees(place) {
                    assert!(chunk.waits_for(*next).contains(&place));
                }
            }
            let pairs = |list: &dyn Fn(u32) -> usize| -> usize {
                (0..chunk.messages().len() as u32).map(list).sum()
            };
            assert_eq!(pairs(&|i| chunk.waits_for(i).len()), pairs(&|i| chunk.frees(i).len()));
        }
    }
}

fn direct(operation: Operation) -> Vec<RankPlan> {
    let stages = match operation {
        Operation::AllReduce => {
            vec![stage(Operation::ReduceScatter, 0), stage(Operation::AllGather, 0)]
        }
        whole => vec![stage(whole, 0)],
    };
    let chunk = ChunkPlan { bytes: Bytes::new(100), stages };
    let plan = plan(&[5], &["direct"], operation, vec![DimensionId(0)], vec![chunk]);
    let buffer = Buffer::new(1000, 4).expect("a buffer");
    (0..5).map(|rank| RankPlan::new(&plan, rank, buffer).expect("a right plan")).collect()
}

/// Whether ten random orders of frames end in one result.
fn agree(operation: Operation, waits: Waits) -> bool {
    let plans = direct(operation);
    let mut draw = Draw(7);
    let init: Vec<Vec<f32>> =
        (0..5).map(|_| (0..1000).map(|_| 1.0 / (1 + draw.next() % 97) as f32).collect()).collect();
    let mut results: Vec<Vec<Vec<f32>>> = (0..10)
        .map(|_| run(&plans, init.clone(), Adversary::Any, waits, &mut draw).buffers)
        .collect();
    results.dedup();
    results.len() == 1
}

#[test]
fn without_waiting_sums_and_swaps_depend_on_who_comes_first() {
    for operation in [Operation::AllReduce, Operation::AllToAll] {
        assert!(agree(operation, Waits::Kept), "{operation}");
        assert!(!agree(operation, Waits::ReceivesIgnored), "{operation}");
    }
    assert!(!agree(Operation::AllReduce, Waits::SendsIgnored));
}

#[test]
fn what_lies_aside_is_less_than_what_a_reduce_scatter_brings() {
    for (tag, most) in [("direct", 600), ("halving_doubling", 0), ("ring", 0)] {
        let stages = vec![stage(Operation::ReduceScatter, 0)];
        let chunk = ChunkPlan { bytes: Bytes::new(100), stages };
        let ids = vec![DimensionId(0)];
        let plan = plan(&[5], &[tag], Operation::ReduceScatter, ids, vec![chunk]);
        let buffer = Buffer::new(1000, 4).expect("a buffer");
        let part = RankPlan::new(&plan, 2, buffer).expect("a right plan");
        if tag == "halving_doubling" {
            assert!(part.chunks[0].most_aside() <= 500, "{}", part.chunks[0].most_aside());
        } else {
            assert_eq!(part.chunks[0].most_aside(), most, "{tag}");
        }
    }
}
