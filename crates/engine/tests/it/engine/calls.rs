//! Calls without a name: their places are their names, whatever is under way beside them.

use allrail_collective::rank::Plans;
use allrail_collective::{DimensionSet, Operation};
use allrail_coordinate::{self as coordinate, Cause, Payload};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::engine::{Action, Call, Engine, Event, Home, Settings};
use allrail_engine::{Broken, Run};
use allrail_schedule::{Key, OperationName};

use super::ranks::{common, engine, policy, tagged, tensor};
use crate::switches::plan;

const RANKS: u32 = 4;

/// Rank 1 of four, with a plan for each of these kinds; its job has begun.
fn started(kinds: &[Operation]) -> Engine {
    let mut plans = Plans::new(1, 64);
    for kind in kinds {
        plans.add(plan(&[RANKS], *kind, "baseline", Bytes::new(1 << 20), 2)).expect("a plan");
    }
    let dimensions = DimensionSet::default().with(DimensionId(0));
    let settings = Settings { rank: 1, ranks: RANKS, dimensions, ..tagged(policy("fifo")) };
    let mut engine = Engine::new(settings, plans).expect("settings");
    engine.on(Time::ZERO, Event::Start, &mut Vec::new()).expect("once");
    engine
}

fn call(operation: Operation, root: u32, shape: &[u64]) -> Call<'_> {
    Call { operation, root, dtype: "float32", shape, width: 4, priority: 0, signature: None }
}

fn name(count: u64) -> OperationName {
    OperationName { key: Key::call(count), ..OperationName::default() }
}

