//! Names of calls without end: what is kept stays bounded, whatever peers do.

use allrail_coordinate::Cause;
use allrail_coordinate::Payload;
use allrail_coordinate::messages::{Idle, IdleNames};
use allrail_core::Time;
use allrail_engine::Broken;
use allrail_engine::engine::{Action, Event, Settings};
use allrail_schedule::Key;

use super::ranks::{engine, policy, tagged};

const AFTER: u64 = 8;

fn settings() -> Settings {
    Settings { named_calls: true, forget_after: AFTER, ..tagged(policy("fifo")) }
}

/// An empty call is over at once.
fn call(
    engine: &mut allrail_engine::Engine,
    name: &str,
    out: &mut Vec<Action>,
) -> Result<u64, Broken> {
    let call = allrail_engine::engine::Call {
        operation: allrail_collective::Operation::AllReduce,
        root: 0,
        dtype: "float32",
        shape: &[0],
        width: 4,
        priority: 0,
        signature: None,
    };
    engine.call_named(Time::ZERO, (name, &call), out).map(|name| name.generation)
}

fn lists(out: &[Action]) -> Vec<(u32, IdleNames)> {
    out.iter()
        .filter_map(|action| match action {
            Action::Send { to, payload: Payload::Idle(said) } => Some((*to, (**said).clone())),
            _ => None,
        })
        .collect()
}

/// What each says is brought to the others.
fn deliver(engines: &mut [allrail_engine::Engine], outs: &mut [Vec<Action>]) {
    while outs.iter().any(|out| !lists(out).is_empty()) {
        for from in 0..engines.len() {
            let said = lists(&std::mem::take(&mut outs[from]));
            for (to, said) in said {
                let payload = Payload::Idle(said.into());
                let event = Event::Frame { from: from as u32, epoch: 0, payload };
                let told = engines[to as usize].on(Time::ZERO, event, &mut outs[to as usize]);
                told.expect("a list");
            }
        }
    }
}

fn started(ranks: u32) -> Vec<allrail_engine::Engine> {
    let start = |rank| {
        let mut engine = engine(rank, &[ranks], &settings()).expect("right settings");
        engine.on(Time::ZERO, Event::Start, &mut Vec::new()).expect("it starts");
        engine
    };
    (0..ranks).map(start).collect()
}

#[test]
fn what_is_kept_of_many_names_is_what_was_used_lately() {
    let mut engines = started(3);
    let mut outs = vec![Vec::new(); 3];
    for number in 0..50_000 {
        let name = format!("name{number}");
        for (engine, out) in engines.iter_mut().zip(&mut outs) {
            assert_eq!(call(engine, &name, out), Ok(0));
        }
        deliver(&mut engines, &mut outs);
        if number % 1000 == 0 {
            for (engine, out) in engines.iter_mut().zip(&mut outs) {
                assert!(call(engine, "always", out).is_ok());
                assert!(engine.names() as u64 <= 2 * AFTER, "{}", engine.names());
            }
            deliver(&mut engines, &mut outs);
        }
    }
}

#[test]
fn who_lags_behind_keeps_names_and_no_rank_forgets_alone() {
    let mut engines = started(2);
    let mut outs = vec![Vec::new(); 2];
    for number in 0..100 {
        call(&mut engines[0], &format!("name{number}"), &mut outs[0]).expect("it is taken");
    }
    deliver(&mut engines, &mut outs);
    assert_eq!(engines[0].names(), 100, "rank 1 has used none");
    for number in 0..100 {
        let name = format!("name{number}");
        assert_eq!(call(&mut engines[1], &name, &mut outs[1]), Ok(0));
    }
    deliver(&mut engines, &mut outs);
    for number in 0..100 {
        let name = format!("name{number}");
        let again = [0, 1].map(|rank: usize| {
            let generation = call(&mut engines[rank], &name, &mut outs[rank]);
            deliver(&mut engines, &mut outs);
            generation
        });
        assert_eq!(again[0], again[1], "{name}");
    }
}

#[test]
fn a_call_waits_while_its_name_is_undecided_and_a_peer_that_leaves_decides() {
    let mut engines = started(3);
    let mut outs = vec![Vec::new(); 3];
    let names: Vec<String> = (0..2 * AFTER).map(|number| format!("name{number}")).collect();
    for name in &names {
        for (engine, out) in engines.iter_mut().zip(&mut outs) {
            call(engine, name, out).expect("it is taken");
        }
    }
    let undecided = Err(Broken::Undecided { name: "name0".to_owned() });
    assert_eq!(call(&mut engines[0], "name0", &mut outs[0]), undecided);
    assert!(engines[0].is_undecided("name0") && !engines[0].is_undecided("name15"));
    for rank in [2, 1] {
        engines[0].on(Time::ZERO, Event::PeerLeft { rank }, &mut outs[0]).expect("it is known");
    }
    assert_eq!(call(&mut engines[0], "name0", &mut outs[0]), Ok(1));
    // And nobody is asked any more.
    outs[0].clear();
    for number in 0..100 {
        call(&mut engines[0], &format!("more{number}"), &mut outs[0]).expect("it is taken");
    }
    assert!(lists(&outs[0]).is_empty());
}

#[test]
fn a_list_that_cannot_be_ends_the_job_and_names_its_sender() {
    let name = |key| Idle { key: Key(key), calls: 1 };
    let wrong = [
        IdleNames { round: 1, names: Vec::new() },
        IdleNames { round: 0, names: vec![name(5), name(4)] },
        IdleNames { round: u64::MAX, names: Vec::new() },
    ];
    for said in wrong {
        let mut engines = started(3);
        let mut out = Vec::new();
        let event = Event::Frame { from: 2, epoch: 0, payload: Payload::Idle(said.into()) };
        engines[1].on(Time::ZERO, event, &mut out).expect("it is heard");
        let stopped = out.iter().find_map(|action| match action {
            Action::Stop(stopped) => Some(stopped.error.clone()),
            _ => None,
        });
        assert_eq!(stopped, Some(Broken::Fault(Cause::Word { from: 2 })));
    }
}
