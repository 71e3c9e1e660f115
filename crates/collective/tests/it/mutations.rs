//! The verifier must refuse every program that is broken on purpose, and say where.

use allrail_collective::algorithm::{ALL, named};
use allrail_collective::program::{Blocks, Combine, Receive, Send};
use allrail_collective::verify::{Violation, verify};
use allrail_collective::{Operation, Program, grid};
use proptest::prelude::*;
use proptest::sample::Index;

fn program(name: &str, operation: Operation, ranks: u32) -> Program {
    named(name).expect("known").program(operation, ranks)
}

fn refused(program: &Program, operation: Operation) -> Violation {
    verify(program, operation).expect_err("a broken program")
}

#[test]
fn a_lost_send_is_a_deadlock_that_names_who_waits_for_whom() {
    let mut ring = program("ring_unidirectional", Operation::AllReduce, 4);
    ring.steps[1][2].sends.clear();
    let violation = refused(&ring, Operation::AllReduce);
    assert_eq!(
        violation.to_string(),
        "deadlock: rank 2 waits in step 2 for rank 1, which does not send it that message; it \
         sends to it in steps 0, 1, 3, 4, 5"
    );
}

#[test]
fn a_circle_of_waiting_ranks_is_named_once_around() {
    let mut pair = Program::empty(2, 2, 2);
    for rank in 0..2 {
        let block = Blocks::range(0..1);
        pair.steps[rank as usize][0].receives.push(Receive {
            from: 1 - rank,
            blocks: block.clone(),
            combine: Combine::Replace,
        });
        pair.steps[rank as usize][1].sends.push(Send {
            to: 1 - rank,
            blocks: block,
            via: Box::default(),
        });
    }
    assert_eq!(
        refused(&pair, Operation::AllToAll).to_string(),
        "deadlock: rank 0 waits in step 0 for rank 1, which waits in step 0 for rank 0, and so on \
         in a circle"
    );
}

#[test]
fn a_lost_receive_is_a_message_that_nobody_awaits() {
    let mut direct = program("direct", Operation::AllGather, 3);
    direct.steps[2][0].receives.clear();
    let violation = refused(&direct, Operation::AllGather);
    assert!(matches!(violation, Violation::NotAwaited { destination: 2, step: 0, .. }));
    assert!(violation.to_string().contains("sends to rank 2, which does not await it"));
}

#[test]
fn a_lost_message_is_a_missing_contribution() {
    let mut direct = program("direct", Operation::ReduceScatter, 4);
    direct.steps[3][0].sends.retain(|send| send.to != 1);
    direct.steps[1][0].receives.retain(|receive| receive.from != 3);
    assert_eq!(
        refused(&direct, Operation::ReduceScatter).to_string(),
        "at the end, block 1 of rank 1 lacks the contributions of rank 3"
    );
}

#[test]
fn a_message_sent_twice_is_counted_twice() {
    let mut direct = program("direct", Operation::ReduceScatter, 4);
    let send = direct.steps[3][0].sends[0].clone();
    let receive = direct.steps[0][0].receives.iter().find(|receive| receive.from == 3).cloned();
    direct.steps[3][0].sends.push(send);
    direct.steps[0][0].receives.push(receive.expect("rank 0 awaits rank 3"));
    let violation = refused(&direct, Operation::ReduceScatter);
    assert!(matches!(violation, Violation::CountedTwice { rank: 0, contribution: 3, .. }));
}

#[test]
fn a_sum_in_place_of_a_copy_and_the_reverse_are_refused() {
    for operation in [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather] {
        let mut broken = program("halving_doubling", operation, 6);
        let receive = &mut broken.steps[4][0].receives[0];
        receive.combine = match receive.combine {
            Combine::Reduce => Combine::Replace,
            Combine::Replace => Combine::Reduce,
        };
        refused(&broken, operation);
    }
}

