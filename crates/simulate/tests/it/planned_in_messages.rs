//! A planned order in network models of messages, where the network model that carries the plan fixes it.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::Operation;
use allrail_schedule::Order;
use allrail_schedule::chunk;
use allrail_simulate::collectives::simulate;
use allrail_simulate::scenario::NetworkModelKind;
use allrail_simulate::{CollectiveScenario, PlanFile, plan, plan_key};
use proptest::prelude::*;

/// The same scenario under an order.
fn under(scenario: &CollectiveScenario, order: Order) -> CollectiveScenario {
    let mut scenario = scenario.clone();
    scenario.schedule.order = order;
    scenario
}

/// A collective in 64 chunks in `links`.
fn in_64_chunks(
    fabric: allrail_fabric::Fabric,
    operation: Operation,
    size: u64,
) -> CollectiveScenario {
    let mut scenario = in_links(&scenario(fabric, operation, size));
    scenario.schedule.chunks = Some(64);
    scenario
}

/// How much longer the plan takes smallest first, and strictly in the order made for `dims`, than in its
/// own.
fn beside(scenario: &CollectiveScenario) -> [f64; 2] {
    let strict = under(scenario, Order::PLANNED);
    let dims = CollectiveScenario { network_model: NetworkModelKind::Dims, ..strict.clone() };
    let [ours, blind] = [&strict, &dims].map(|scenario| plan(scenario).expect("a good scenario"));
    let time =
        |scenario: &CollectiveScenario, file: &PlanFile| run_plan(scenario, Some(file)).time_us;
    let planned = time(&strict, &ours);
    let free = time(&under(scenario, Order::SMALLEST_FIRST), &ours);
    [free / planned, time(&strict, &blind) / planned]
}

/// No slower than either where all ranks are alike; in a broadcast, those that wait for the data
/// choose otherwise. Policies that search are tried on all-reduces.
fn costs_nothing(fabrics: Vec<allrail_fabric::Fabric>) {
    let mut most: f64 = 1.0;
    for fabric in fabrics {
        for (policy, operation) in chunk::ALL.iter().flat_map(|policy| {
            let operations =
                if policy.is_expensive() { &Operation::ALL[..1] } else { &Operation::ALL };
            operations.iter().map(move |operation| (policy.tag(), *operation))
        }) {
            let mut scenario = in_64_chunks(fabric.clone(), operation, 1_000_000_000);
            scenario.schedule.policy = policy.to_owned();
            let shares = beside(&scenario);
            let asked = if operation == Operation::Broadcast { 0.97 } else { 1.0 };
            assert!(
                shares.iter().all(|share| *share >= asked),
                "{policy} {operation} on {fabric:?}: smallest first and in the order made for `dims` \
                 it takes {shares:?} times as long"
            );
            most = most.max(shares[1]);
        }
    }
    assert!(most > 1.5, "an order made for `dims` costs {most} at most: nothing to be gained");
}

#[test]
fn a_strict_order_costs_nothing_on_the_six_platforms() {
    assert_eq!(Operation::ALL[0], Operation::AllReduce);
    costs_nothing(platforms());
}

/// Written, read and run again: the same result; the file says which network model made the order.
#[test]
fn a_plan_file_carries_its_order() {
    for fabric in platforms() {
        let mut scenario = in_64_chunks(fabric, Operation::AllReduce, 8_000_000);
        scenario.schedule.chunks = Some(8);
        scenario.schedule.policy = "themis".into();
        scenario.schedule.order = Order::PLANNED;
        let file = plan(&scenario).expect("a good scenario");
        assert_eq!(file.plans[0].order_made_in, "links");
        assert_eq!(plan_key(&scenario).expect("a good scenario"), file.plans[0].key);
        let text = serde_json::to_string(&file).expect("plain data");
        let read = PlanFile::from_json(&text).expect("a good plan");
        assert_eq!(read, file);
        let (made, kept) = (run(&scenario), run_plan(&scenario, Some(&read)));
        assert_eq!((made.time_us, made.messages), (kept.time_us, kept.messages));

        let dims = CollectiveScenario { network_model: NetworkModelKind::Dims, ..scenario.clone() };
        let blind = plan(&dims).expect("a good scenario");
        assert_eq!(blind.plans[0].order_made_in, "dims");
        assert!(!serde_json::to_string(&blind).expect("plain data").contains("order_made_in"));
        assert_ne!(blind.plans[0].key, file.plans[0].key);
        assert_eq!(blind.plans[0].chunks, file.plans[0].chunks);
        // What a free queue decides needs no run.
        let free = under(&scenario, Order::SMALLEST_FIRST);
        assert_eq!(plan(&free).expect("a good scenario").plans[0].order_made_in, "dims");
    }
}

