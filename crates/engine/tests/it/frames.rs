//! Frames that no plan knows, that come twice, too late or too early: each is refused by name, and nothing
//! has changed then.

use std::sync::Arc;

use allrail_collective::plan::{ChunkPlan, SCHEMA_VERSION};
use allrail_collective::rank::{Action, Buffer, RankPlan};
use allrail_collective::{CollectivePlan, Operation, SizeRange, Stage, StageRef};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_engine::memory::{self, Outside};
use allrail_engine::signature_hash::Differs;
use allrail_engine::{
    ChunkRun, Dtype, FrameAt, FrameName, Misfit, Operations, Refused, SignatureHash, Work,
};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_schedule::operation::{Key, OperationName};

/// Rank 2's part of an all-reduce of 1,000 floats over five ranks, each of which sends to all.
fn part() -> Arc<RankPlan> {
    let (dimension, size) = (DimensionId(0), Bytes::new(4000));
    let stages = [Operation::ReduceScatter, Operation::AllGather];
    let stages = stages.map(|operation| Stage { operation, dimension }).to_vec();
    let plan = CollectivePlan {
        schema_version: SCHEMA_VERSION,
        policy: "test".to_owned(),
        fabric: Fabric {
            memory_bandwidth: None,
            window: None,
            name: "test".to_owned(),
            dimensions: vec![Dimension::new(
                Kind::Switch,
                5,
                1,
                Bandwidth::from_bytes_per_second(1).expect("a bandwidth"),
                Time::ZERO,
            )],
        },
        operation: Operation::AllReduce,
        size,
        sizes: Some(SizeRange { from: size, to: size }),
        dimensions: vec![dimension],
        algorithms: vec!["direct".to_owned()],
        programs: Default::default(),
        endpoint_delay: Time::ZERO,
        chunks: vec![ChunkPlan { bytes: size, stages }],
        dimension_order: vec![(0..2).map(|stage| StageRef { chunk: 0, stage }).collect()],
        order_made_in: "dims".to_owned(),
        key: String::new(),
    };
    let buffer = Buffer::new(1000, 4).expect("a buffer");
    Arc::new(RankPlan::new(&plan, 2, buffer).expect("a right plan"))
}

fn name(generation: u64) -> OperationName {
    OperationName { key: Key::of("weight"), generation, ..OperationName::default() }
}

/// A frame of the reduce-scatter.
fn of_stage(stage: u32, from: u32) -> FrameAt {
    FrameAt { stage, step: 0, from, index: 0 }
}

fn scatter(generation: u64, from: u32) -> FrameName {
    FrameName { operation: name(generation), chunk: 0, at: of_stage(0, from) }
}

/// What frames carry beside the name.
const OURS: SignatureHash = SignatureHash(7);

fn opened() -> Operations<u32> {
    let mut operations = Operations::new(0, Bytes::new(2000));
    operations.open(name(0), OURS, part()).expect("the first time");
    operations
}

/// The bytes of a frame of the reduce-scatter: rank 2's shard.
fn shard(part: &RankPlan) -> u64 {
    let chunk = &part.chunks[0];
    let received = chunk.stage_messages(0).iter().find(|m| m.action != Action::Send);
    received.expect("every rank sends it one").elements * 4
}

#[test]
fn what_the_plan_does_not_know_is_refused() {
    let bytes = shard(&part());
    let mut operations = opened();
    let misfit = |misfit| Refused::Misfit { operation: name(0), chunk: 0, misfit };
    let of = |chunk, at| FrameName { operation: name(0), chunk, at };
    for wrong in [of_stage(0, 2), of_stage(0, 9), of_stage(7, 0)] {
        let refused = operations.frame(of(0, wrong), OURS, bytes, 1);
        assert_eq!(refused, Err(misfit(Misfit::Unawaited(wrong))));
    }
    let refused = operations.frame(of(3, of_stage(0, 0)), OURS, bytes, 1);
    assert_eq!(refused, Err(Refused::NoChunk(of(3, of_stage(0, 0)))));
    assert_eq!(refused.map_err(|one| one.from()), Err(Some(0)));
    let (at, expected) = (of_stage(0, 1), bytes);
    let refused = operations.frame(of(0, at), OURS, bytes - 4, 1);
    assert_eq!(refused, Err(misfit(Misfit::Length { at, bytes: bytes - 4, expected })));
    assert_eq!(operations.next_work(), None);
    // None of these has taken the place of the right one.
    operations.frame(scatter(0, 0), OURS, bytes, 5).expect("the right one");
    let work = operations.next_work().expect("it may be combined");
    assert!(matches!(work.2, Work::Combine { frame: 5, .. }));
}

