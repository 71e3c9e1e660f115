//! How far the network models are from each other, and from the bound that each prints: laws over random small
//! networks. `docs/concepts/network-models.md` has the same figures.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::{Algorithm, Operation, algorithm};
use allrail_core::{Bandwidth, Time};
use allrail_fabric::Kind;
use allrail_schedule::Order;
use allrail_simulate::TrainingScenario;
use allrail_simulate::collectives::simulate;
use allrail_simulate::scenario::NetworkModelKind;
use allrail_simulate::training::simulate as train;
use allrail_simulate::{CollectiveScenario, SimulateError, SimulationResult};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

const NETWORK_MODELS: [NetworkModelKind; 4] = [
    NetworkModelKind::Dims,
    NetworkModelKind::Links,
    NetworkModelKind::Flows,
    NetworkModelKind::Packets,
];

fn in_network_model(
    scenario: &CollectiveScenario,
    network_model: NetworkModelKind,
) -> SimulationResult {
    run(&CollectiveScenario { network_model, ..scenario.clone() })
}

/// A reduce-scatter over a ring of 8 in several chunks, whose steps fill each other's pauses as messages: in `dims` all of a
/// stage's latency comes after its last byte.
#[test]
fn a_ring_of_eight_is_not_below_the_bound_that_dims_prints() {
    for operation in [Operation::ReduceScatter, Operation::AllGather] {
        let ring = dimension(Kind::Ring, 8, 2, 25_000_000_000, Time::from_ns(700));
        let mut scenario = scenario(fabric(vec![ring]), operation, 400_000);
        scenario.schedule.chunks = Some(4);
        let [dims, links] = [NetworkModelKind::Dims, NetworkModelKind::Links]
            .map(|w| in_network_model(&scenario, w));
        assert!(dims.time_us > 1.5 * links.time_us, "{operation}: nothing is shown");
        assert!(dims.bound_time_us <= links.time_us, "{operation}: {}", dims.bound_time_us);
        assert!(dims.bound_time_us > 0.8 * links.time_us, "{operation}: it says little");
    }
}

