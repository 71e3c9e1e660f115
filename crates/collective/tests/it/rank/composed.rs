//! One rank's part alone, against what `hierarchical::compose` makes for all ranks; and the layout.

use std::ops::Range;

use allrail_collective::hierarchical::compose;
use allrail_collective::plan::ChunkPlan;
use allrail_collective::rank::{Action, Buffer, Chunk, Combine, RankPlan, RankPlanner, shard};
use allrail_collective::{Algorithm, Operation, Program, algorithm};
use allrail_core::{Bytes, DimensionId};

use super::cases::{Case, Draw, named, plan, stage};

/// (stage, step, peer, index, how, elements), of the messages that are sent or awaited.
type Name = (u32, u32, u32, usize, Option<Combine>, u64);

/// What a composition says of one rank, with peers as places in the group.
fn of_program(program: &Program, place: u32, steps: &[u32], each: u64) -> Vec<Name> {
    let mut names = Vec::new();
    let mut all = program.steps[place as usize].iter();
    for (stage, count) in (0u32..).zip(steps) {
        for (step, content) in (0u32..).zip(all.by_ref().take(*count as usize)) {
            let mut counted: Vec<(bool, u32)> = Vec::new();
            let sends = content.sends.iter().map(|s| (s.to, None, s.blocks.len()));
            let receives =
                content.receives.iter().map(|r| (r.from, Some(r.combine), r.blocks.len()));
            for (peer, combine, blocks) in sends.chain(receives) {
                let index = counted.iter().filter(|one| **one == (combine.is_some(), peer)).count();
                counted.push((combine.is_some(), peer));
                names.push((stage, step, peer, index, combine, u64::from(blocks) * each));
            }
        }
    }
    names.sort_unstable_by_key(|(stage, step, peer, index, how, _)| {
        (*stage, *step, how.is_some(), *peer, *index)
    });
    names
}

fn of_chunk(chunk: &Chunk, ranks: &[u32]) -> Vec<Name> {
    let name = |message: &allrail_collective::rank::Message| {
        let combine = match message.action {
            Action::Send => None,
            Action::Receive(combine) => Some(combine),
        };
        let peer = ranks.iter().position(|rank| *rank == message.peer).expect("of the group");
        let carried: u64 = chunk.ranges(message).map(|range| range.end - range.start).sum();
        assert_eq!(carried, message.elements);
        (message.stage, message.step, peer as u32, message.index as usize, combine, carried)
    };
    let mut names: Vec<Name> = chunk.messages().iter().map(name).collect();
    names.sort_unstable_by_key(|(stage, step, peer, index, how, _)| {
        (*stage, *step, how.is_some(), *peer, *index)
    });
    names
}

#[test]
fn each_ranks_part_is_its_part_of_the_composition() {
    let mut compared = 0;
    for (seed, algorithm) in (0..).zip(algorithm::ALL.iter().cycle().take(100)) {
        let mut draw = Draw(seed);
        let operation = draw.one_of(algorithm.operations());
        let mut case = Case::draw(&mut draw, operation, *algorithm, 40);
        // Compositions have no dimension of one rank.
        let spanned: Vec<usize> = case.plan.dimensions.iter().map(|id| id.index()).collect();
        let sizes: Vec<u32> =
            spanned.iter().map(|d| case.plan.fabric.dimensions[*d].size).collect();
        if sizes.contains(&1) {
            continue;
        }
        case.plan.chunks.truncate(1);
        case.plan.size = case.plan.chunks[0].bytes;
        let of: Vec<(u32, &dyn Algorithm)> = spanned
            .iter()
            .map(|d| named(&case.plan.algorithms[*d]))
            .zip(&sizes)
            .map(|(a, s)| (*s, a))
            .collect();
        let local =
            |id: DimensionId| spanned.iter().position(|d| *d == id.index()).expect("spanned");
        let original = case.plan.chunks[0].stages.clone();
        let stages: Vec<_> =
            original.iter().map(|one| stage(one.operation, local(one.dimension))).collect();
        let program = compose(&of, &stages, operation).expect("the stages do the operation");
        let steps: Vec<u32> = stages
            .iter()
            .map(|one| {
                let (size, algorithm) = of[one.dimension.index()];
                algorithm.program(one.operation, size).step_count() as u32
            })
            .collect();
        let each = 3;
        let buffer = Buffer::new(u64::from(program.blocks) * each, 4).expect("a buffer");
        let buffer = buffer.cut_at(Bytes::new(4)).expect("a granule");
        for (place, rank) in (0..).zip(&case.ranks) {
            let part = RankPlan::new(&case.plan, *rank, buffer).expect("a right plan");
            assert_eq!((part.place, part.ranks), (place, program.ranks));
            let counts: Vec<u32> =
                part.chunks[0].stages().iter().map(|stage| stage.step_count() as u32).collect();
            assert_eq!(counts, steps);
            assert_eq!(
                of_chunk(&part.chunks[0], &case.ranks),
                of_program(&program, place, &steps, each),
                "`{}` {operation}, seed {seed}, rank {rank}",
                algorithm.tag()
            );
            compared += 1;
        }
    }
    assert!(compared > 400, "{compared}");
}

