//! The driver over `dims` against the planners' evaluator, and `links` against `dims`.

use std::ops::ControlFlow;

use crate::common::*;
use allrail_collective::{Algorithm, CollectivePlan, Operation, StageRef, algorithm};
use allrail_core::{Bytes, Time};
use allrail_fabric::{Fabric, Kind};
use allrail_network::Dims;
use allrail_schedule::chunk::{Parameters, Plugins};
use allrail_schedule::evaluate::{Evaluation, evaluate};
use allrail_schedule::{ActiveChunks, Order, Request, queue};
use allrail_simulate::CollectiveScenario;
use allrail_simulate::driver::{self, Collectives};
use allrail_simulate::lowering::{Lowering, work};
use proptest::prelude::*;

/// What the driver makes of a plan in `dims`.
fn driven(plan: &CollectivePlan, order: Order, active_chunks: Option<ActiveChunks>) -> Evaluation {
    let plans = std::slice::from_ref(plan);
    let (_, works) = work(&plan.fabric, plans).expect("a planned plan");
    let job = Collectives {
        plans,
        starts: &[Time::ZERO],
        priorities: &[0],
        order,
        active_chunks,
        send_ahead: Bytes::default(),
        endpoint_delay: Time::ZERO,
        timeline: true,
        until: Time::MAX,
    };
    let mut network_model = Dims::new(plan.fabric.dimensions.len());
    let lowering = Lowering::stages(plans, &works, order);
    let run =
        driver::run(&job, &lowering, &mut network_model, &mut |_, _| ControlFlow::Continue(()))
            .expect("it ends");
    let mut served = vec![Vec::new(); plan.fabric.dimensions.len()];
    for span in &run.spans {
        let stage = plan.chunks[span.at.chunk as usize].stages[span.at.stage as usize];
        served[stage.dimension.index()]
            .push(StageRef { chunk: span.at.chunk, stage: span.at.stage });
    }
    Evaluation { finish: run.finish[0], served }
}

/// What the planners' evaluator makes of it.
fn evaluated(
    plan: &CollectivePlan,
    order: Order,
    active_chunks: Option<ActiveChunks>,
) -> Evaluation {
    let (_, works) = work(&plan.fabric, std::slice::from_ref(plan)).expect("a planned plan");
    let orders = std::slice::from_ref(&plan.dimension_order);
    let mut queues = queue::queues(order, plan.fabric.dimensions.len(), orders);
    evaluate(&works[0], &mut queues, active_chunks)
}

fn planned(request: &Request) -> CollectivePlan {
    allrail_schedule::plan(request).unwrap_or_else(|error| panic!("{error}\n{request:?}"))
}

fn request(fabric: Fabric, operation: Operation, size: u64, chunks: u32) -> Request {
    Request {
        fabric,
        operation,
        size: Bytes::new(size),
        dimensions: Vec::new(),
        policy: "baseline".into(),
        order: Order::SMALLEST_FIRST,
        chunks,
        algorithms: None,
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters::default(),
        seed: 1,
        programs: Default::default(),
        plugins: Plugins::default(),
    }
}