#[test]
fn swapped_blocks_are_found() {
    let mut ring = program("ring_unidirectional", Operation::ReduceScatter, 5);
    let (before, after) = ring.steps.split_at_mut(1);
    std::mem::swap(&mut before[0][1].sends[0].blocks, &mut after[0][1].sends[0].blocks);
    let violation = refused(&ring, Operation::ReduceScatter);
    assert!(matches!(violation, Violation::Mixed { step: 1, .. }), "{violation}");

    let mut swap = program("direct", Operation::AllToAll, 3);
    let receives = &mut swap.steps[0][0].receives;
    let blocks: Vec<Blocks> = receives.iter().rev().map(|r| r.blocks.clone()).collect();
    for (receive, blocks) in receives.iter_mut().zip(blocks) {
        receive.blocks = blocks;
    }
    assert!(matches!(
        refused(&swap, Operation::AllToAll),
        Violation::WrongSum { .. } | Violation::WrongBlock { .. }
    ));
}

#[test]
fn a_block_is_not_sent_before_it_has_arrived() {
    let mut ring = program("ring_unidirectional", Operation::AllGather, 4);
    for steps in &mut ring.steps {
        steps.reverse();
    }
    assert_eq!(
        refused(&ring, Operation::AllGather).to_string(),
        "in step 0, rank 0 sends block 2 to rank 1 but holds nothing there"
    );
}

#[test]
fn steps_in_another_order_on_one_rank_are_found() {
    let mut ring = program("ring_unidirectional", Operation::AllReduce, 4);
    ring.steps[2].swap(1, 4);
    refused(&ring, Operation::AllReduce);
}

#[test]
fn two_copies_into_one_block_are_a_race() {
    let mut program = Program::empty(3, 1, 1);
    for source in 1..3 {
        let block = Blocks::range(0..1);
        program.message(0, (source, block.clone()), (0, block), Combine::Replace);
    }
    assert_eq!(
        refused(&program, Operation::AllReduce),
        Violation::WrittenTwice { rank: 0, step: 0, block: 0 }
    );
}

