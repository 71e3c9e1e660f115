//! The collectives whose ranks are not in the same stage at the same time, and dimensions of two
//! NPUs, in `links`.

use std::ops::ControlFlow;

use allrail_collective::{Operation, algorithm};
use allrail_core::Time;
use allrail_fabric::{Dimension, Kind};
use allrail_schedule::{ActiveChunks, Order};
use allrail_simulate::CollectiveScenario;
use allrail_simulate::collectives::simulate;
use proptest::prelude::*;

use crate::common::*;

/// `links` over `dimensions`, every one with the algorithm `name`.
fn links(
    dimensions: Vec<Dimension>,
    operation: Operation,
    size: u64,
    name: &str,
) -> CollectiveScenario {
    let algorithms = vec![name.to_owned(); dimensions.len()];
    let mut scenario = in_links(&scenario(fabric(dimensions), operation, size));
    scenario.schedule.algorithms = Some(algorithms.into());
    scenario
}

fn full(size: u32, latency: u64) -> Dimension {
    exact(Kind::FullyConnected, size, Time::from_ns(latency))
}

#[test]
fn a_broadcast_reaches_the_far_corner_one_dimension_after_the_other() {
    let shape = vec![full(3, 100), full(4, 500), full(2, 20)];
    let scenario = links(shape, Operation::Broadcast, 1_200, "direct");
    // The whole buffer crosses one link per dimension: 24 ns and its latency each.
    assert_eq!(time(&scenario), 3 * 24_000 + (100 + 500 + 20) * 1_000);
    // Everyone but rank 0 receives it once.
    assert_eq!(run(&scenario).messages, Some(23));
}

/// It awaits nothing: its links on all dimensions are free from the start.
#[test]
fn the_root_of_a_broadcast_sends_on_all_dimensions_at_once() {
    let shape = vec![full(3, 100), full(4, 500), full(2, 20)];
    let scenario = links(shape, Operation::Broadcast, 1_200, "direct");
    let result = simulate(&scenario, None, true, &mut |_, _| ControlFlow::Continue(()));
    let spans = result.expect("it ends").timeline.expect("asked for");
    assert_eq!(spans.len(), 3);
    for span in spans {
        assert_eq!(span.start_us, 0.0, "dim{}", span.dimension + 1);
        assert_eq!(span.end_us, 0.024, "dim{}", span.dimension + 1);
    }
}

#[test]
fn a_message_through_a_switch_is_serialised_twice() {
    let switch = exact(Kind::Switch, 2, Time::from_ns(500));
    let scenario = links(vec![switch], Operation::Broadcast, 1_200, "direct");
    assert_eq!(time(&scenario), 2 * 24_000 + 500_000);
}

#[test]
fn an_all_to_all_sends_each_share_once_per_dimension() {
    let shape = vec![full(3, 100), full(4, 500), full(2, 20)];
    let size = 24_000;
    let mut scenario = links(shape, Operation::AllToAll, size, "direct");
    let result = run(&scenario);
    let sent = [size * 2 / 3, size * 3 / 4, size / 2];
    for (dimension, bytes) in result.dimensions.iter().zip(sent) {
        assert_eq!(dimension.bytes_per_npu, bytes, "{}", dimension.name);
    }
    // 24 NPUs with 2, 3 and 1 peers.
    assert_eq!(result.messages, Some(24 * 6));
    // A third, a quarter and a half of the buffer on one link each.
    let us: u64 = [size / 3, size / 4, size / 2].iter().map(|bytes| bytes * 20).sum();
    assert_eq!(ps(result.time_us), us + (100 + 500 + 20) * 1_000);
    scenario.schedule.chunks = Some(6);
    assert_eq!(run(&scenario).messages, Some(6 * 24 * 6));
}

/// How many messages one chunk makes: on each line that takes part, those of its algorithm.
fn messages(scenario: &CollectiveScenario) -> u64 {
    let kind = scenario.job[0].kind;
    let sizes: Vec<u64> = scenario.fabric.dimensions.iter().map(|d| u64::from(d.size)).collect();
    let npus: u64 = sizes.iter().product();
    let given = scenario.schedule.algorithms.as_ref().expect("given");
    let names: Vec<&str> = given.named().collect();
    let mut lines = 1;
    let mut total = 0;
    // A broadcast goes inwards: a line of each dimension for every rank that it has reached.
    for (size, name) in sizes.iter().zip(names).rev() {
        let algorithm = allrail_collective::algorithm::named(name).expect("known");
        let ranks = u32::try_from(*size).expect("small");
        let program = algorithm.program(kind, ranks);
        let apart = algorithm.on_links(Kind::Ring, kind, ranks).block_by_block;
        let of_step = |step: &allrail_collective::program::Step| -> u64 {
            let of_send = |send: &allrail_collective::program::Send| u64::from(send.blocks.len());
            if apart { step.sends.iter().map(of_send).sum() } else { step.sends.len() as u64 }
        };
        let sends = |rank: &Vec<allrail_collective::program::Step>| -> u64 {
            rank.iter().map(of_step).sum()
        };
        let per_line: u64 = program.steps.iter().map(sends).sum();
        total += per_line * if kind == Operation::Broadcast { lines } else { npus / size };
        lines *= size;
    }
    total
}