#[test]
fn an_order_of_no_network_model_is_refused() {
    let scenario = under(
        &in_64_chunks(platforms().remove(0), Operation::AllGather, 8_000_000),
        Order::PLANNED,
    );
    let mut file = plan(&scenario).expect("a good scenario");
    file.plans[0].order_made_in = "lniks".into();
    let text = serde_json::to_string(&file).expect("plain data");
    let report = PlanFile::from_json(&text).expect_err("refused").report();
    assert_eq!((report.field.as_str(), report.value.as_str()), ("plan.order_made_in", "lniks"));
    assert!(report.hint.contains("links"), "{}", report.hint);
}

/// Real cables, in fluid and in packets, where ranks need not be alike.
#[test]
fn cables_fix_it_too() {
    let topologies = [
        r#"{"topology": "hammingmesh", "board": [2, 2], "grid": [2, 2]}"#,
        r#"{"topology": "torus", "shape": [4, 4]}"#,
        r#"{"topology": "hyperx", "shape": [4, 4]}"#,
    ];
    let mut keys_seen = Vec::new();
    for (keys, network_model) in
        topologies.iter().flat_map(|keys| [(keys, "flows"), (keys, "packets")])
    {
        let text = format!(
            r#"{{"schema_version": 1, "fabric": {keys}, "network_model": "{network_model}",
                "collective": [{{"kind": "all_reduce", "size": "4 MB"}}],
                "schedule": {{"policy": "themis", "order": "planned", "chunks": 16}}}}"#
        );
        let strict =
            CollectiveScenario::from_json(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let file = plan(&strict).expect("a good scenario");
        assert_eq!(file.plans[0].order_made_in, network_model);
        let planned = run_plan(&strict, Some(&file)).time_us;
        let free = run_plan(&under(&strict, Order::SMALLEST_FIRST), Some(&file)).time_us;
        assert!(
            planned * 0.97 <= free,
            "{keys} {network_model}: {planned} us, smallest first {free} us"
        );
        // A network of the same dimensions and other cables has plans of its own.
        let key = |text: &str| {
            plan_key(&CollectiveScenario::from_json(text).expect("good")).expect("good")
        };
        keys_seen.push(key(&text));
    }
    let all = keys_seen.len();
    keys_seen.sort();
    keys_seen.dedup();
    assert_eq!(keys_seen.len(), all, "two network models have plans under one key");
}

/// Whoever plans may break off: it takes as long as a simulation.
#[test]
fn planning_can_be_interrupted() {
    let mut scenario = in_64_chunks(platforms().remove(3), Operation::AllReduce, 64_000_000);
    scenario.schedule.order = Order::PLANNED;
    let result = allrail_simulate::plan_watched(&scenario, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(result, Err(allrail_simulate::SimulateError::Interrupted)), "{result:?}");
}

proptest! {
    #![proptest_config(cases(60))]

    /// On any fabric of `links`, with any limit on what runs at once, the strict order runs to its end,
    /// and without a limit no later than smallest-first does.
    #[test]
    fn a_strict_order_is_as_good_as_smallest_first_on_any_fabric(
        fabric in any_fabric(3, 7),
        operation in any_operation(),
        policy in any_policy(),
        chunks in 1u32..=24,
        size in 100_000u64..10_000_000,
        active_chunks in prop::sample::select(vec![None, None, Some(1.into()), Some(3.into())]),
    ) {
        let mut scenario = in_links(&scenario(fabric, operation, size));
        scenario.schedule.chunks = Some(chunks);
        scenario.schedule.policy = policy;
        scenario.schedule.active_chunks = active_chunks;
        let strict = under(&scenario, Order::PLANNED);
        let planned = run(&strict).time_us;
        let free = under(&scenario, Order::SMALLEST_FIRST);
        let free = simulate(&free, None, false, &mut |_, _| ControlFlow::Continue(()));
        if let (None, Ok(free)) = (active_chunks, free) {
            prop_assert!(planned <= free.time_us, "{} us, smallest first {} us", planned, free.time_us);
        }
    }

    /// Several collectives, each with the order that it has alone.
    #[test]
    fn several_collectives_run_to_their_end(
        fabric in any_fabric(3, 5),
        operations in prop::collection::vec(any_operation(), 2..4),
        policy in any_policy(),
    ) {
        let mut scenario = in_links(&scenario(fabric, operations[0], 1_000_000));
        scenario.schedule.chunks = Some(6);
        scenario.schedule.policy = policy;
        scenario.schedule.order = Order::PLANNED;
        scenario.job =
            operations.iter().map(|operation| collective(*operation, 1_000_000)).collect();
        let file = plan(&scenario).expect("a good scenario");
        prop_assert!(file.plans.iter().all(|plan| plan.order_made_in == "links"));
        let result = run(&scenario);
        prop_assert_eq!(result.collectives.len(), operations.len());
    }
}
