//! Fabrics, scenarios and runs that several tests build alike.

use std::ops::ControlFlow;

use allrail_collective::Operation;
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_schedule::{ActiveChunks, Order, chunk};
use allrail_simulate::collectives::simulate;
use allrail_simulate::scenario::{Collective, NetworkModelKind, Schedule};
use allrail_simulate::{CollectiveScenario, PlanFile, SimulationResult};
use proptest::prelude::*;

pub(crate) const KINDS: [Kind; 3] = [Kind::Ring, Kind::FullyConnected, Kind::Switch];

/// 20 ps per byte on each link: whole bytes take whole picoseconds.
pub(crate) const EXACT: u64 = 50_000_000_000;

/// A dimension of `links` links of `rate` bytes per second.
pub(crate) fn dimension(kind: Kind, size: u32, links: u32, rate: u64, latency: Time) -> Dimension {
    Dimension::new(
        kind,
        size,
        links,
        Bandwidth::from_bytes_per_second(rate).expect("not zero"),
        latency,
    )
}

/// A dimension whose links are each of [`EXACT`] bandwidth, whatever its kind.
pub(crate) fn exact(kind: Kind, size: u32, latency: Time) -> Dimension {
    let links = match kind {
        Kind::Ring => 2,
        Kind::FullyConnected => size - 1,
        Kind::Switch => 1,
    };
    dimension(kind, size, links, EXACT, latency)
}

pub(crate) fn fabric(dimensions: Vec<Dimension>) -> Fabric {
    Fabric { memory_bandwidth: None, window: None, name: "test".into(), dimensions }
}

/// The six platforms of the Themis paper, with at most 8 NPUs in a dimension.
pub(crate) fn platforms() -> Vec<Fabric> {
    use Kind::{FullyConnected as FC, Ring as R, Switch as S};
    // Kind, size, links, Gb/s per link, latency in ns.
    type Row = (Kind, u32, u32, u64, u64);
    let platforms: [&[Row]; 6] = [
        &[(S, 8, 6, 200, 700), (S, 8, 1, 800, 1700)],
        &[(S, 8, 4, 200, 700), (S, 4, 4, 200, 700), (S, 4, 1, 800, 1700)],
        &[(S, 8, 8, 200, 700), (S, 4, 4, 200, 700), (S, 4, 1, 400, 1700)],
        &[(FC, 4, 3, 200, 700), (R, 8, 4, 200, 700), (S, 4, 1, 400, 1700)],
        &[(R, 4, 2, 1000, 20), (S, 2, 8, 200, 700), (S, 4, 4, 200, 700), (S, 4, 1, 400, 1700)],
        &[(R, 4, 2, 1500, 20), (FC, 4, 3, 200, 700), (R, 4, 6, 200, 700), (S, 2, 1, 800, 1700)],
    ];
    let row = |(kind, size, links, gbps, ns): Row| {
        dimension(kind, size, links, gbps * 125_000_000, Time::from_ns(ns))
    };
    platforms.iter().map(|rows| fabric(rows.iter().copied().map(row).collect())).collect()
}

pub(crate) fn collective(kind: Operation, size: u64) -> Collective {
    Collective {
        name: String::new(),
        kind,
        size: Bytes::new(size),
        start: Time::ZERO,
        dimensions: None,
    }
}

/// One collective in one chunk of the baseline in `dims`.
pub(crate) fn scenario(fabric: Fabric, kind: Operation, size: u64) -> CollectiveScenario {
    CollectiveScenario {
        fabric,
        job: vec![collective(kind, size)],
        schedule: Schedule { policy: "baseline".into(), chunks: Some(1), ..Schedule::default() },
        topology: None,
        network_model: NetworkModelKind::Dims,
        compat: Default::default(),
        packets: Default::default(),
        messages: Default::default(),
        seed: 0,
    }
}

/// The same scenario in `links`.
pub(crate) fn in_links(scenario: &CollectiveScenario) -> CollectiveScenario {
    CollectiveScenario { network_model: NetworkModelKind::Links, ..scenario.clone() }
}

pub(crate) fn run(scenario: &CollectiveScenario) -> SimulationResult {
    run_plan(scenario, None)
}

pub(crate) fn run_plan(scenario: &CollectiveScenario, plan: Option<&PlanFile>) -> SimulationResult {
    simulate(scenario, plan, false, &mut |_, _| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{error}\n{scenario:?}"))
}

/// Microseconds as the picoseconds that they were made from.
pub(crate) fn ps(us: f64) -> u64 {
    (us * 1e6).round() as u64
}

/// The time of a scenario in picoseconds.
pub(crate) fn time(scenario: &CollectiveScenario) -> u64 {
    ps(run(scenario).time_us)
}

pub(crate) fn ids(ids: &[u32]) -> Option<Vec<DimensionId>> {
    Some(ids.iter().copied().map(DimensionId).collect())
}

/// So many cases; failures are printed, not kept in files.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { cases: count, failure_persistence: None, ..ProptestConfig::default() }
}

/// Any dimension of up to `largest` NPUs; rates and latencies are drawn from so few that ties and
/// equal dimensions are common.
pub(crate) fn any_dimension(largest: u32) -> impl Strategy<Value = Dimension> {
    let rates = prop::sample::select(vec![25, 50, 100, 400, 77]);
    let latencies = prop::sample::select(vec![0, 20, 700, 1_700]);
    (prop::sample::select(&KINDS), 2..=largest, 1u32..=8, rates, latencies).prop_map(
        |(kind, size, links, rate, latency)| {
            dimension(kind, size, links, rate * 1_000_000_000, Time::from_ns(latency))
        },
    )
}

/// Any fabric of up to `count` dimensions.
pub(crate) fn any_fabric(count: usize, largest: u32) -> impl Strategy<Value = Fabric> {
    prop::collection::vec(any_dimension(largest), 1..=count).prop_map(fabric)
}

pub(crate) fn any_operation() -> impl Strategy<Value = Operation> {
    prop::sample::select(&Operation::ALL)
}

/// Any limit on the stages of a dimension, or none.
pub(crate) fn any_limit() -> impl Strategy<Value = Option<ActiveChunks>> {
    let limits = [1, 2, 3].map(|most| Some(ActiveChunks::AtMost(most)));
    prop::sample::select([&limits[..], &[None, Some(ActiveChunks::FILL)]].concat())
}

pub(crate) fn any_order() -> impl Strategy<Value = Order> {
    prop::sample::select(Order::all().collect::<Vec<_>>())
}

/// Any policy; those that take long to plan one time in eight of theirs, else the first of the list.
pub(crate) fn any_policy() -> impl Strategy<Value = String> {
    (0..chunk::ALL.len(), 0..8).prop_map(|(policy, turn)| {
        let rare = chunk::ALL[policy].is_expensive() && turn > 0;
        chunk::ALL[if rare { 0 } else { policy }].tag().to_owned()
    })
}