/// Ends all stages that run, and those that follow. What was done, in order.
fn end_all(engine: &mut Engine, out: &mut Vec<Action>) -> Vec<Key> {
    let mut done = Vec::new();
    engine.settle(out);
    while !out.is_empty() {
        for action in std::mem::take(out) {
            match action {
                Action::Run(Run { collective: id, at, port, .. }) => {
                    engine.on(Time::ZERO, Event::PortFree { port }, out).expect("a port");
                    engine.on(Time::ZERO, Event::StageOver { id, at }, out).expect("it ran");
                    engine.settle(out);
                }
                Action::Done { key, generation: 0 } => done.push(key),
                Action::Begin { .. } | Action::Over { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    done
}

#[test]
fn a_call_begins_at_once_and_its_place_is_its_name() {
    let mut one = started(&Operation::ALL);
    let mut out = Vec::new();
    for (count, kind) in (0..).zip(Operation::ALL) {
        assert_eq!(one.home(&name(count)), Ok(Home::Early));
        let called = one.call(Time::ZERO, &call(kind, 0, &[16, 4]), &mut out);
        assert_eq!(called, Ok(name(count)));
        let Some(Action::Begin { id, operation, part, .. }) = out.last() else { panic!("{out:?}") };
        assert_eq!((*operation, part.operation, part.buffer.elements()), (name(count), kind, 64));
        assert_eq!(one.home(&name(count)), Ok(Home::Running(*id)));
        assert_eq!(one.slices(*id), Ok(&[][..]), "the buffer is the caller's");
    }
    assert_eq!(one.calls().unfinished, [0, 1, 2, 3, 4]);
    let mut done = end_all(&mut one, &mut out);
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 3, 4].map(Key::call));
    assert_eq!((one.calls().made, one.calls().unfinished), (5, Vec::new()));
    assert_eq!(one.home(&name(3)), Err(Broken::Old(name(3))));
    let part = OperationName { part: 1, ..name(9) };
    assert_eq!(one.home(&part), Err(Broken::UnknownOperation(part)));
    // An empty call too has a name, a beginning and an end.
    let empty = one.call(Time::ZERO, &call(Operation::AllReduce, 0, &[0, 3]), &mut out);
    assert_eq!(empty, Ok(name(5)));
    let kinds: Vec<bool> = out.iter().map(|one| matches!(one, Action::Begin { .. })).collect();
    assert_eq!(kinds, [true, false, false], "{out:?}");
    assert_eq!(end_all(&mut one, &mut out), [Key::call(5)]);
}

#[test]
fn a_call_that_cannot_be_is_refused_and_does_not_count() {
    let mut one = started(&[Operation::AllReduce, Operation::AllToAll, Operation::Broadcast]);
    let huge = [u64::MAX, 2];
    let rows = [
        (call(Operation::AllToAll, 0, &[6]), "equal shards"),
        (call(Operation::AllGather, 0, &[8]), "no plan for `all_gather`"),
        (call(Operation::AllReduce, 0, &[1 << 20]), "no plan for `all_reduce`"),
        (call(Operation::AllReduce, 2, &[8]), "has no root"),
        (call(Operation::Broadcast, RANKS, &[8]), "there are 4 ranks"),
        (call(Operation::AllReduce, 0, &huge), "2^64"),
        (Call { width: 0, ..call(Operation::AllReduce, 0, &[8]) }, "1 byte"),
    ];
    for (call, text) in rows {
        let mut out = Vec::new();
        let error = one.call(Time::ZERO, &call, &mut out).expect_err(text).to_string();
        assert!(error.contains(text) && out.is_empty(), "{text}: {error}");
    }
    assert_eq!(one.calls().made, 0);
    one.on(Time::ZERO, Event::PeerLost { rank: 0 }, &mut Vec::new()).expect("a peer");
    let after = one.call(Time::ZERO, &call(Operation::AllReduce, 0, &[8]), &mut Vec::new());
    assert_eq!(after, Err(Broken::Stopped));
    let mut fresh = engine(0, &[2], &tagged(policy("fifo"))).expect("settings");
    let early = fresh.call(Time::ZERO, &call(Operation::AllReduce, 0, &[8]), &mut Vec::new());
    assert_eq!(early, Err(Broken::OutOfTurn { call: "a call", when: "before" }));
    let unpaused = Settings { ask_after: Time::ZERO, ..tagged(policy("fifo")) };
    let error = engine(0, &[2], &unpaused).map(|_| ()).expect_err("without a pause");
    assert!(error.to_string().contains("ask_after"), "{error}");
}

#[test]
fn where_one_order_is_needed_a_call_is_the_transports_own() {
    let settings = common(policy("fifo"), coordinate::ALL[0]);
    let mut one = engine(0, &[2], &settings).expect("settings");
    one.register(tensor("t0", 8, 0)).expect("a new tensor");
    one.on(Time::ZERO, Event::Start, &mut Vec::new()).expect("once");
    let call = call(Operation::AllReduce, 0, &[8]);
    let error = one.call(Time::ZERO, &call, &mut Vec::new()).expect_err("it has no name");
    assert!(error.to_string().contains("`ordering` is `common`"), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("to the transport itself")));
}

#[test]
fn who_waits_says_for_what_and_who_called_otherwise_ends_the_job() {
    let mut ranks = [started(&Operation::ALL), started(&Operation::ALL)];
    let roots = [2, 3];
    for (one, root) in ranks.iter_mut().zip(roots) {
        let call = call(Operation::Broadcast, root, &[8]);
        one.call(Time::ZERO, &call, &mut Vec::new()).expect("a right call");
        assert_eq!(one.deadline(), Some(Time::from_us(1_000_000)));
    }
    let mut out = Vec::new();
    let [waits, other] = &mut ranks;
    waits.on(Time::from_us(1_000_000), Event::Time, &mut out).expect("time passes");
    let told: Vec<u32> = out
        .iter()
        .filter_map(|action| match action {
            Action::Send { to, payload: Payload::Waits(_) } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(told, [0, 2, 3], "all others");
    assert_eq!(waits.deadline(), Some(Time::from_us(2_000_000)), "and again");
    let Some(Action::Send { payload, .. }) = out.pop() else { panic!("{out:?}") };
    // Who has made the same call, or none yet, has nothing to say.
    for calls in 0..2 {
        let mut same = started(&Operation::ALL);
        for _ in 0..calls {
            let call = call(Operation::Broadcast, 2, &[8]);
            same.call(Time::ZERO, &call, &mut Vec::new()).expect("a right call");
        }
        let mut said = Vec::new();
        let event = Event::Frame { from: 2, epoch: 0, payload: payload.clone() };
        same.on(Time::ZERO, event, &mut said).expect("a peer's");
        assert_eq!(said, []);
    }
    let mut said = Vec::new();
    other.on(Time::ZERO, Event::Frame { from: 2, epoch: 0, payload }, &mut said).expect("a peer's");
    let Some(Action::Stop(stopped)) = said.last() else { panic!("{said:?}") };
    let Broken::Fault(Cause::Differs { from: 2, by: 1, about, what }) = &stopped.error else {
        panic!("{}", stopped.error)
    };
    assert_eq!(about.operation, name(0));
    let text = "rank 1 calls broadcast of 8 elements of float32 from rank 3, and rank 2 calls broadcast of 8 elements \
                of float32 from rank 2";
    assert_eq!(what, text);
    assert_eq!(stopped.calls.unfinished, [0]);
    assert!(
        stopped.error.to_string().starts_with("call 0 differs between ranks: "),
        "{}",
        stopped.error
    );
}
