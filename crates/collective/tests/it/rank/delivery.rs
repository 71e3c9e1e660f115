//! With frames in any order, the result is exact, and the same to the bit.

use allrail_collective::rank::{RankPlan, RankPlanner, shard};
use allrail_collective::{Algorithm, Operation, algorithm};

use super::cases::{Case, Draw};
use super::runner::{Adversary, Outcome, Waits, run};

/// Every algorithm with every operation that it does.
fn every() -> impl Iterator<Item = (&'static dyn Algorithm, Operation)> {
    algorithm::ALL
        .iter()
        .flat_map(|one| one.operations().iter().map(|operation| (*one, *operation)))
}

fn plans(case: &Case, root: u32) -> Vec<RankPlan> {
    let part = |rank: &u32| RankPlanner::rooted(&case.plan, *rank, root)?.plan(case.buffer);
    case.ranks.iter().map(part).collect::<Result<_, _>>().expect("a plan that holds together")
}

fn adversaries(draw: &mut Draw, ranks: usize) -> [Adversary; 3] {
    let late = Adversary::Late(draw.below(ranks));
    let other = draw.one_of(&[Adversary::Newest, Adversary::Oldest, Adversary::LeaveLate]);
    [Adversary::Any, late, other]
}

/// What rank `place` must hold at `i` at the end; `None` where anything may stand.
fn expected(
    operation: Operation,
    root: u32,
    init: &[Vec<i64>],
    (place, i): (usize, usize),
) -> Option<i64> {
    let (ranks, elements) = (init.len() as u32, init[0].len() as u64);
    let own = |rank: usize| shard(elements, rank as u32, ranks);
    let owner =
        (0..init.len()).find(|rank| own(*rank).contains(&(i as u64))).expect("all are owned");
    let sum = || init.iter().map(|buffer| buffer[i]).sum();
    match operation {
        Operation::AllReduce => Some(sum()),
        Operation::ReduceScatter => (owner == place).then(sum),
        Operation::AllGather => Some(init[owner][i]),
        Operation::AllToAll => {
            let within = i as u64 - own(owner).start;
            Some(init[owner][(own(place).start + within) as usize])
        }
        Operation::Broadcast => Some(init[root as usize][i]),
    }
}

fn check_integers(
    case: &Case,
    (plans, root): (&[RankPlan], u32),
    adversary: Adversary,
    draw: &mut Draw,
    what: &str,
) {
    let operation = case.plan.operation;
    let elements = case.buffer.elements() as usize;
    let init: Vec<Vec<i64>> = (0..plans.len())
        .map(|_| (0..elements).map(|_| (draw.next() % 2001) as i64 - 1000).collect())
        .collect();
    let Outcome { buffers, aside } = run(plans, init.clone(), adversary, Waits::Kept, draw);
    for (place, buffer) in buffers.iter().enumerate() {
        for (i, held) in buffer.iter().enumerate() {
            if let Some(wanted) = expected(operation, root, &init, (place, i)) {
                assert_eq!(*held, wanted, "{what}, {adversary:?}: rank {place}, element {i}");
            }
        }
    }
    for (plan, aside) in plans.iter().zip(&aside) {
        for (chunk, aside) in plan.chunks.iter().zip(aside) {
            assert!(*aside <= chunk.most_aside(), "{what}: {aside} elements lay aside");
        }
    }
}

fn check_floats(case: &Case, plans: &[RankPlan], draw: &mut Draw, what: &str) {
    let elements = case.buffer.elements() as usize;
    let mut number = || f32::from_bits((draw.next() as u32 & 0x87ff_ffff) | 0x3c00_0000);
    let init: Vec<Vec<f32>> =
        (0..plans.len()).map(|_| (0..elements).map(|_| number()).collect()).collect();
    let bits = |out: Outcome<f32>| -> Vec<Vec<u32>> {
        out.buffers.into_iter().map(|b| b.into_iter().map(f32::to_bits).collect()).collect()
    };
    let first = bits(run(plans, init.clone(), Adversary::Oldest, Waits::Kept, draw));
    if case.plan.operation == Operation::AllReduce {
        assert!(first.iter().all(|buffer| *buffer == first[0]), "{what}: ranks differ");
    }
    for adversary in adversaries(draw, plans.len()) {
        let again = bits(run(plans, init.clone(), adversary, Waits::Kept, draw));
        assert!(again == first, "{what}, {adversary:?}: another order, another sum");
    }
}

#[test]
fn only_a_broadcast_has_a_root_and_it_is_one_of_its_ranks() {
    let broadcast = Operation::Broadcast;
    let does = |one: &&&dyn Algorithm| one.operations().contains(&broadcast);
    let algorithm = *algorithm::ALL.iter().find(does).expect("one does");
    let case = Case::draw(&mut Draw(3), broadcast, algorithm, 72);
    let ranks = case.ranks.len() as u32;
    let rooted = |plan, root| RankPlanner::rooted(plan, case.ranks[0], root).map(|_| ());
    assert_eq!(rooted(&case.plan, ranks - 1), Ok(()));
    let text = rooted(&case.plan, ranks).expect_err("no such place").to_string();
    assert!(text.contains(&format!("there are {ranks} ranks")), "{text}");
    let other = Case::draw(&mut Draw(3), Operation::AllToAll, algorithm::ALL[0], 72);
    let planned = RankPlanner::rooted(&other.plan, other.ranks[0], 1).map(|_| ());
    let text = planned.expect_err("it has none").to_string();
    assert!(text.contains("has no root"), "{text}");
}

/// How many cases of each algorithm and operation; more by `LAW_SEEDS=1000`.
fn seeds() -> u64 {
    std::env::var("LAW_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn any_order_of_frames_gives_the_exact_result() {
    for (algorithm, operation) in every() {
        for seed in 0..seeds() {
            let what = format!("`{}` {operation}, seed {seed}", algorithm.tag());
            let mut draw = Draw(seed);
            let case = Case::draw(&mut draw, operation, algorithm, 72);
            let broadcast = operation == Operation::Broadcast;
            let root = if broadcast { draw.below(case.ranks.len()) as u32 } else { 0 };
            let plans = plans(&case, root);
            for adversary in adversaries(&mut draw, plans.len()) {
                check_integers(&case, (&plans, root), adversary, &mut draw, &what);
            }
            check_floats(&case, &plans, &mut draw, &what);
        }
    }
}