#[test]
fn a_frame_counts_once_whether_it_was_combined_or_lies_aside() {
    let bytes = shard(&part());
    let mut operations = opened();
    for from in [1, 0] {
        operations.frame(scatter(0, from), OURS, bytes, from).expect("awaited");
    }
    // The sum is made in the order of the plan: rank 0's first.
    let (operation, chunk, work) = operations.next_work().expect("rank 0's");
    assert!(matches!(work, Work::Combine { frame: 0, .. }));
    assert_eq!(operations.run(operation, chunk).map(ChunkRun::aside), Some(bytes / 4));
    for from in [0, 1] {
        let misfit = Misfit::Twice(of_stage(0, from));
        let refused = Refused::Misfit { operation, chunk, misfit };
        assert_eq!(operations.frame(scatter(0, from), OURS, bytes, 9), Err(refused));
    }
    assert_eq!(operations.next_work(), None);
    operations.done(operation, chunk, work.place()).expect("handed out");
    let misfit = Misfit::NotHanded(work.place());
    let again = operations.done(operation, chunk, work.place());
    assert_eq!(again, Err(Refused::Misfit { operation, chunk, misfit }));
    let (.., work) = operations.next_work().expect("rank 1's");
    assert!(matches!(work, Work::Combine { frame: 1, .. }));
    assert_eq!(operations.run(operation, chunk).map(ChunkRun::aside), Some(0));
}

#[test]
fn what_comes_before_its_operation_is_kept_once_and_in_bounds() {
    let bytes = shard(&part());
    let mut operations = opened();
    operations.frame(scatter(1, 0), OURS, bytes, 7).expect("there is room");
    let twice = operations.frame(scatter(1, 0), OURS, bytes, 8);
    assert_eq!(twice, Err(Refused::Twice(scatter(1, 0))));
    operations.frame(scatter(1, 1), OURS, bytes, 8).expect("there is room");
    let (all, most) = (Bytes::new(3 * bytes), Bytes::new(2000));
    let name_of_third = scatter(1, 3);
    let refused = operations.frame(name_of_third, OURS, bytes, 9);
    assert_eq!(refused, Err(Refused::NoRoom { name: name_of_third, bytes: all, most }));
    assert_eq!(operations.early(), Bytes::new(2 * bytes));
    operations.open(name(1), OURS, part()).expect("the first time");
    assert_eq!(operations.open(name(1), OURS, part()), Err(Refused::Opened(name(1))));
    assert_eq!(operations.early(), Bytes::new(0));
    let (operation, _, work) = operations.next_work().expect("it was kept");
    assert_eq!(operation, name(1));
    assert!(matches!(work, Work::Combine { frame: 7, .. }));
}

#[test]
fn a_frame_of_another_operation_is_refused_whether_it_comes_early_or_not() {
    let bytes = shard(&part());
    let theirs = SignatureHash::new(Operation::Broadcast, 1, "int8", &[9], &[]);
    let mut operations = opened();
    let refused = operations.frame(scatter(0, 3), theirs, bytes, 1).expect_err("another");
    let differs = Differs { theirs, ours: OURS };
    assert_eq!(refused, Refused::Signature { name: scatter(0, 3), differs });
    operations.frame(scatter(1, 4), theirs, bytes, 1).expect("kept until it is known");
    let name_of_it = scatter(1, 4);
    let refused = operations.open(name(1), OURS, part());
    assert_eq!(refused, Err(Refused::Signature { name: name_of_it, differs }));
    assert_eq!((operations.next_work(), operations.early()), (None, Bytes::new(0)));
}