fn names_of_those_that_do(operation: Operation) -> Vec<&'static str> {
    let doing = algorithm::ALL.iter().filter(|one| one.operations().contains(&operation));
    doing.map(|one| one.tag()).collect()
}

proptest! {
    #![proptest_config(cases(100))]

    /// It ends, on every rank, with exactly the messages of its algorithms.
    #[test]
    fn broadcasts_and_all_to_alls_end_whatever_the_algorithm(
        shape in prop::collection::vec((prop::sample::select(&KINDS), 2u32..=4), 1..=3),
        algorithms in prop::collection::vec(any::<prop::sample::Index>(), 3),
        broadcast in any::<bool>(),
        chunks in 1u32..=6,
        order in any_order(),
    ) {
        let operation = if broadcast { Operation::Broadcast } else { Operation::AllToAll };
        let count = shape.len();
        let dimensions =
            shape.into_iter().map(|(kind, size)| exact(kind, size, Time::from_ns(100))).collect();
        let mut scenario = links(dimensions, operation, 50_000, "direct");
        let doing: Vec<&str> = names_of_those_that_do(operation);
        let names = algorithms[..count].iter().map(|one| (*one.get(&doing)).to_owned());
        scenario.schedule.algorithms = Some(names.collect());
        scenario.schedule.chunks = Some(chunks);
        scenario.schedule.order = order;
        let result = run(&scenario);
        prop_assert_eq!(result.messages, Some(u64::from(chunks) * messages(&scenario)));
        prop_assert!(result.time_us > 0.0);
    }
}

/// Two NPUs have one neighbour each, whatever joins them: all their links lead there. A ring's two
/// directions are one link of their common bandwidth.
#[test]
fn dimensions_of_two_npus_use_all_their_links_whatever_their_kind() {
    for operation in Operation::ALL {
        let mut times = Vec::new();
        for kind in KINDS {
            // 4 links, 5 ps per byte in all.
            let dimension = dimension(kind, 2, 4, EXACT, Time::ZERO);
            let mut scenario = scenario(fabric(vec![dimension]), operation, 80_000);
            scenario.schedule.algorithms = Some(vec!["direct"].into());
            let (dims, links) = (time(&scenario), time(&in_links(&scenario)));
            let twice = if kind == Kind::Switch { 2 } else { 1 };
            assert_eq!(links, twice * dims, "{operation} on {kind:?}");
            times.push(dims);
        }
        let half = match operation {
            Operation::AllReduce | Operation::Broadcast => 1,
            _ => 2,
        };
        assert_eq!(times, [80_000 / half * 5; 3], "{operation}");
    }
}

/// Both halves of a bidirectional ring of two go the one way that there is.
#[test]
fn a_ring_of_two_bonds_both_directions() {
    let ring = dimension(Kind::Ring, 2, 2, EXACT, Time::from_ns(100));
    for name in names_of_those_that_do(Operation::ReduceScatter) {
        let scenario = links(vec![ring.clone()], Operation::ReduceScatter, 40_000, name);
        // 20,000 bytes at 10 ps.
        assert_eq!(time(&scenario), 200_000 + 100_000, "{name}");
    }
}

/// A rank that the data has not reached is in none of the early stages, and must not wait for them.
#[test]
fn a_broadcast_in_planned_order_ends_in_links() {
    for (limit, policy) in [(None, "search"), (Some(1), "search"), (Some(2), "baseline")] {
        let fabric = fabric(vec![exact(Kind::Switch, 4, Time::from_ns(700)); 3]);
        let mut scenario = in_links(&scenario(fabric, Operation::Broadcast, 1 << 20));
        scenario.schedule.policy = policy.to_owned();
        scenario.schedule.chunks = Some(8);
        scenario.schedule.order = Order::PLANNED;
        scenario.schedule.active_chunks = limit.map(ActiveChunks::AtMost);
        assert!(run(&scenario).time_us > 0.0, "{policy} {limit:?}");
    }
}

/// What one collective alone gives does not depend on whether its stages are written down.
#[test]
fn the_evaluator_and_the_driver_give_the_same_result() {
    let fabric = fabric(vec![exact(Kind::Ring, 4, Time::from_ns(700)); 2]);
    let mut scenario = scenario(fabric, Operation::AllReduce, 1 << 20);
    scenario.schedule.chunks = Some(7);
    scenario.job[0].start = Time::from_us(3);
    let result = |timeline| {
        let mut observer = |_, _| ControlFlow::Continue(());
        let mut result =
            allrail_simulate::collectives::simulate(&scenario, None, timeline, &mut observer)
                .expect("it runs");
        (result.host, result.timeline) = (allrail_simulate::result::Host::default(), None);
        serde_json::to_string(&result).expect("plain data")
    };
    assert_eq!(result(false), result(true));
}
