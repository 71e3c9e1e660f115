//! Collectives that stand by themselves, where ranks agree on each before it starts.

use allrail_collective::Operation;
use allrail_coordinate as coordinate;
use allrail_core::{DimensionId, Time};
use allrail_fabric::Kind;
use allrail_simulate::scenario::Schedule;
use allrail_simulate::{CollectiveScenario, SimulationResult};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common;

/// Collectives that are asked for at these times, us, over these dimensions, on 2 x 4 NPUs.
fn asked(coordination: Option<&Value>, rows: &[(Operation, u64, &[u32])]) -> CollectiveScenario {
    let fabric = common::fabric(vec![
        common::exact(Kind::Switch, 2, Time::ZERO),
        common::exact(Kind::Switch, 4, Time::ZERO),
    ]);
    let mut scenario = common::scenario(fabric, Operation::AllReduce, 4_000);
    scenario.job = rows
        .iter()
        .map(|(kind, start, dimensions)| {
            let mut one = common::collective(*kind, 4_000);
            one.start = Time::from_us(*start);
            let some = (!dimensions.is_empty()).then_some(dimensions);
            one.dimensions = some.map(|list| list.iter().copied().map(DimensionId).collect());
            one
        })
        .collect();
    scenario.schedule = Schedule { coordination: coordination.cloned(), ..scenario.schedule };
    scenario
}

/// A message takes nothing but 1 us on the wire; what is asked for or answered takes 1 us to read.
fn policy(tag: &str) -> Value {
    json!({"policy": tag, "cycle": "10 us", "latency": {"wire": "1 us", "send": "0 s",
           "receive": "0 s", "entry": "1 us", "entry_bytes": "100 B", "bandwidth": "1000 TB/s"}})
}

fn talk(result: &SimulationResult) -> (u64, u64) {
    result.coordinators.map_or((0, 0), |one| (one.messages, one.bytes))
}

/// Two ranks, a cycle of 10 us. Asked for at 12 us it is in the list that rank 1 sends at 20 us, which takes 1 us on the
/// wire and 1 us to read; rank 0 answers at once, and its answer takes 1 us on the wire. A message leaves in a picosecond.
#[test]
fn one_collective_of_two_ranks_by_hand() {
    let rows: [(Operation, u64, &[u32]); 1] = [(Operation::AllGather, 12, &[0])];
    let free = common::run(&asked(None, &rows));
    let agreed = common::run(&asked(Some(&policy("central")), &rows));
    assert!(free.coordinators.is_none() && free.collectives[0].agreed_us.is_none());
    let one = &agreed.collectives[0];
    let at = one.agreed_us.expect("they agree");
    assert!(one.start_us == 12.0 && (at - 23.0).abs() < 1e-5, "{at}");
    let longer = one.time_us - free.collectives[0].time_us;
    assert!((longer - (at - 12.0)).abs() < 1e-9, "{longer}");
    assert!((agreed.time_us - free.time_us - longer).abs() < 1e-9);
}

/// In `central` every rank but rank 0 sends one request for each collective and is sent one answer. There are four
/// groups of two ranks over the first dimension, two of four over the second, one of eight over both.
#[test]
fn what_is_said_is_requests_times_ranks() {
    for (dimensions, others) in [(&[0u32][..], 4), (&[1], 2 * 3), (&[], 7)] {
        for count in 1..=5 {
            let each = Operation::ALL.iter().cycle().take(count);
            let rows: Vec<_> = each.zip(1..).map(|(kind, at)| (*kind, at, dimensions)).collect();
            let result = common::run(&asked(Some(&policy("central")), &rows));
            let (messages, bytes) = talk(&result);
            // A message has 8 bytes beside its entries; those of the last cycle may not have arrived.
            let rest = bytes - 8 * messages - 100 * 2 * others * count as u64;
            assert!(rest <= 8 * others, "{dimensions:?}: {rest}");
        }
    }
}

/// Nobody agrees on anything where nobody is asked to: the result has the same bytes.
#[test]
fn without_coordination_nothing_changes() {
    let rows: [(Operation, u64, &[u32]); 2] =
        [(Operation::AllReduce, 0, &[]), (Operation::AllToAll, 3, &[1])];
    let text = |coordination: Option<&Value>| {
        let mut result = common::run(&asked(coordination, &rows));
        result.host = Default::default();
        serde_json::to_string(&result).expect("it is data")
    };
    let free = text(None);
    assert_eq!(free, text(Some(&json!({"policy": "none"}))));
    assert!(!free.contains("agreed_us") && !free.contains("coordinators"), "{free}");
}

/// What is read here is refused where it would be of no use.
#[test]
fn settings_of_gradients_are_refused() {
    for (key, value) in
        [("groups", json!(2)), ("threshold", json!("1 MiB")), ("collectives", json!("all"))]
    {
        let mut coordination = policy("cached");
        coordination[key] = value;
        let scenario = json!({
            "schema_version": 1,
            "fabric": {"dimensions": [
                {"kind": "ring", "size": 4, "bandwidth": "1 GB/s", "latency": "1 us"},
            ]},
            "collective": [{"kind": "all_reduce", "size": "1 MB"}],
            "schedule": {"coordination": coordination},
        });
        let report = CollectiveScenario::from_json(&scenario.to_string()).expect_err(key).report();
        assert_eq!(report.field, format!("schedule.coordination.{key}"), "{report:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// No collective starts before it is asked for; one that is asked for later takes away nothing of what is said; what
    /// starts in one group starts in the order in which it was asked for.
    #[test]
    fn more_collectives_are_never_fewer_bytes(
        times in prop::collection::vec(0u64..200, 1..6),
        skew in 0u64..30,
        tag in 0usize..coordinate::ALL.len(),
    ) {
        let mut times = times;
        times.sort_unstable();
        let mut tree = policy(coordinate::ALL[tag].tag());
        tree["skew"] = json!(format!("{skew} us"));
        let mut before = 0;
        for count in 1..=times.len() {
            let rows: Vec<_> =
                times[..count].iter().map(|at| (Operation::AllGather, *at, &[][..])).collect();
            let result = common::run(&asked(Some(&tree), &rows));
            let said = talk(&result).1;
            prop_assert!(said > before, "{said} {before}");
            before = said;
            let agreed: Vec<f64> =
                result.collectives.iter().filter_map(|one| one.agreed_us).collect();
            prop_assert_eq!(agreed.len(), count);
            prop_assert!(agreed.is_sorted());
            for one in &result.collectives {
                prop_assert!(one.agreed_us.is_some_and(|at| at >= one.start_us));
            }
        }
    }
}
