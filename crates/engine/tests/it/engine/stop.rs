//! Faults end in one named error on every rank that is left, which says of every tensor where it is; and
//! a job begins anew after them.

use std::sync::Arc;

use allrail_coordinate::{self as coordinate, Cause, Payload, Reason};
use allrail_engine::Broken;
use allrail_engine::engine::{Event, Stopped};
use allrail_schedule::{Key, OperationName};

use super::ranks::{World, common, policy, tagged, tensor, tensors};

fn only(stopped: &[Stopped]) -> &Stopped {
    assert_eq!(stopped.len(), 1, "a rank stops once");
    &stopped[0]
}

#[test]
fn a_rank_that_has_another_shape_or_type_is_named_on_every_rank() {
    for by in coordinate::ALL {
        for other in ["shape", "dtype"] {
            let settings = common(policy("fifo"), *by);
            let mut world = World::new(4, &[2, 2], &settings, |rank| {
                let mut odd = tensor("t1", 64, 1);
                if rank == 2 && other == "shape" {
                    odd.signature.shape = vec![32];
                } else if rank == 2 {
                    odd.signature.dtype = "int32".to_owned();
                }
                vec![tensor("t0", 64, 0), odd]
            });
            world.submit_in_any_order(&["t0"]);
            world.run_until_done(1);
            world.submit_in_any_order(&["t1"]);
            world.run_until_stopped();
            for (rank, node) in world.nodes.iter().enumerate() {
                let Stopped { error, tensors, .. } = only(&node.stopped);
                let what = format!("rank {rank} with `{}`: {error}", by.tag());
                let Broken::Fault(Cause::Mismatch { tensor, what: text }) = error else {
                    panic!("{what}")
                };
                assert_eq!(tensor, "t1", "{what}");
                assert!(text.contains("rank 2") && text.contains(other), "{what}");
                let finished: Vec<(&str, bool)> =
                    tensors.iter().map(|one| (one.name.as_str(), one.finished)).collect();
                assert_eq!(finished, [("t0", true), ("t1", false)], "{what}");
            }
        }
    }
}

#[test]
fn a_lost_peer_ends_in_one_error_and_the_job_begins_anew() {
    for by in [None, Some(coordinate::ALL[0]), Some(coordinate::ALL[2])] {
        let settings = by.map_or_else(|| tagged(policy("fifo")), |by| common(policy("fifo"), by));
        let mut world = World::new(6, &[3], &settings, |_| tensors(&[64, 32]));
        world.submit_in_any_order(&["t0"]);
        world.run_until_done(1);
        world.submit_in_any_order(&["t0", "t1"]);
        world.nodes[1].lost = true;
        for rank in [0, 2] {
            let stopped = !world.nodes[rank].stopped.is_empty();
            let told = world.tell(rank, Event::PeerLost { rank: 1 });
            assert_eq!(told.is_err(), stopped, "a rank that has stopped takes nothing more");
            let lost = Broken::Fault(Cause::Lost { rank: 1 });
            assert_eq!(only(&world.nodes[rank].stopped).error, lost);
        }
        world.begin_anew(1);
        world.submit_in_any_order(&["t0", "t1"]);
        world.run_until_done(2);
        for node in &world.nodes {
            let last = node.began.last().expect("it has begun").name;
            assert_eq!((last.epoch, last.generation), (1, 0));
        }
    }
}

#[test]
fn one_that_fails_is_named_on_every_rank_with_a_coordinator_or_without() {
    let settings = std::iter::once(tagged(policy("fifo")))
        .chain(coordinate::ALL.iter().map(|by| common(policy("fifo"), *by)));
    for settings in settings {
        let mut world = World::new(8, &[2, 2], &settings, |_| tensors(&[64, 9]));
        world.submit_in_any_order(&["t0", "t1"]);
        let operation = loop {
            match world.nodes[3].under_way() {
                Some(operation) => break operation,
                None => assert!(world.go(), "it goes on"),
            }
        };
        let why = "a link is down".to_owned();
        world.tell(3, Event::Failed { operation, why }).expect("it is under way");
        world.run_until_stopped();
        for (rank, node) in world.nodes.iter().enumerate() {
            let error = &only(&node.stopped).error;
            let Broken::Fault(Cause::Failed { by: 3, about, why }) = error else {
                panic!("{settings:?}, rank {rank}: {error}")
            };
            assert_eq!((about.operation, why.as_str()), (operation, "a link is down"));
            assert!(about.tensor.as_ref().is_some_and(|name| Key::of(name) == operation.key));
        }
    }
}

#[test]
fn one_that_wants_to_stop_stops_all_with_a_coordinator_or_without() {
    let settings = std::iter::once(tagged(policy("fifo")))
        .chain(coordinate::ALL.iter().map(|by| common(policy("fifo"), *by)));
    for settings in settings {
        let mut world = World::new(8, &[5], &settings, |_| tensors(&[64, 9]));
        world.submit_in_any_order(&["t0"]);
        world.tell(3, Event::Shutdown).expect("it runs");
        world.run_until_stopped();
        let asked = world.nodes.iter().all(|node| only(&node.stopped).error == Broken::Asked);
        assert!(asked, "{settings:?}");
        assert!(world.nodes.iter().all(|node| node.engine.deadline().is_none()));
    }
}

#[test]
fn a_frame_that_cannot_be_is_named_on_every_rank_and_one_of_an_old_epoch_is_dropped() {
    let mut world = World::new(8, &[3], &tagged(policy("fifo")), |_| tensors(&[64, 9]));
    world.begin_anew(4);
    let name = OperationName { epoch: 4, key: Key::of("t1"), ..OperationName::default() };
    let refused = |operation| Event::Refused { from: 2, operation, why: "too long".to_owned() };
    world.tell(0, refused(OperationName { epoch: 3, ..name })).expect("a peer's");
    let payload = Payload::Stop(Arc::new(Reason::Asked));
    world.tell(0, Event::Frame { from: 2, epoch: 0, payload }).expect("a peer's");
    assert_eq!((world.nodes[0].engine.dropped(), &world.nodes[0].stopped), (2, &Vec::new()));
    let early = world.tell(0, refused(OperationName { epoch: 5, ..name }));
    assert_eq!(early, Err(Broken::Epoch { epoch: 5, now: 4 }));
    world.tell(0, refused(name)).expect("a peer's");
    world.run_until_stopped();
    for node in &world.nodes {
        let text = "rank 2 has sent rank 0 a frame of operation 4/0/";
        let error = only(&node.stopped).error.to_string();
        assert!(error.starts_with(text) && error.ends_with("`t1` that cannot be: too long"));
    }
}

#[test]
fn a_stop_says_how_much_of_a_tensor_holds_the_result() {
    let mut settings = tagged(policy("bytescheduler"));
    settings.tensor.partition = Some(allrail_core::Bytes::new(64));
    let mut world = World::new(1, &[2], &settings, |_| tensors(&[48, 16]));
    let key = Key::of("t0");
    world.tell(0, Event::Submit { key }).expect("it is registered");
    // Of three parts of two chunks of two stages each: at least one part is over, and one is not.
    world.end_some(0, 10);
    world.tell(0, Event::PeerLost { rank: 1 }).expect("a rank");
    let stopped = only(&world.nodes[0].stopped);
    let report = &stopped.tensors[0];
    let partly = !report.finished && report.elements < 48 && report.elements.is_multiple_of(16);
    assert!(partly && report.elements > 0, "{report:?}");
    assert_eq!((stopped.tensors[1].submitted, stopped.tensors[1].finished), (0, true));
    assert_eq!(stopped.error.to_string(), "rank 1 is lost");
}