#[test]
fn a_frame_of_a_part_that_never_began_is_found_when_the_others_are_over() {
    let mut operations = opened();
    let of_part = |generation, part| {
        let operation = OperationName { part, ..name(generation) };
        FrameName { operation, ..scatter(0, 1) }
    };
    operations.frame(of_part(0, 5), OURS, 8, 1).expect("it may begin yet");
    operations.frame(of_part(1, 0), OURS, 8, 1).expect("it may begin yet");
    let key = name(0).key;
    assert_eq!(operations.exchanged(0, key, 0), Err(Refused::Beyond(of_part(0, 5))));
    assert_eq!(operations.exchanged(0, Key::of("other"), 0), Ok(()));
    assert_eq!(operations.exchanged(1, key, 1), Ok(()), "another group's");
}

#[test]
fn what_is_over_or_of_another_epoch_stays_so() {
    let bytes = shard(&part());
    let mut operations = opened();
    operations.close(name(0)).expect("open");
    assert_eq!(operations.close(name(0)), Err(Refused::NotOpen(name(0))));
    let late = operations.frame(scatter(0, 0), OURS, bytes, 1);
    assert_eq!(late, Err(Refused::Late(scatter(0, 0))));
    assert_eq!(operations.open(name(0), OURS, part()), Err(Refused::Opened(name(0))));
    let mut other = scatter(1, 0);
    other.operation.epoch = 3;
    let refused = operations.frame(other, OURS, bytes, 1);
    assert_eq!(refused, Err(Refused::Epoch { name: other, epoch: 0 }));
    let at = StageRef { chunk: 0, stage: 0 };
    assert_eq!(operations.begin(name(0), at), Err(Refused::NotOpen(name(0))));
    assert_eq!(operations.next_work(), None);
}

#[test]
fn a_peer_that_is_ahead_of_the_plan_is_refused_before_memory_is_taken() {
    let part = part();
    let mut operations = opened();
    // No rank can have gathered before this one has sent it what it sums.
    let chunk = &part.chunks[0];
    let gathered = chunk.stage_messages(1).iter().filter(|m| m.action != Action::Send);
    let mut refused = None;
    for message in gathered {
        let at = FrameAt { stage: 1, step: message.step, from: message.peer, index: message.index };
        let frame = FrameName { operation: name(0), chunk: 0, at };
        refused = refused.or(operations.frame(frame, OURS, message.elements * 4, 1).err());
    }
    for from in [0, 1, 3, 4] {
        let bytes = shard(&part);
        refused = refused.or(operations.frame(scatter(0, from), OURS, bytes, 1).err());
    }
    let Some(Refused::Misfit { misfit: Misfit::TooEarly { aside, most, .. }, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(aside > most && most == chunk.most_aside());
}

#[test]
fn memory_and_frames_of_another_length_are_left_alone() {
    let part = part();
    let chunk = &part.chunks[0];
    let message = chunk.messages().last().expect("it has messages");
    let place = message.place;
    let short = memory::read(chunk, message, Dtype::Float32, &[0; 3999], &mut Vec::new());
    assert!(matches!(short, Err(Outside::Memory { bytes: 3999, .. })), "{short:?}");
    let mut held = [7; 4000];
    let expected = message.elements * 4;
    let wrong = memory::combine(chunk, message, Dtype::Float32, &mut held, &[1; 3]);
    assert_eq!(wrong, Err(Outside::Frame { place, expected, bytes: 3 }));
    assert!(held.iter().all(|byte| *byte == 7));
}

#[test]
fn types_are_those_of_the_core_with_their_bits_in_their_names() {
    for (place, one) in Dtype::ALL.into_iter().enumerate() {
        assert_eq!(
            (one as usize, format!("{one:?}").to_lowercase()),
            (place, one.name().to_owned())
        );
        assert_eq!(Dtype::named(one.name()), Some(one));
        let bits = one.name().trim_start_matches(|c: char| c.is_alphabetic());
        assert_eq!(bits.parse(), Ok(8 * one.width()));
    }
    assert_eq!(Dtype::named("bfloat8"), None);
}
