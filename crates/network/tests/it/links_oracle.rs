//! `links` against a plain simulation that keeps every message in one sorted list.

use std::collections::BTreeMap;

use allrail_core::{Bandwidth, Bytes, DimensionId, Rank, Time};
use allrail_fabric::kinds::{self, LinkId};
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_network::{Event, Links, NetworkModel, Submission, Transfer};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Message {
    at: Time,
    dimension: u32,
    source: u32,
    destination: u32,
    bytes: u64,
}

/// (Departures, deliveries): the time of each message's.
type Times = (Vec<Time>, Vec<Time>);

/// Two ranks are on the same instance of a dimension if they differ on no other.
fn coordinates(fabric: &Fabric, rank: u32) -> Vec<u32> {
    let mut left = rank;
    let digit = |dimension: &Dimension| {
        let digit = left % dimension.size;
        left /= dimension.size;
        digit
    };
    fabric.dimensions.iter().map(digit).collect()
}

/// The oracle: of all messages, the one that reaches its next link first is served next.
fn plain(fabric: &Fabric, messages: &[Message]) -> Times {
    let mut waiting: Vec<(Time, usize, usize)> =
        messages.iter().enumerate().map(|(i, message)| (message.at, i, 0)).collect();
    let mut free: BTreeMap<(u32, Vec<u32>, LinkId), Time> = BTreeMap::new();
    let mut times = (vec![Time::MAX; messages.len()], vec![Time::MAX; messages.len()]);
    while !waiting.is_empty() {
        waiting.sort_unstable();
        let (now, i, hop) = waiting.remove(0);
        let message = &messages[i];
        let d = message.dimension as usize;
        let dimension = &fabric.dimensions[d];
        let mut instance = coordinates(fabric, message.source);
        let from = std::mem::replace(&mut instance[d], 0);
        let to = coordinates(fabric, message.destination)[d];
        let mut path = Vec::new();
        kinds::path(dimension, from, to, &mut path);
        let Some(link) = path.get(hop) else {
            times.1[i] = now;
            continue;
        };
        let topology = kinds::of(dimension.kind);
        let rate = topology.link_bandwidth(dimension).bytes_per_second();
        let serialisation = Time::from_ps(message.bytes * 1_000_000_000_000 / rate);
        let server = free.entry((message.dimension, instance, *link)).or_default();
        *server = now.max(*server) + serialisation;
        if hop == 0 {
            times.0[i] = *server;
        }
        let latency = dimension.latency.as_ps() / u64::from(topology.hops_per_step());
        waiting.push((*server + Time::from_ps(latency), i, hop + 1));
    }
    times
}

/// What the network model does, and whether it told it in order.
fn simulated(fabric: &Fabric, messages: &[Message]) -> Result<Times, TestCaseError> {
    let mut network_model = Links::new(fabric);
    let mut times = (vec![Time::MAX; messages.len()], vec![Time::MAX; messages.len()]);
    let mut last = (Time::ZERO, 0);
    let mut take = |network_model: &mut Links, until: Time| {
        while let Some((now, event)) = network_model.next_event(until) {
            let (place, class, tag) = match event {
                Event::Delivered { tag } => (&mut times.1, 0, tag),
                Event::Sent { tag } => (&mut times.0, 1, tag),
            };
            let place = &mut place[usize::try_from(tag).expect("an index")];
            prop_assert_eq!(*place, Time::MAX, "told twice");
            *place = now;
            prop_assert!(last <= (now, class), "out of order");
            last = (now, class);
        }
        Ok(())
    };
    for (tag, message) in (0..).zip(messages) {
        take(&mut network_model, message.at)?;
        let transfer = Transfer::Message {
            dimension: DimensionId(message.dimension),
            source: Rank(message.source),
            destination: Rank(message.destination),
            bytes: Bytes::new(message.bytes),
        };
        network_model.submit(message.at, Submission { transfer, tag, sent_tag: Some(tag) });
    }
    take(&mut network_model, Time::MAX)?;
    prop_assert_eq!(network_model.next_time(), None);
    Ok(times)
}

/// Every time in a fabric of these is a multiple of this many picoseconds; messages are submitted at
/// times that differ modulo it, so that no two are at a link at one time.
const GRID: u64 = 1 << 11;

fn any_dimension() -> impl Strategy<Value = Dimension> {
    const KINDS: [Kind; 3] = [Kind::Ring, Kind::FullyConnected, Kind::Switch];
    (prop::sample::select(&KINDS), 2u32..=5, 0u64..20).prop_map(|(kind, size, latency)| {
        let links = match kind {
            Kind::Ring => 2,
            Kind::FullyConnected => size - 1,
            Kind::Switch => 1,
        };
        Dimension::new(
            kind,
            size,
            links,
            Bandwidth::from_bytes_per_second(1_000_000_000_000).expect("not zero"),
            Time::from_ps(2 * GRID * latency),
        )
    })
}

/// A fabric with messages between peers, in the order in which they are submitted, on the grid.
fn any_traffic() -> impl Strategy<Value = (Fabric, Vec<Message>)> {
    let draws = (0u64..60, any::<u32>(), any::<u32>(), any::<u32>(), 1u64..12);
    (prop::collection::vec(any_dimension(), 1..=3), prop::collection::vec(draws, 1..60)).prop_map(
        |(dimensions, draws)| {
            let fabric =
                Fabric { memory_bandwidth: None, window: None, name: String::new(), dimensions };
            let npus = u32::try_from(fabric.npus()).expect("few NPUs");
            let mut messages: Vec<Message> = draws
                .into_iter()
                .map(|(at, source, d, peer, bytes)| {
                    let source = source % npus;
                    let d = d as usize % fabric.dimensions.len();
                    let size = fabric.dimensions[d].size;
                    let stride: u32 = fabric.dimensions[..d].iter().map(|d| d.size).product();
                    let own = coordinates(&fabric, source)[d];
                    let other = (own + 1 + peer % (size - 1)) % size;
                    Message {
                        at: Time::from_ps(GRID * at),
                        dimension: u32::try_from(d).expect("few dimensions"),
                        source,
                        destination: source - own * stride + other * stride,
                        bytes: 2 * GRID * bytes,
                    }
                })
                .collect();
            messages.sort_by_key(|message| message.at);
            (fabric, messages)
        },
    )
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn links_serves_each_link_first_come_first_served(traffic in any_traffic()) {
        let (fabric, mut messages) = traffic;
        for (i, message) in (0u64..).zip(&mut messages) {
            message.at += Time::from_ps(i);
        }
        prop_assert_eq!(simulated(&fabric, &messages)?, plain(&fabric, &messages));
    }

    /// With ties the order at a link is the network model's choice; nothing is lost, or told out of order.
    #[test]
    fn messages_are_conserved(traffic in any_traffic()) {
        let (fabric, messages) = traffic;
        let (sent, delivered) = simulated(&fabric, &messages)?;
        for (message, (sent, delivered)) in messages.iter().zip(sent.iter().zip(&delivered)) {
            prop_assert!(message.at < *sent && sent <= delivered && *delivered < Time::MAX);
        }
        let total = |times: &[Time]| times.iter().copied().max();
        prop_assert!(total(&sent) <= total(&delivered));
    }
}
