//! Random dimension lists, algorithms and orders of stages, through the verifier.

use allrail_collective::algorithm::ALL;
use allrail_collective::hierarchical::compose;
use allrail_collective::verify::{Proof, verify};
use allrail_collective::{Algorithm, Operation, Program, Stage};
use allrail_core::DimensionId;
use proptest::prelude::*;
use proptest::sample::Index;

type Dimensions = Vec<(u32, &'static dyn Algorithm)>;

/// Ranks × blocks that one test case may have.
const LARGEST: u64 = 1 << 19;

fn stage(operation: Operation, d: usize) -> Stage {
    Stage { operation, dimension: DimensionId(u32::try_from(d).expect("few dimensions")) }
}

/// 2 to 4 dimensions of 2 to 5 NPUs, each with any algorithm that does all of `operations`.
fn dimensions(operations: &'static [Operation]) -> impl Strategy<Value = Dimensions> {
    prop::collection::vec((2u32..=5, any::<Index>()), 2..=4)
        .prop_map(move |picks| {
            picks.into_iter().map(|(size, pick)| (size, choose(pick, operations))).collect()
        })
        .prop_filter("too large to run symbolically", |dimensions: &Dimensions| {
            size(dimensions) <= LARGEST
        })
}

/// Ranks × blocks of the composed program.
fn size(dimensions: &Dimensions) -> u64 {
    let blocks = |(size, algorithm): &(u32, &dyn Algorithm)| {
        algorithm.program(algorithm.operations()[0], *size).blocks
    };
    dimensions.iter().map(|dimension| u64::from(dimension.0 * blocks(dimension))).product()
}

fn choose(pick: Index, operations: &[Operation]) -> &'static dyn Algorithm {
    let fit: Vec<&'static dyn Algorithm> = ALL
        .iter()
        .copied()
        .filter(|algorithm| operations.iter().all(|o| algorithm.operations().contains(o)))
        .collect();
    *pick.get(&fit)
}

/// The dimensions in an order that `keys` fixes.
fn order(count: usize, keys: &[u32; 4]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|d| keys[*d]);
    order
}

fn proved(dimensions: &Dimensions, stages: &[Stage], operation: Operation) -> (Program, Proof) {
    let program = compose(dimensions, stages, operation).expect("the stages do the operation");
    let proof = verify(&program, operation).unwrap_or_else(|violation| {
        panic!("{operation} over {dimensions:?} as {stages:?}: {violation}");
    });
    let received: u64 = program
        .steps
        .iter()
        .flatten()
        .flat_map(|step| &step.receives)
        .map(|receive| u64::from(receive.blocks.len()))
        .sum();
    let sent: u64 = (0..program.ranks).map(|rank| program.blocks_sent(rank)).sum();
    assert_eq!((sent, received), (proof.blocks, proof.blocks), "conservation");
    (program, proof)
}

/// Every rank sends `parts`·s·(1 − 1/N): as few bytes as any algorithm can.
fn assert_optimal(program: &Program, parts: u64) {
    let (ranks, blocks) = (u64::from(program.ranks), u64::from(program.blocks));
    for rank in 0..program.ranks {
        assert_eq!(program.blocks_sent(rank) * ranks, parts * blocks * (ranks - 1), "rank {rank}");
    }
}

