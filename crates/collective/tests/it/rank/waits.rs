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

/// The most elements that lie aside of 3,600, on any of 6 (or 6 x 2) ranks.
fn most_aside(tag: &str, operation: Operation, stages: &[(Operation, usize)]) -> u64 {
    let stages = stages.iter().map(|(operation, d)| stage(*operation, *d)).collect::<Vec<_>>();
    let count = stages.iter().map(|stage| stage.dimension.0 + 1).max().expect("some");
    let ids = (0..count).map(DimensionId).collect();
    let chunk = ChunkPlan { bytes: Bytes::new(100), stages };
    let sizes = &[6, 2][..count as usize];
    let plan = plan(sizes, &[tag, tag][..sizes.len()], operation, ids, vec![chunk]);
    let buffer = Buffer::new(3600, 4).expect("a buffer").cut_at(Bytes::new(4)).expect("a granule");
    let part = |rank| RankPlan::new(&plan, rank, buffer).expect("a right plan");
    (0..sizes.iter().product()).map(|rank| part(rank).chunks[0].most_aside()).max().expect("some")
}

#[test]
fn what_lies_aside_is_as_documented() {
    use Operation::{
        AllGather as AG, AllReduce as AR, AllToAll as A2A, Broadcast as BC, ReduceScatter as RS,
    };
    const S: u64 = 3600;
    assert_eq!(most_aside("ring", RS, &[(RS, 0)]), 0);
    assert_eq!(most_aside("halving_doubling", RS, &[(RS, 0)]), S / 3);
    assert_eq!(most_aside("direct", RS, &[(RS, 0)]), S * 4 / 6);
    assert_eq!(most_aside("ring", RS, &[(RS, 0), (RS, 1)]), S / 6 / 2);
    assert_eq!(most_aside("direct", RS, &[(RS, 0), (RS, 1)]), S * 4 / 6 + S / 6 / 2);
    for tag in ["ring", "ring_unidirectional", "direct", "halving_doubling"] {
        assert_eq!(most_aside(tag, AG, &[(AG, 0), (AG, 1)]), 0, "{tag}");
        let scattered = [(RS, 0), (RS, 1), (AG, 0), (AG, 1)];
        let alone = most_aside(tag, RS, &[(RS, 0), (RS, 1)]);
        assert_eq!(most_aside(tag, AR, &scattered), alone, "{tag}");
        assert!(alone < S);
        let received = if tag == "halving_doubling" { S / 2 } else { 0 };
        assert_eq!(most_aside(tag, BC, &[(BC, 0), (BC, 1)]), received, "{tag}");
    }
    assert_eq!(most_aside("direct", A2A, &[(A2A, 0)]), S * 5 / 6);
    assert_eq!(most_aside("double_binary_tree", AR, &[(AR, 0)]), S / 2);
    assert!(most_aside("double_binary_tree", AR, &[(AR, 0), (AR, 1)]) > S);
}