fn any_eager_order() -> impl Strategy<Value = Order> {
    let is_eager = |order: &Order| queue::queues(*order, 1, &[])[0].is_eager();
    prop::sample::select(Order::all().filter(is_eager).collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_driver_over_dims_does_what_the_evaluator_says(
        fabric in any_fabric(4, 16),
        operation in any_operation(),
        policy in any_policy(),
        order in any_order(),
        active_chunks in any_limit(),
        (size, chunks, delay) in (100_000u64..100_000_000, 1u32..=40, 0u64..2),
    ) {
        let plan = planned(&Request {
            policy,
            order,
            active_chunks,
            endpoint_delay: Time::from_ns(10 * delay),
            ..request(fabric, operation, size, chunks)
        });
        let outcome = driven(&plan, order, active_chunks);
        prop_assert_eq!(&outcome, &evaluated(&plan, order, active_chunks));
        // The planner wrote down the order that the evaluator found.
        prop_assert_eq!(outcome.served, plan.dimension_order);
    }

    /// Eager queues choose after every single event: much at one time, and stages that take none.
    #[test]
    fn the_driver_over_dims_does_what_the_evaluator_says_of_eager_queues(
        fabric in any_fabric(4, 6),
        operation in any_operation(),
        policy in any_policy(),
        order in any_eager_order(),
        active_chunks in any_limit(),
        (size, chunks) in (20u64..50_000, 1u32..=20),
    ) {
        let plan = planned(&Request {
            policy,
            order,
            active_chunks,
            ..request(fabric, operation, size, chunks)
        });
        prop_assert_eq!(driven(&plan, order, active_chunks), evaluated(&plan, order, active_chunks));
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn a_searched_plan_takes_as_long_under_the_driver_as_the_search_thought(
        fabric in any_fabric(3, 8),
        order in any_order(),
        active_chunks in any_limit(),
        chunks in 1u32..=5,
    ) {
        let plan = planned(&Request {
            policy: "search".into(),
            order,
            active_chunks,
            ..request(fabric, Operation::AllReduce, 10_000_000, chunks)
        });
        let outcome = driven(&plan, order, active_chunks);
        prop_assert_eq!(&outcome, &evaluated(&plan, order, active_chunks));
    }
}

/// The (kind, algorithm) pairs whose messages cross one link each: those that have a closed form there,
/// but on switches, where they cross two.
fn one_hop() -> Vec<(Kind, &'static dyn Algorithm)> {
    let pairs = KINDS.iter().flat_map(|kind| algorithm::ALL.iter().map(|one| (*kind, *one)));
    let fits = |(kind, one): &(Kind, &dyn Algorithm)| {
        let closed = one.on_links(*kind, one.operations()[0], 8).time.is_some();
        closed && *kind != Kind::Switch
    };
    pairs.filter(fits).collect()
}

/// One chunk of `size` bytes on one dimension of links of 20 ps per byte.
fn single(
    kind: Kind,
    ranks: u32,
    name: &str,
    operation: Operation,
    size: u64,
) -> CollectiveScenario {
    let fabric = fabric(vec![exact(kind, ranks, Time::from_ns(500))]);
    let mut scenario = scenario(fabric, operation, size);
    scenario.schedule.algorithms = Some(vec![name].into());
    scenario
}

fn steps(name: &str, operation: Operation, ranks: u32) -> u64 {
    let algorithm = algorithm::named(name).expect("known");
    u64::from(algorithm.cost(operation, ranks).steps)
}

#[test]
fn links_equals_dims_to_the_picosecond_where_every_message_crosses_one_link() {
    let pairs = one_hop();
    assert!(pairs.len() >= 3, "{pairs:?}");
    for (kind, algorithm) in pairs {
        let name = algorithm.tag();
        for operation in algorithm.operations().iter().copied() {
            for ranks in 2..=17 {
                let size = 1_200 * u64::from(2 * ranks);
                let scenario = single(kind, ranks, name, operation, size);
                let (dims, links) = (run(&scenario), run(&in_links(&scenario)));
                let case = format!("{name} {operation} on {ranks} NPUs");
                assert_eq!(ps(links.time_us), ps(dims.time_us), "{case}");
                assert_eq!(links.bytes_per_npu, dims.bytes_per_npu, "{case}");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// Where a byte does not take whole picoseconds, `dims` rounds once per stage and `links` once
    /// per message, each up to a picosecond, and the link's share of the
    /// bandwidth is rounded down to whole bytes per second.
    #[test]
    fn links_equals_dims_but_for_the_rounding_of_each_step(
        (kind, algorithm) in prop::sample::select(one_hop()),
        operation in any::<prop::sample::Index>(),
        (ranks, links, rate) in (2u32..=12, 1u32..=8, 1_000_000_000u64..500_000_000_000),
        (blocks, latency) in (1u64..4_000, 0u64..2_000),
    ) {
        let (name, operation) = (algorithm.tag(), *operation.get(algorithm.operations()));
        let dimension = dimension(kind, ranks, links, rate, Time::from_ns(latency));
        let size = blocks * u64::from(2 * ranks);
        let mut scenario = scenario(fabric(vec![dimension]), operation, size);
        scenario.schedule.algorithms = Some(vec![name].into());
        let (dims, links) = (time(&scenario), time(&in_links(&scenario)));
        // A step of `ring` is two messages, and where two NPUs bond its directions they share a link.
        let messages = if algorithm.on_links(kind, operation, ranks).block_by_block {
            u64::from(ranks * (ranks - 1) / 2)
        } else {
            steps(name, operation, ranks)
        };
        let rounded = 2 * messages + 1;
        prop_assert!(dims.abs_diff(links) <= rounded, "{dims} {links}");
    }

    /// One chunk has no other to wait for, whatever the fabric.
    #[test]
    fn links_equals_dims_for_one_chunk_over_many_one_hop_dimensions(
        shape in prop::collection::vec((any::<bool>(), 2u32..=5), 1..=4),
        operation in any_operation(),
        policy in any_policy(),
    ) {
        let dimensions: Vec<_> = shape
            .iter()
            .map(|(ring, size)| {
                let kind = if *ring { Kind::Ring } else { Kind::FullyConnected };
                // Who has a broadcast's first bytes goes on with the next dimension before the last ones have come.
                let latency = if operation == Operation::Broadcast { 0 } else { 700 };
                exact(kind, *size, Time::from_ns(latency))
            })
            .collect();
        let ranks: u64 = shape.iter().map(|(_, size)| u64::from(*size)).product();
        let blocks = ranks << shape.len();
        let mut scenario = scenario(fabric(dimensions), operation, 60 * blocks);
        scenario.schedule.policy = policy;
        let (dims, links) = (run(&scenario), run(&in_links(&scenario)));
        prop_assert_eq!(ps(links.time_us), ps(dims.time_us));
        prop_assert_eq!(links.bytes_per_npu, dims.bytes_per_npu);
    }
}

/// What `links` adds on a switch: every step's last message is serialised once more, from the
/// switch down to its receiver.
#[test]
fn links_adds_one_message_per_step_on_a_switch() {
    use Operation::{AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
    for ranks in [2u32, 3, 4, 5, 8, 12, 16] {
        for (name, operation) in [
            ("direct", ReduceScatter),
            ("direct", AllGather),
            ("direct", AllReduce),
            ("direct", AllToAll),
            ("direct", Broadcast),
            ("halving_doubling", ReduceScatter),
            ("halving_doubling", AllGather),
            ("halving_doubling", AllReduce),
            ("ring_unidirectional", ReduceScatter),
            ("ring_unidirectional", AllGather),
            ("ring_unidirectional", AllReduce),
            ("ring_unidirectional", AllToAll),
            ("ring", ReduceScatter),
            ("ring", AllGather),
            ("ring", AllReduce),
        ] {
            let block = 600;
            let program = algorithm::named(name).expect("known").program(operation, ranks);
            let scenario =
                single(Kind::Switch, ranks, name, operation, block * u64::from(program.blocks));
            // Rank 0 sends in every step, and in each its messages are of one size.
            let messages: u64 = program.steps[0]
                .iter()
                .map(|step| step.sends.last().map_or(0, |send| u64::from(send.blocks.len())))
                .sum();
            let added = time(&in_links(&scenario)) - time(&scenario);
            assert_eq!(added, messages * block * 20, "{name} {operation} on {ranks} NPUs");
        }
    }
}

#[test]
fn the_endpoint_delay_counts_once_per_step_and_once_per_stage_in_both_network_models() {
    let delay = Time::from_ns(10);
    for (kind, name) in [
        (Kind::Ring, "ring"),
        (Kind::FullyConnected, "direct"),
        (Kind::Switch, "direct"),
        (Kind::Switch, "halving_doubling"),
    ] {
        for operation in [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather] {
            let without = single(kind, 8, name, operation, 16 * 1_200);
            let mut with = without.clone();
            with.schedule.endpoint_delay = delay;
            // An all-reduce is a reduce-scatter and an all-gather, a stage each.
            let stages = if operation == Operation::AllReduce { 2 } else { 1 };
            let half = steps(name, Operation::ReduceScatter, 8);
            let expected = stages * (half + 1) * delay.as_ps();
            assert_eq!(time(&with) - time(&without), expected, "dims: {name} {operation}");
            let (with, without) = (in_links(&with), in_links(&without));
            assert_eq!(time(&with) - time(&without), expected, "links: {name} {operation}");
        }
    }
}