use Operation::{
    AllGather as AG, AllReduce as AR, AllToAll as A2A, Broadcast as BC, ReduceScatter as RS,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn all_reduce_in_any_two_orders(
        dimensions in dimensions(&[RS, AG]), down in any::<[u32; 4]>(), up in any::<[u32; 4]>(),
    ) {
        let count = dimensions.len();
        let scatter = order(count, &down).into_iter().map(|d| stage(RS, d));
        let gather = order(count, &up).into_iter().map(|d| stage(AG, d));
        let (program, _) = proved(&dimensions, &scatter.chain(gather).collect::<Vec<_>>(), AR);
        assert_optimal(&program, 2);
    }

    #[test]
    fn reduce_scatter_and_all_gather_in_any_order(
        dimensions in dimensions(&[RS, AG]), keys in any::<[u32; 4]>(),
    ) {
        for operation in [RS, AG] {
            let stages: Vec<Stage> =
                order(dimensions.len(), &keys).into_iter().map(|d| stage(operation, d)).collect();
            let (program, _) = proved(&dimensions, &stages, operation);
            assert_optimal(&program, 1);
        }
    }

    #[test]
    fn all_reduce_with_any_stages_merged(
        dimensions in dimensions(&[RS, AG, AR]), down in any::<[u32; 4]>(),
        up in any::<[u32; 4]>(), merged in any::<[bool; 4]>(),
        on_merged in any::<[Index; 4]>(),
    ) {
        let mut dimensions = dimensions;
        let mut stages: Vec<Stage> = Vec::new();
        for d in order(dimensions.len(), &down) {
            if merged[d] {
                dimensions[d].1 = choose(on_merged[d], &[AR]);
            }
            stages.push(stage(if merged[d] { AR } else { RS }, d));
        }
        let gather = order(dimensions.len(), &up).into_iter().filter(|d| !merged[*d]);
        stages.extend(gather.map(|d| stage(AG, d)));
        prop_assume!(size(&dimensions) <= LARGEST);
        proved(&dimensions, &stages, AR);
    }

    #[test]
    fn all_reduce_one_dimension_after_the_other(
        dimensions in dimensions(&[AR]), keys in any::<[u32; 4]>(),
    ) {
        let stages: Vec<Stage> =
            order(dimensions.len(), &keys).into_iter().map(|d| stage(AR, d)).collect();
        proved(&dimensions, &stages, AR);
    }

    #[test]
    fn all_to_all_in_any_order(dimensions in dimensions(&[A2A]), keys in any::<[u32; 4]>()) {
        let stages: Vec<Stage> =
            order(dimensions.len(), &keys).into_iter().map(|d| stage(A2A, d)).collect();
        proved(&dimensions, &stages, A2A);
    }

    #[test]
    fn broadcast_in_any_order(dimensions in dimensions(&[BC]), keys in any::<[u32; 4]>()) {
        let stages: Vec<Stage> =
            order(dimensions.len(), &keys).into_iter().map(|d| stage(BC, d)).collect();
        proved(&dimensions, &stages, BC);
    }
}

#[test]
fn one_dimension_composed_is_the_algorithm_itself() {
    for algorithm in ALL {
        for operation in algorithm.operations() {
            let alone = algorithm.program(*operation, 5);
            let composed = compose(&[(5, *algorithm)], &[stage(*operation, 0)], *operation)
                .expect("the stages do the operation");
            assert_eq!(verify(&alone, *operation), verify(&composed, *operation));
            assert_eq!(
                (alone.blocks, alone.step_count()),
                (composed.blocks, composed.step_count())
            );
        }
    }
}

#[test]
fn the_orders_of_all_gather_and_reduce_scatter_are_independent_on_512_npus() {
    let ring = ALL[0];
    let direct = allrail_collective::algorithm::named("direct").expect("known");
    let dimensions: Dimensions = vec![(8, direct), (8, ring), (8, direct)];
    let stages =
        [stage(RS, 2), stage(RS, 0), stage(RS, 1), stage(AG, 2), stage(AG, 1), stage(AG, 0)];
    let (program, proof) = proved(&dimensions, &stages, AR);
    assert_optimal(&program, 2);
    assert_eq!((proof.ranks, proof.steps), (512, 1 + 1 + 7 + 1 + 7 + 1));
}

#[test]
fn a_composition_that_lost_one_message_is_refused() {
    let direct = allrail_collective::algorithm::named("direct").expect("known");
    let dimensions: Dimensions = vec![(3, ALL[0]), (2, direct), (4, ALL[3])];
    let stages: Vec<Stage> =
        [(RS, 1), (RS, 2), (RS, 0), (AG, 1), (AG, 0), (AG, 2)].map(|(o, d)| stage(o, d)).into();
    let (whole, _) = proved(&dimensions, &stages, AR);
    for step in 0..whole.step_count() {
        let mut program = whole.clone();
        let send = program.steps[7][step].sends.pop().expect("all ranks send in every step");
        let receives = &mut program.steps[send.to as usize][step].receives;
        let taken = receives.iter().rposition(|receive| receive.from == 7);
        receives.remove(taken.expect("what is sent is awaited"));
        assert!(verify(&program, AR).is_err(), "step {step}");
    }
}