#[test]
fn the_ranges_of_one_dimension_are_the_algorithms_blocks() {
    for algorithm in algorithm::ALL {
        for operation in algorithm.operations() {
            let program = algorithm.program(*operation, 6);
            let chunk = ChunkPlan { bytes: Bytes::new(1), stages: vec![stage(*operation, 0)] };
            let ids = vec![DimensionId(0)];
            let plan = plan(&[6], &[algorithm.tag()], *operation, ids, vec![chunk]);
            let buffer = Buffer::new(u64::from(program.blocks) * 16, 4).expect("a buffer");
            for rank in 0..6 {
                let part = RankPlan::new(&plan, rank, buffer).expect("a right plan");
                for (step, content) in program.steps[rank as usize].iter().enumerate() {
                    let mine = part.chunks[0].step(0, step).expect("as many steps");
                    let sent = content.sends.iter().map(|one| &one.blocks);
                    let received = content.receives.iter().map(|one| &one.blocks);
                    let theirs = sent.chain(received);
                    for (message, blocks) in mine.sends.iter().chain(mine.receives).zip(theirs) {
                        let covered = |ranges: &mut dyn Iterator<Item = Range<u64>>| -> Vec<u64> {
                            let mut all: Vec<u64> = ranges.flatten().collect();
                            all.sort_unstable();
                            all
                        };
                        let block = |b: u32| u64::from(b) * 16..u64::from(b + 1) * 16;
                        assert_eq!(
                            covered(&mut part.chunks[0].ranges(message)),
                            covered(&mut blocks.iter(program.blocks).map(block)),
                            "`{}` {operation}, rank {rank}, step {step}",
                            algorithm.tag()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_reduce_scatter_ends_in_the_ranks_own_shard_in_any_order_of_dimensions() {
    use Operation::ReduceScatter as RS;
    let orders = [[0, 1], [1, 0], [0, 1]];
    let chunks = orders.map(|order| ChunkPlan {
        bytes: Bytes::new(1 << 20),
        stages: order.map(|d| stage(RS, d)).to_vec(),
    });
    let ids = vec![DimensionId(0), DimensionId(1)];
    let plan = plan(&[3, 4], &["ring", "direct"], RS, ids, chunks.to_vec());
    for elements in [5, 1003, 4096, 100_000] {
        for rank in 0..12 {
            let buffer = Buffer::new(elements, 4).expect("a buffer");
            let part = RankPlan::new(&plan, rank, buffer).expect("a right plan");
            let mut last: Vec<Range<u64>> = Vec::new();
            for chunk in &part.chunks {
                let end = chunk.stages()[1].step_count() - 1;
                for message in chunk.step(1, end).expect("the last step").receives {
                    last.extend(chunk.ranges(message));
                }
            }
            last.sort_unstable_by_key(|range| range.start);
            let own = shard(elements, rank, 12);
            let mut covered = own.start;
            for range in last {
                assert!(range.start <= covered && range.end <= own.end);
                covered = covered.max(range.end);
            }
            assert_eq!(covered, own.end, "{elements} elements, rank {rank}");
        }
    }
}

#[test]
fn what_a_rank_holds_of_an_all_reduce_is_one_range() {
    use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let down = order.iter().map(|d| stage(RS, *d));
        let up = order.iter().rev().map(|d| stage(AG, *d));
        let chunk = ChunkPlan { bytes: Bytes::new(1), stages: down.chain(up).collect() };
        let ids = [0, 1, 2].map(DimensionId).to_vec();
        let plan = plan(&[4, 3, 5], &["ring", "direct", "ring"], AR, ids, vec![chunk]);
        let buffer = Buffer::new(100_003, 4).expect("a buffer");
        for rank in [0, 17, 59] {
            let part = RankPlan::new(&plan, rank, buffer).expect("a right plan");
            let chunk = &part.chunks[0];
            assert!(chunk.messages().iter().all(|message| chunk.ranges(message).len() == 1));
        }
    }
}

#[test]
fn cuts_are_at_granules_and_chunks_cover_all() {
    use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};
    let stages = || vec![stage(RS, 0), stage(AG, 0)];
    let chunks = [333, 334, 333].map(|b| ChunkPlan { bytes: Bytes::new(b), stages: stages() });
    let plan = plan(&[4], &["direct"], AR, vec![DimensionId(0)], chunks.to_vec());
    let buffer = Buffer::new(250, 4).expect("a buffer");
    let part = RankPlan::new(&plan, 1, buffer).expect("a right plan");
    let sent: Vec<Vec<Range<u64>>> = part
        .chunks
        .iter()
        .map(|chunk| chunk.messages().iter().flat_map(|message| chunk.ranges(message)).collect())
        .collect();
    for range in sent.iter().flatten() {
        assert!(range.start % 16 == 0 && (range.end % 16 == 0 || range.end == 250), "{range:?}");
    }
    let ends: Vec<u64> = sent
        .iter()
        .map(|ranges| ranges.iter().map(|range| range.end).max().expect("some"))
        .collect();
    assert_eq!(ends, [80, 160, 250]);
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    use Operation::{AllReduce as AR, AllToAll as A2A, ReduceScatter as RS};
    let one = |operation, tag: &str, stages| {
        let chunk = ChunkPlan { bytes: Bytes::new(8), stages };
        plan(&[2, 3], &[tag, tag], operation, vec![DimensionId(0), DimensionId(1)], vec![chunk])
    };
    let buffer = Buffer::new(10, 4).expect("a buffer");
    let swap = one(A2A, "direct", vec![stage(A2A, 0), stage(A2A, 1)]);
    let text = RankPlan::new(&swap, 0, buffer).expect_err("uneven").to_string();
    assert!(text.contains("`elements` is `10`") && text.contains("6 ranks"), "{text}");
    let text = RankPlanner::new(&swap, 6).expect_err("no such rank").to_string();
    assert!(text.contains("`rank` is `6`") && text.contains("6 ranks"), "{text}");
    let lost = one(AR, "direct", vec![stage(RS, 0), stage(RS, 1)]);
    assert!(RankPlanner::new(&lost, 0).expect_err("lost").to_string().contains("all_gather"));
    let tree = one(RS, "double_binary_tree", vec![stage(RS, 0), stage(RS, 1)]);
    assert!(RankPlanner::new(&tree, 0).is_err());
    let mut short = one(A2A, "direct", vec![stage(A2A, 0), stage(A2A, 1)]);
    short.size = Bytes::new(9);
    assert!(RankPlanner::new(&short, 0).expect_err("short").to_string().contains("9 B"));
    short.algorithms.clear();
    assert!(RankPlanner::new(&short, 0).is_err());
}
