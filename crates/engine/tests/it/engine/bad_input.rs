//! What callers and peers do wrong: an error that says so, and nothing has changed.

use allrail_collective::StageRef;
use allrail_collective::rank::Plans;
use allrail_coordinate::{self as coordinate, Payload};
use allrail_core::{Bytes, Time};
use allrail_engine::engine::{Action, Engine, Event, Home, Settings};
use allrail_engine::{Broken, CollectiveId, Run};
use allrail_schedule::{Key, OperationName};

use super::ranks::{engine, policy, tagged, tensor, tensors};

const KEY: &str = "t0";

/// Rank 0 of 2, whose only tensor's second generation is under way, with what runs of it.
fn under_way() -> (Engine, OperationName, Run) {
    let mut one = engine(0, &[2], &tagged(policy("fifo"))).expect("settings");
    one.register(tensor(KEY, 8, 0)).expect("a new tensor");
    let mut out = Vec::new();
    one.on(Time::ZERO, Event::Start, &mut out).expect("all are registered");
    for _ in 0..2 {
        // The first one runs to its end.
        while let Some(run) = first_run(&mut out) {
            let (id, at) = (run.collective, run.at);
            one.on(Time::ZERO, Event::PortFree { port: run.port }, &mut out).expect("a port");
            one.on(Time::ZERO, Event::StageOver { id, at }, &mut out).expect("it ran");
            one.settle(&mut out);
        }
        one.on(Time::ZERO, Event::Submit { key: Key::of(KEY) }, &mut out).expect("it is done");
        one.settle(&mut out);
    }
    let name = out.iter().rev().find_map(|action| match action {
        Action::Begin { operation, .. } => Some(*operation),
        _ => None,
    });
    let run = first_run(&mut out).expect("a stage runs");
    (one, name.expect("it has begun"), run)
}

fn first_run(out: &mut Vec<Action>) -> Option<Run> {
    let place = out.iter().position(|action| matches!(action, Action::Run(_)))?;
    match out.remove(place) {
        Action::Run(run) => Some(run),
        _ => None,
    }
}

fn told(one: &mut Engine, event: Event) -> Result<Vec<Action>, Broken> {
    let mut out = Vec::new();
    let before = one.report();
    let result = one.on(Time::ZERO, event, &mut out);
    if result.is_err() {
        assert_eq!((one.report(), &out), (before, &Vec::new()), "nothing has changed");
    }
    result.map(|()| out)
}

fn frame(from: u32, epoch: u32) -> Event {
    Event::Frame { from, epoch, payload: Payload::Vote(Box::default()) }
}

#[test]
fn a_tensor_is_registered_once() {
    let (mut one, _, _) = under_way();
    let again = one.register(tensor(KEY, 8, 0)).expect_err("it is known");
    assert_eq!(again.to_string(), "tensor `t0` is registered already");
    let other = one.register(tensor(KEY, 9, 0)).expect_err("it is known");
    assert_eq!(other.to_string(), "tensor `t0` is registered already, shape [8] and not [9]");
    let late = one.register(tensor("t1", 8, 0)).expect_err("the job has begun");
    assert_eq!(late.to_string(), "a registration comes after the start");
    assert!(late.hint().is_some());
    let mut fresh = engine(0, &[2], &tagged(policy("fifo"))).expect("settings");
    let mut huge = tensor("huge", 1 << 62, 0);
    assert!(fresh.register(huge.clone()).is_err(), "2^64 bytes");
    huge.signature.shape = vec![u64::MAX, 2];
    assert!(fresh.register(huge).is_err(), "2^65 elements");
}

#[test]
fn events_that_cannot_be_are_errors() {
    let old = |name: OperationName| Broken::Old(OperationName { generation: 0, ..name });
    let (_, name, run) = under_way();
    let nobody = Key::of("nobody's");
    let gone = CollectiveId { generation: run.collective.generation + 1, ..run.collective };
    let elsewhere = StageRef { chunk: 99, ..run.at };
    let not_done = Broken::NotDone { name: KEY.to_owned(), generation: 1 };
    let not_running = Broken::NotRunning { collective: run.collective, at: elsewhere };
    let nameless = OperationName { key: nobody, ..name };
    let failed = |operation| Event::Failed { operation, why: "a link is down".to_owned() };
    let refused = |from, operation| Event::Refused { from, operation, why: "too long".to_owned() };
    let rows = [
        (Event::Start, Broken::OutOfTurn { call: "a start", when: "after" }),
        (Event::Submit { key: nobody }, Broken::UnknownTensor(nobody)),
        (Event::Unused { key: nobody }, Broken::UnknownTensor(nobody)),
        (Event::Submit { key: Key::of(KEY) }, not_done),
        (frame(2, 0), Broken::UnknownPeer { rank: 2, ranks: 2 }),
        (frame(1, 3), Broken::Epoch { epoch: 3, now: 0 }),
        (frame(1, 0), Broken::NoCoordination { from: 1 }),
        (Event::PeerLost { rank: 9 }, Broken::UnknownPeer { rank: 9, ranks: 2 }),
        (Event::StageOver { id: gone, at: run.at }, Broken::UnknownCollective(gone)),
        (Event::StageOver { id: run.collective, at: elsewhere }, not_running),
        (failed(OperationName { generation: 0, ..name }), old(name)),
        (failed(nameless), Broken::UnknownTensor(nobody)),
        (refused(2, name), Broken::UnknownPeer { rank: 2, ranks: 2 }),
        (refused(1, OperationName { epoch: 7, ..name }), Broken::Epoch { epoch: 7, now: 0 }),
        (Event::Membership { epoch: 0, ranks: 2 }, Broken::Epoch { epoch: 0, now: 0 }),
    ];
    for (event, expected) in rows {
        let (mut one, _, _) = under_way();
        let text = format!("{event:?}");
        assert_eq!(told(&mut one, event), Err(expected), "{text}");
    }
}

