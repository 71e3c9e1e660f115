//! What must hold of every simulation, whatever the fabric, the policy and the order.

use crate::common::*;
use allrail_collective::Operation;
use allrail_core::{Bandwidth, Time};
use allrail_fabric::Fabric;
use allrail_schedule::Order;
use allrail_simulate::scenario::{AcceptPlan, NetworkModelKind, Schedule};
use allrail_simulate::{CollectiveScenario, SimulationResult, plan};
use proptest::prelude::*;

/// What a float's last digits can make of a ratio.
const HAIR: f64 = 1.0 + 1e-9;

fn any_network_model() -> impl Strategy<Value = NetworkModelKind> {
    prop::sample::select(&[
        NetworkModelKind::Dims,
        NetworkModelKind::Links,
        NetworkModelKind::Flows,
        NetworkModelKind::Packets,
    ])
}

/// One collective under any policy. Where ranks order their stages
/// themselves, they may block each other with a limit on active chunks: the planned order keeps it.
fn any_scenario(operations: &'static [Operation]) -> impl Strategy<Value = CollectiveScenario> {
    (
        any_fabric(3, 4),
        prop::sample::select(operations),
        (any_policy(), any_order(), any_limit(), 1u32..=8),
        any_network_model(),
        64_000u64..10_000_000,
    )
        .prop_map(
            |(fabric, operation, (policy, order, active_chunks, chunks), network_model, size)| {
                let mut scenario = scenario(fabric, operation, size);
                let order = if active_chunks.is_some() { Order::PLANNED } else { order };
                scenario.schedule = Schedule {
                    policy,
                    order,
                    active_chunks,
                    chunks: Some(chunks),
                    ..Schedule::default()
                };
                scenario.network_model = network_model;
                scenario
            },
        )
}

/// What an NPU sends in all, in closed form.
fn bytes(scenario: &CollectiveScenario) -> f64 {
    let halves = if scenario.job[0].kind == Operation::AllReduce { 2.0 } else { 1.0 };
    let size = scenario.job[0].size.count() as f64;
    halves * size * (1.0 - 1.0 / scenario.fabric.npus() as f64)
}

fn sent(result: &SimulationResult) -> u64 {
    result.dimensions.iter().map(|dimension| dimension.bytes_per_npu).sum()
}

const BANDWIDTH_OPTIMAL: [Operation; 3] =
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];

proptest! {
    #![proptest_config(cases(192))]

    #[test]
    fn bytes_are_conserved(scenario in any_scenario(&BANDWIDTH_OPTIMAL)) {
        let result = run(&scenario);
        let expected = bytes(&scenario);
        prop_assert!(sent(&result).abs_diff(result.bytes_per_npu) <= 3);
        match scenario.network_model {
            // Each dimension's share is rounded to a byte.
            NetworkModelKind::Dims => {
                prop_assert!((sent(&result) as f64 - expected).abs() <= 3.0, "{expected}");
            }
            // Blocks are padded to whole bytes: one per block at most, of 128 in a stage.
            _ => {
                let stages = 2 * scenario.fabric.dimensions.len() * scenario.schedule.chunks.expect("it is said") as usize;
                let excess = sent(&result) as f64 - expected;
                prop_assert!((-3.0..=128.0 * stages as f64).contains(&excess), "{excess}");
            }
        }
    }

    #[test]
    fn no_dimension_is_above_its_capacity(scenario in any_scenario(&Operation::ALL)) {
        let result = run(&scenario);
        let most = result.time_us * HAIR / result.time_us;
        for dimension in &result.dimensions {
            let utilisation = dimension.utilisation.expect("a physical model");
            prop_assert!((0.0..=most).contains(&utilisation), "{} {utilisation}", dimension.name);
            let busy = dimension.busy_fraction;
            prop_assert!((0.0..=HAIR).contains(&busy), "{} {busy}", dimension.name);
        }
        prop_assert!(result.utilisation.expect("a physical model") <= most);
    }

    #[test]
    fn nothing_ends_before_its_bound(scenario in any_scenario(&Operation::ALL)) {
        let result = run(&scenario);
        prop_assert!(result.bound_time_us >= result.ideal_time_us);
        prop_assert!(
            result.time_us * HAIR >= result.bound_time_us,
            "{} before {}", result.time_us, result.bound_time_us
        );
    }

    #[test]
    fn the_same_scenario_gives_the_same_bytes(scenario in any_scenario(&Operation::ALL)) {
        prop_assert_eq!(without_host(&run(&scenario)), without_host(&run(&scenario)));
    }

    /// For a fixed plan in its planned order.
    #[test]
    fn a_better_fabric_is_never_slower(
        scenario in any_scenario(&Operation::ALL),
        better in prop::collection::vec((100u64..=200, 0u64..=100), 3),
    ) {
        let mut scenario = scenario;
        scenario.network_model = NetworkModelKind::Dims;
        scenario.schedule.order = Order::PLANNED;
        let file = plan(&scenario).expect("a good scenario");
        let before = run_plan(&scenario, Some(&file)).time_us;
        scenario.schedule.accept_plan = AcceptPlan::SameShape;
        scenario.fabric = improved(&scenario.fabric, &better);
        prop_assert!(run_plan(&scenario, Some(&file)).time_us <= before);
    }

    #[test]
    fn a_plan_run_in_its_planned_order_takes_as_long_as_the_order_that_fixed_it(
        scenario in any_scenario(&Operation::ALL),
    ) {
        let mut scenario = scenario;
        scenario.network_model = NetworkModelKind::Dims;
        scenario.schedule.order = Order::SMALLEST_FIRST;
        let file = plan(&scenario).expect("a good scenario");
        let found = run(&scenario).time_us;
        scenario.schedule.order = Order::PLANNED;
        prop_assert_eq!(run_plan(&scenario, Some(&file)).time_us, found);
        // First come, first served may fix it too.
        prop_assert!(run(&scenario).time_us <= found);
    }
}

proptest! {
    #![proptest_config(cases(10))]

    #[test]
    fn the_searching_policy_keeps_the_laws_too(scenario in any_scenario(&BANDWIDTH_OPTIMAL)) {
        let mut scenario = scenario;
        scenario.network_model = NetworkModelKind::Dims;
        let themis = { scenario.schedule.policy = "themis".into(); run(&scenario) };
        scenario.schedule.policy = "search".into();
        let result = run(&scenario);
        prop_assert!((sent(&result) as f64 - bytes(&scenario)).abs() <= 3.0);
        prop_assert!(result.time_us * HAIR >= result.bound_time_us);
        prop_assert!(result.time_us <= themis.time_us, "slower than where it started");
        prop_assert_eq!(without_host(&result), without_host(&run(&scenario)));
    }
}

fn without_host(result: &SimulationResult) -> String {
    let mut value = serde_json::to_value(result).expect("plain data");
    let host = value.as_object_mut().expect("an object").remove("host");
    assert!(host.is_some(), "the measurements stand under `host`");
    value.to_string()
}

/// Bandwidths of so many per cent, latencies too.
fn improved(fabric: &Fabric, better: &[(u64, u64)]) -> Fabric {
    let mut fabric = fabric.clone();
    for (dimension, (bandwidth, latency)) in fabric.dimensions.iter_mut().zip(better) {
        let rate = dimension.bandwidth.bytes_per_second() / 100 * bandwidth;
        dimension.bandwidth = Bandwidth::from_bytes_per_second(rate).expect("not zero");
        dimension.latency = Time::from_ps(dimension.latency.as_ps() / 100 * latency);
    }
    fabric
}