proptest! {
    #![proptest_config(cases(96))]

    /// Whatever runs where: no network model is faster than the bound that any of them prints.
    #[test]
    fn no_model_beats_the_bound_that_another_prints(
        fabric in any_fabric(2, 6),
        operation in any_operation(),
        policy in any_policy(),
        chosen in any::<prop::sample::Index>(),
        named in any::<bool>(),
        chunks in prop::sample::select(vec![1u32, 3, 16]),
        (parts, delay) in (1u64..60, prop::sample::select(vec![0u64, 300])),
        limit in any_limit(),
    ) {
        // Whole blocks, whatever the algorithm: messages are padded to such.
        let size = parts * fabric.npus() * 32 * u64::from(chunks);
        let mut scenario = scenario(fabric, operation, size);
        scenario.schedule.policy = policy;
        scenario.schedule.chunks = Some(chunks);
        scenario.schedule.endpoint_delay = Time::from_ns(delay);
        scenario.schedule.active_chunks = limit;
        if named {
            let does = |one: &&&'static dyn Algorithm, part| one.operations().contains(&part);
            let doing = algorithm::ALL.iter().filter(|one| match operation {
                Operation::AllReduce => {
                    does(one, Operation::ReduceScatter) && does(one, Operation::AllGather)
                }
                other => does(one, other),
            });
            let doing: Vec<&str> = doing.map(|one| one.tag()).collect();
            let names = vec![*chosen.get(&doing); scenario.fabric.dimensions.len()];
            scenario.schedule.algorithms = Some(names.into());
        }
        let mut results = Vec::new();
        for network_model in NETWORK_MODELS {
            let scenario = CollectiveScenario { network_model, ..scenario.clone() };
            match simulate(&scenario, None, false, &mut |_, _| ControlFlow::Continue(())) {
                Ok(result) => results.push(result),
                // A limit may make ranks wait for each other.
                Err(SimulateError::Stalled { .. }) if limit.is_some() => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
        let times: Vec<f64> = results.iter().map(|one| one.time_us).collect();
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        for one in &results {
            let bound = one.bound_time_us;
            prop_assert!(bound <= least * (1.0 + 1e-9), "{} of {}: {times:?}", bound, one.network_model);
        }
    }

    /// One chunk on one dimension that its messages fit, whatever the operation: `links` takes what `dims` says and on a
    /// switch one serialisation more a step, `flows` as long as `dims`.
    #[test]
    fn one_chunk_takes_as_long_in_flows_as_in_dims(
        kind in prop::sample::select(&KINDS),
        ranks in 2u32..=12,
        operation in any_operation(),
        (blocks, latency) in (1u64..4_000, 0u64..2_000),
    ) {
        let mut scenario = scenario(
            fabric(vec![exact(kind, ranks, Time::from_ns(latency))]),
            operation,
            blocks * 2 * u64::from(ranks),
        );
        // Halving-doubling is uneven where ranks are no power of two.
        if kind == Kind::Switch {
            scenario.schedule.algorithms = Some(vec!["direct"].into());
        }
        let [dims, flows] = [NetworkModelKind::Dims, NetworkModelKind::Flows].map(|network_model| in_network_model(&scenario, network_model));
        let ratio = flows.time_us / dims.time_us;
        prop_assert!((ratio - 1.0).abs() < 0.01, "{} {}", flows.time_us, dims.time_us);
    }
}

/// Networks of cables, too, where the priced one is the simulated one: rings whose hops are unlike, cables that several
/// dimensions share, networks without dimensions.
#[test]
fn no_model_beats_the_bound_of_a_network_of_cables() {
    let far = json!({"bandwidth": "25 GB/s", "latency": "900 ns"});
    let near = json!({"bandwidth": "50 GB/s", "latency": "10 ns"});
    let fabrics = [
        json!({"topology": "torus", "shape": [4, 4], "board": [2, 2], "link": far, "board_link": near}),
        json!({"topology": "torus", "shape": [2, 6], "board": [1, 3], "link": near, "board_link": far}),
        json!({"topology": "torus", "shape": [3, 6], "twist": 3, "link": far}),
        json!({"topology": "hammingmesh", "board": [2, 2], "grid": [2, 2], "link": far,
               "board_link": near}),
        json!({"topology": "fat_tree", "npus": 16, "levels": 2, "switch_radix": 8, "link": far}),
        json!({"topology": "dragonfly", "a": 2, "p": 2, "h": 1, "groups": 3, "link": far}),
        json!({"topology": "mesh", "shape": [2, 3], "link": far, "board_link": near}),
    ];
    let mut compared = 0;
    for fabric in &fabrics {
        for operation in Operation::ALL {
            for (policy, chunks, bytes) in
                [("baseline", 1, 3_456), ("themis", 1, 110_592), ("themis", 4, 27_648)]
            {
                let of = |network_model: &str| {
                    let tree = json!({"schema_version": 1, "fabric": fabric, "network_model": network_model,
                        "collective": [{"kind": operation.tag(), "size": format!("{bytes} B")}],
                        "schedule": {"policy": policy, "chunks": chunks}});
                    run(&CollectiveScenario::from_json(&tree.to_string()).expect("a scenario"))
                };
                let results = ["dims", "links", "flows", "packets"].map(of);
                if results.iter().any(|one| one.simulated_as.is_some()) {
                    continue;
                }
                let times = results.each_ref().map(|one| one.time_us);
                let least = times.iter().copied().fold(f64::INFINITY, f64::min);
                for one in &results {
                    let bound = one.bound_time_us;
                    let what = format!("{fabric} {operation} {policy} {chunks} {bytes}");
                    assert!(
                        bound <= least * (1.0 + 1e-9),
                        "{what}: {bound} of {}: {times:?}",
                        one.network_model
                    );
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 300, "{compared}");
}

/// A pipelined broadcast's segments leave one after the other wherever they flow.
#[test]
fn a_broadcast_on_a_ring_takes_as_long_in_every_model() {
    for ranks in [4u32, 5, 8, 9, 16] {
        for size in [1_600u64, 1_600_000] {
            let ring = exact(Kind::Ring, ranks, Time::from_ns(500));
            let size = size / u64::from(2 * ranks) * u64::from(2 * ranks);
            let scenario = scenario(fabric(vec![ring]), Operation::Broadcast, size);
            let times = [NetworkModelKind::Dims, NetworkModelKind::Links, NetworkModelKind::Flows]
                .map(|network_model| in_network_model(&scenario, network_model).time_us);
            assert_eq!(ps(times[0]), ps(times[1]), "links of {ranks}, {size} bytes");
            assert!((times[2] / times[0] - 1.0).abs() < 0.01, "{ranks}, {size}: {times:?}");
        }
    }
}

/// Networks, sizes and schedules that more bandwidth on one dimension may make slower.
fn more_bandwidth(policy: &str, order: Order, cases: u64) -> (f64, usize) {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let (mut most, mut slower) = (1.0f64, 0);
    for _ in 0..cases {
        let count = rng.random_range(2..=3usize);
        let any = |rng: &mut Pcg64Mcg| {
            let kind = KINDS[rng.random_range(0..3)];
            let (size, links) = (rng.random_range(2..=8), rng.random_range(1..=3));
            let rate = 1_000_000_000 * rng.random_range(5..400);
            dimension(kind, size, links, rate, Time::from_ns(rng.random_range(0..2_000)))
        };
        let dimensions = (0..count).map(|_| any(&mut rng)).collect();
        let operation = BANDWIDTH_OPTIMAL[rng.random_range(0..3)];
        let size = 10f64.powf(rng.random_range(4.0..9.0)) as u64;
        let mut scenario = scenario(fabric(dimensions), operation, size);
        scenario.schedule.policy = policy.to_owned();
        scenario.schedule.order = order;
        scenario.schedule.chunks = Some(rng.random_range(2..=64));
        let before = run(&scenario).time_us;
        let which = rng.random_range(0..count);
        let of = &mut scenario.fabric.dimensions[which].bandwidth;
        let rate = of.bytes_per_second() as f64 * rng.random_range(1.01..2.0);
        *of = Bandwidth::from_bytes_per_second(rate as u64).expect("not zero");
        let after = run(&scenario).time_us;
        slower += usize::from(after > before * 1.000_1);
        most = most.max(after / before);
    }
    (most, slower)
}

const BANDWIDTH_OPTIMAL: [Operation; 3] =
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];

/// Greedy queues have anomalies (Graham, 1969): what ends earlier may come in the way of what was to go first. How large
/// they are is stated in the guide of schedulers; a fixed plan in its planned order has none ([`crate::laws`]).
#[test]
#[expect(clippy::print_stdout, reason = "the figures of the guide, for whoever asks")]
fn more_bandwidth_makes_a_greedy_schedule_hardly_slower() {
    for policy in ["baseline", "round_robin", "themis"] {
        for order in [Order::FIFO, Order::SMALLEST_FIRST, Order::PLANNED] {
            let (most, slower) = more_bandwidth(policy, order, 150);
            println!("{policy} {order:?}: {slower} of 150, at most {most:.4}");
            let stated = match policy {
                "baseline" => 1.000_1,
                "round_robin" => 1.1,
                _ => 1.6,
            };
            assert!(most < stated, "{policy} {order:?}: {most}");
        }
    }
}

/// Where latency is most of the time, the dimension that a chunk visits first is the wrong one to balance.
#[test]
fn a_policy_that_is_behind_the_baseline_says_so() {
    let shape = || {
        fabric(vec![
            dimension(Kind::Ring, 8, 2, 200_000_000_000, Time::from_ns(500)),
            dimension(Kind::Switch, 8, 1, 10_000_000_000, Time::from_ns(2_000)),
        ])
    };
    let (mut said, mut silent) = (0, 0);
    for size in [1_000u64, 10_000, 100_000, 1_000_000, 100_000_000] {
        for policy in ["baseline", "themis", "round_robin", "search"] {
            let mut one = scenario(shape(), Operation::AllReduce, size);
            one.schedule.chunks = Some(16);
            let baseline = run(&one).time_us;
            one.schedule.policy = policy.to_owned();
            one.schedule.order =
                if policy == "themis" { Order::SMALLEST_FIRST } else { Order::FIFO };
            let result = run(&one);
            let is_behind = result.time_us > 1.001 * baseline;
            assert_eq!(result.behind_baseline.is_some(), is_behind, "{policy} {size}");
            said += usize::from(is_behind);
            silent += usize::from(!is_behind);
        }
    }
    assert!(said > 0 && silent > 0, "{said} {silent}");
}

fn ring_of(size: u32) -> Value {
    json!({"name": "ring", "dimensions": [{"kind": "ring", "size": size, "links": 2,
        "bandwidth": "100 GB/s", "latency": "1 us"}]})
}

/// Stages and replicas share a ring: a replica's ranks are four hops apart, and four groups have the same cables.
#[test]
#[expect(clippy::print_stdout, reason = "the figures of the guide, for whoever asks")]
fn a_step_on_parts_of_a_ring_takes_about_as_long_in_every_model() {
    for (schedule, layout) in [("1f1b", [4, 2]), ("dual_pipe", [4, 2]), ("dual_pipe", [2, 4])] {
        for hidden in [64, 512] {
            let times = ["dims", "links", "flows"].map(|network_model| {
                let tree = json!({"schema_version": 1, "fabric": ring_of(8), "network_model": network_model,
                    "schedule": {"chunks": 4},
                    "workload": {"model": {"transformer": {"layers": 8, "hidden": hidden,
                        "heads": 8, "vocabulary": 256, "sequence_length": 32, "tied": true}},
                        "batch_per_replica": 8, "iterations": 3,
                        "parallelism": {"pp": layout[0], "dp": layout[1], "microbatches": 8,
                            "schedule": schedule},
                        "compute": {"peak": "100 TFLOP/s", "memory_bandwidth": "1 TB/s"}}});
                let scenario = TrainingScenario::from_json(&tree.to_string()).expect("a scenario");
                let result = train(&scenario, false, &mut |_, _| ControlFlow::Continue(()));
                result.expect("it ends").step_time_us
            });
            println!("{schedule} {layout:?} {hidden}: {times:?}");
            let flows = times[2] / times[0];
            assert!((0.85..1.15).contains(&flows), "{schedule} {layout:?} {hidden}: {times:?}");
        }
    }
}