#[test]
fn shapes_that_make_no_sense_are_refused_before_anything_runs() {
    let whole = program("ring", Operation::AllGather, 4);
    let broken = |change: fn(&mut Program)| {
        let mut broken = whole.clone();
        change(&mut broken);
        refused(&broken, Operation::AllGather).to_string()
    };
    let texts = [
        broken(|p| p.steps.truncate(3)),
        broken(|p| p.steps[2].truncate(1)),
        broken(|p| p.steps[1][0].sends[0].to = 4),
        broken(|p| p.steps[1][0].sends[0].to = 1),
        broken(|p| p.steps[1][0].sends[0].blocks = Blocks::Wrapped { start: 8, count: 1 }),
        broken(|p| p.steps[1][0].sends[0].blocks = Blocks::List([8].into())),
        broken(|p| p.steps[1][0].sends[0].blocks = Blocks::range(0..2)),
        broken(|p| p.blocks = 9),
        broken(|p| p.blocks = 0),
    ];
    let expected = [
        "the program is for 4 ranks but has the steps of 3",
        "rank 2 has 1 step and rank 0 has 3; give idle ranks empty steps, so that all count the \
         same",
        "in step 0, rank 1 names peer 4; peers are the other ranks of 4",
        "in step 0, rank 1 names peer 1; peers are the other ranks of 4",
        "in step 0, rank 1 names block 8; the buffer has 8 blocks",
        "in step 0, rank 1 names block 8; the buffer has 8 blocks",
        "in step 0, rank 1 sends 2 blocks to rank 2, which awaits 1",
        "`all_gather` over 4 ranks needs equal shards, and 9 blocks have none",
        "in step 0, rank 0 names block 0; the buffer has 0 blocks",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn the_wrong_operation_is_not_proved() {
    for algorithm in ALL {
        for done in algorithm.operations() {
            let program = algorithm.program(*done, 4);
            for asked in Operation::ALL {
                let proved = verify(&program, asked).is_ok();
                // An all-reduce does a reduce-scatter, and more.
                let also = *done == Operation::AllReduce && asked == Operation::ReduceScatter;
                assert_eq!(proved, *done == asked || also, "{} {done} {asked}", algorithm.tag());
            }
        }
    }
}

/// One change of one message, or of the order of a rank's steps.
#[derive(Clone, Debug)]
struct Mutation {
    kind: MutationKind,
    rank: Index,
    at: Index,
    which: Index,
}

#[derive(Clone, Copy, Debug)]
enum MutationKind {
    Drop,
    MoveBlock,
    OtherCombine,
    SwapSteps,
}

impl Mutation {
    fn any() -> impl Strategy<Value = Self> {
        use MutationKind::{Drop, MoveBlock, OtherCombine, SwapSteps};
        let kind = prop::sample::select(vec![Drop, MoveBlock, OtherCombine, SwapSteps]);
        (kind, any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(kind, rank, at, which)| Self { kind, rank, at, which })
    }

    /// Changes the program; `false` if there is nothing to change.
    fn apply(&self, program: &mut Program) -> bool {
        let blocks = program.blocks;
        let rank = self.rank.index(program.ranks as usize);
        let busy: Vec<usize> = (0..program.step_count())
            .filter(|step| !program.steps[rank][*step].receives.is_empty())
            .collect();
        if busy.is_empty() {
            return false;
        }
        let step = *self.at.get(&busy);
        let nth = self.which.index(program.steps[rank][step].receives.len());
        match self.kind {
            MutationKind::Drop => {
                let receive = program.steps[rank][step].receives.remove(nth);
                let sends = &mut program.steps[receive.from as usize][step].sends;
                let sent = sends.iter().position(|send| send.to as usize == rank);
                sends.remove(sent.expect("what is awaited is sent"));
            }
            MutationKind::MoveBlock => {
                let receive = &mut program.steps[rank][step].receives[nth];
                let moved: Vec<u32> =
                    receive.blocks.iter(blocks).map(|block| (block + 1) % blocks).collect();
                receive.blocks = Blocks::List(moved.into());
            }
            MutationKind::OtherCombine => {
                let combine = &mut program.steps[rank][step].receives[nth].combine;
                *combine = match combine {
                    Combine::Reduce => Combine::Replace,
                    Combine::Replace => Combine::Reduce,
                };
            }
            MutationKind::SwapSteps => {
                let other = *self.which.get(&busy);
                if other == step {
                    return false;
                }
                program.steps[rank].swap(step, other);
            }
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Everything that is sent is needed, so every change of a message is found. (Not so in
    /// halving-doubling's broadcast, whose all-gather also sends rank 0 what it has.)
    #[test]
    fn every_single_change_is_refused(
        algorithm in 0..ALL.len(), operation in any::<Index>(), ranks in 3u32..=17,
        mutation in Mutation::any(),
    ) {
        let algorithm = ALL[algorithm];
        let operation = *operation.get(algorithm.operations());
        prop_assume!(
            algorithm.tag() != "halving_doubling" || operation != Operation::Broadcast
        );
        let mut program = algorithm.program(operation, ranks);
        prop_assume!(mutation.apply(&mut program));
        prop_assert!(
            verify(&program, operation).is_err(),
            "{} {operation} over {ranks}: {mutation:?} passed",
            algorithm.tag()
        );
    }

    #[test]
    fn every_single_change_of_an_all_reduce_over_a_grid_is_refused(
        algorithm in prop::sample::select(grid::ALL.to_vec()), rows in 1u32..=6, columns in 1u32..=6,
        mutation in Mutation::any(),
    ) {
        prop_assume!(rows * columns > 2 && algorithm.check(rows, columns).is_ok());
        let mut program = algorithm.program(rows, columns);
        prop_assume!(mutation.apply(&mut program));
        prop_assert!(
            verify(&program, Operation::AllReduce).is_err(),
            "{} over {rows}x{columns}: {mutation:?} passed",
            algorithm.tag()
        );
    }
}