#[test]
fn settings_and_changes_that_cannot_be_name_the_field() {
    let retune = |partition, credit| Event::Retune {
        at: 5,
        partition: Some(Bytes::new(partition)),
        credit: Some(Bytes::new(credit)),
    };
    let rows = [
        (retune(0, u64::MAX), "retune.partition"),
        (retune(64, 0), "retune.credit"),
        (retune(64, 1000), "retune.credit"),
        (Event::Membership { epoch: 1, ranks: 3 }, "ranks"),
        (Event::PortFree { port: 4 }, "port 4"),
    ];
    for (event, field) in rows {
        let (mut one, _, _) = under_way();
        let error = told(&mut one, event).expect_err(field);
        assert!(error.to_string().contains(field), "{error}");
    }
    let (mut one, _, _) = under_way();
    let other = told(&mut one, Event::Membership { epoch: 1, ranks: 3 }).expect_err("3 of 2");
    let says = |what| other.hint().is_some_and(|hint| hint.contains(what));
    assert!(says("`Engine::new` with `ranks: 3`") && says("`epoch: 1`"), "{other:?}");
    let whole = tagged(policy("fifo"));
    let refused = [
        (Settings { granule: Bytes::new(0), ..whole.clone() }, "granule"),
        (tagged(policy("alphabetical")), "alphabetical"),
    ];
    for (settings, field) in refused {
        let error = engine(0, &[2], &settings).map(|_| ()).expect_err(field);
        assert!(error.to_string().contains(field), "{error}");
    }
    let seventh = Settings { rank: 7, ranks: 2, ..whole };
    let error = Engine::new(seventh, Plans::new(0, 1)).map(|_| ()).expect_err("rank 7 of 2");
    assert!(error.to_string().contains("`rank` is `7`"), "{error}");
}

#[test]
fn a_frame_has_a_home_an_early_place_or_is_of_an_old_step() {
    let (one, name, run) = under_way();
    let home = |name| one.home(&name);
    assert_eq!(home(name), Ok(Home::Running(run.collective)));
    let next = name.next_generation();
    assert_eq!(home(next), Ok(Home::Early));
    let old = OperationName { generation: 0, ..name };
    assert_eq!(home(old), Err(Broken::Old(old)));
    let epoch = OperationName { epoch: 1, ..name };
    assert_eq!(home(epoch), Err(Broken::Epoch { epoch: 1, now: 0 }));
    let group = OperationName { group: 1, ..name };
    assert_eq!(home(group), Err(Broken::UnknownOperation(group)));
    let part = OperationName { part: 1, ..name };
    assert_eq!(home(part), Err(Broken::UnknownOperation(part)));
    let key = OperationName { key: Key::of("nobody's"), ..name };
    assert_eq!(home(key), Err(Broken::UnknownTensor(key.key)));
    let far = OperationName { generation: u64::MAX, ..name };
    assert_eq!(home(far), Ok(Home::Early));
}

#[test]
fn nothing_is_taken_before_the_start_or_after_the_end() {
    let mut one = engine(0, &[2], &tagged(policy("fifo"))).expect("settings");
    let early = Broken::OutOfTurn { call: "an event", when: "before" };
    assert_eq!(told(&mut one, Event::Submit { key: Key::of(KEY) }), Err(early.clone()));
    assert_eq!(told(&mut one, frame(1, 0)), Err(early));
    assert!(one.home(&OperationName::default()).is_err());
    let (mut one, _, run) = under_way();
    let stopped = told(&mut one, Event::PeerLost { rank: 1 }).expect("it stops");
    assert!(matches!(stopped[..], [Action::Stop(_)]), "{stopped:?}");
    let over = Event::StageOver { id: run.collective, at: run.at };
    assert_eq!(told(&mut one, over), Err(Broken::Stopped));
    assert_eq!(told(&mut one, Event::PeerLost { rank: 1 }), Err(Broken::Stopped));
    let mut out = Vec::new();
    one.settle(&mut out);
    assert_eq!(out, [], "it launches nothing more");
}

/// A peer's coordinator that lies stops the job, and the error names the peer.
#[test]
fn a_peer_that_breaks_the_rules_of_coordination_ends_the_job() {
    for by in coordinate::ALL {
        let mut one =
            engine(1, &[3], &super::ranks::common(policy("fifo"), *by)).expect("settings");
        for tensor in tensors(&[8]) {
            one.register(tensor).expect("a new tensor");
        }
        let mut out = Vec::new();
        one.on(Time::ZERO, Event::Start, &mut out).expect("all are registered");
        out.clear();
        // No rank sends that to one that is no node above it.
        let payload = Payload::Vote(Box::default());
        one.on(Time::ZERO, Event::Frame { from: 2, epoch: 0, payload }, &mut out).expect("a peer");
        let stop = out.iter().find_map(|action| match action {
            Action::Stop(stopped) => Some(stopped.error.to_string()),
            _ => None,
        });
        let text = stop.unwrap_or_else(|| panic!("`{}` takes it", by.tag()));
        assert!(text.contains("rank 2"), "`{}`: {text}", by.tag());
    }
}
