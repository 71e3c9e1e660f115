//! Every algorithm's `cost` against its own program, and every program through the verifier.

use allrail_collective::algorithm::ALL;
use allrail_collective::verify::verify;
use allrail_collective::{Algorithm, Alike, Operation, Program};
use allrail_fabric::Kind;
use proptest::prelude::*;

/// What one rank sends in one step, the most over ranks, summed over steps; and non-empty steps.
fn serial_blocks(program: &Program) -> (u64, u32) {
    let mut all = 0;
    let mut steps = 0;
    for step in 0..program.step_count() {
        let sent = program.steps.iter().map(|of_rank| {
            of_rank[step].sends.iter().map(|send| u64::from(send.blocks.len())).sum::<u64>()
        });
        let most = sent.max().unwrap_or(0);
        all += most;
        steps += u32::from(most > 0);
    }
    (all, steps)
}

fn check(algorithm: &dyn Algorithm, operation: Operation, ranks: u32) {
    let what = format!("{} {operation} over {ranks}", algorithm.tag());
    let program = algorithm.program(operation, ranks);
    let cost = algorithm.cost(operation, ranks);
    let (serial, steps) = serial_blocks(&program);
    let blocks = u64::from(program.blocks);
    let busiest = (0..ranks).map(|rank| program.blocks_sent(rank)).max().unwrap_or(0);

    assert_eq!(cost.sent.0 * blocks, busiest * cost.sent.1, "sent: {what}");
    assert_eq!(cost.steps, steps, "steps: {what}");
    assert_eq!(steps as usize, program.step_count(), "an empty step: {what}");
    assert_eq!(u64::from(cost.latencies), program.chain(|_| 1), "latencies: {what}");
    let (sent, fill) = (cost.sent, cost.fill);
    assert_eq!(
        (sent.0 * fill.1 + fill.0 * sent.1) * blocks,
        serial * sent.1 * fill.1,
        "sent + fill: {what}"
    );

    let proof = verify(&program, operation).unwrap_or_else(|violation| {
        panic!("{what}: {violation}");
    });
    assert_eq!(proof.steps, steps, "{what}");
    let sent: u64 = (0..ranks).map(|rank| program.blocks_sent(rank)).sum();
    let received: u64 = program
        .steps
        .iter()
        .flatten()
        .flat_map(|step| &step.receives)
        .map(|receive| u64::from(receive.blocks.len()))
        .sum();
    assert_eq!((proof.blocks, proof.blocks), (sent, received), "conservation: {what}");
}

#[test]
fn closed_forms_and_programs_agree_and_are_right_for_2_to_40_ranks() {
    for algorithm in ALL {
        for operation in algorithm.operations() {
            for ranks in 2..=40 {
                check(*algorithm, *operation, ranks);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_number_of_ranks(
        algorithm in 0..ALL.len(), operation in any::<prop::sample::Index>(), ranks in 2u32..=130,
    ) {
        let algorithm = ALL[algorithm];
        check(algorithm, *operation.get(algorithm.operations()), ranks);
    }

    #[test]
    fn costs_of_huge_dimensions_neither_overflow_nor_beat_the_lower_bound(
        algorithm in 0..ALL.len(), operation in any::<prop::sample::Index>(),
        ranks in 2u32..=1 << 31,
    ) {
        let algorithm = ALL[algorithm];
        let operation = *operation.get(algorithm.operations());
        let cost = algorithm.cost(operation, ranks);
        let p = u128::from(ranks);
        let least = match operation {
            Operation::AllReduce => (2 * (p - 1), p),
            Operation::ReduceScatter | Operation::AllGather | Operation::AllToAll => (p - 1, p),
            Operation::Broadcast => (1, 1),
        };
        let sent = (u128::from(cost.sent.0), u128::from(cost.sent.1));
        prop_assert!(sent.0 * least.1 >= least.0 * sent.1);
        prop_assert!(cost.steps >= 1);
    }
}

#[test]
fn two_ranks_exchange_each_block_once() {
    for algorithm in ALL.iter().filter(|a| a.operations().contains(&Operation::AllReduce)) {
        let cost = algorithm.cost(Operation::AllReduce, 2);
        assert_eq!(cost.sent.0, cost.sent.1, "{}", algorithm.tag());
    }
}

/// Where an algorithm says that its steps are alike, its program has no others.
#[test]
fn steps_that_are_said_to_be_alike_are() {
    let mut said = 0;
    for one in ALL {
        for operation in one.operations() {
            for ranks in [2, 3, 4, 7] {
                let known = one.on_links(Kind::Switch, *operation, ranks);
                let Some(Alike { steps, to, blocks }) = known.alike else { continue };
                said += 1;
                let program = one.program(*operation, ranks);
                assert_eq!((program.step_count() as u32, program.blocks), (steps, blocks));
                for (rank, steps) in (0i64..).zip(&program.steps) {
                    let far = |by: &i32| (rank + i64::from(*by)).rem_euclid(i64::from(ranks));
                    let mut expected: Vec<(i64, u32)> = to.iter().map(|by| (far(by), 1)).collect();
                    expected.sort_unstable();
                    for step in steps {
                        let send = step.sends.iter();
                        let mut sent: Vec<(i64, u32)> =
                            send.map(|send| (i64::from(send.to), send.blocks.len())).collect();
                        sent.sort_unstable();
                        assert_eq!(sent, expected, "{} {operation} of {ranks}", one.tag());
                    }
                }
            }
        }
    }
    assert!(said > 0);
}
