//! What the driver may rely on, in every network model: one body, each test run in `dims`, `links` and
//! `packets`, and in `flows` where no two transfers meet.
//!
//! On one link, and on one dimension of one class, the first three are a server that is busy for a
//! transfer's bytes and delivers it a latency after the last of them; a fluid is one, too, for one
//! transfer at a time.

use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, DimensionId, Rank, Time};
use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::routing::Adaptive;
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_network::flows::Splitting;
use allrail_network::packets::Settings;
use allrail_network::{
    Dims, Event, Flows, Links, NetworkModel, Packets, Submission, Transfer, TransferId,
};

const DIMENSION: DimensionId = DimensionId(0);

/// A network model with one server, and how it is asked to be busy.
struct Arm {
    name: &'static str,
    network_model: Box<dyn NetworkModel>,
    transfer: Box<dyn Fn(u64) -> Transfer>,
}

fn ring_of_two(latency: u64) -> Fabric {
    let dimension = Dimension::new(
        Kind::Ring,
        2,
        1,
        Bandwidth::from_bytes_per_second(1_000_000_000).expect("not zero"),
        Time::from_ns(latency),
    );
    Fabric { memory_bandwidth: None, window: None, name: "two".into(), dimensions: vec![dimension] }
}

fn two_npus(latency: u64) -> Arc<Graph> {
    let mut builder = Builder::new(2);
    let wire = Wire {
        bandwidth: Bandwidth::from_bytes_per_second(1_000_000_000).expect("not zero"),
        latency: Time::from_ns(latency),
    };
    builder.cable(NodeId(0), NodeId(1), CableKind::Dac, wire).expect("a cable");
    Arc::new(builder.build().expect("a graph"))
}

fn packets(graph: Arc<Graph>) -> Packets {
    let routing = Box::new(Adaptive::new(&graph).expect("two NPUs"));
    Packets::new(graph, routing, &Settings::default(), 0).expect("a network model")
}

/// The network models that are servers, with a latency in nanoseconds.
fn arms(latency: u64) -> Vec<Arm> {
    vec![
        Arm {
            name: "dims",
            network_model: Box::new(Dims::new(1)),
            transfer: Box::new(move |ns| Transfer::Stage {
                dimension: DIMENSION,
                occupancy: Time::from_ns(ns),
                latency: Time::from_ns(latency),
            }),
        },
        Arm {
            name: "links",
            network_model: Box::new(Links::new(&ring_of_two(latency))),
            transfer: Box::new(|ns| Transfer::Message {
                dimension: DIMENSION,
                source: Rank(0),
                destination: Rank(1),
                bytes: Bytes::new(ns),
            }),
        },
        Arm {
            name: "packets",
            network_model: Box::new(packets(two_npus(latency))),
            transfer: Box::new(|ns| Transfer::Message {
                dimension: DIMENSION,
                source: Rank(0),
                destination: Rank(1),
                bytes: Bytes::new(ns),
            }),
        },
    ]
}

/// All network models, for one transfer at a time.
fn all_arms(latency: u64) -> Vec<Arm> {
    let mut arms = arms(latency);
    arms.push(Arm {
        name: "flows",
        network_model: Box::new(Flows::new(&two_npus(latency), Splitting::Ideal)),
        transfer: Box::new(|ns| Transfer::Message {
            dimension: DIMENSION,
            source: Rank(0),
            destination: Rank(1),
            bytes: Bytes::new(ns),
        }),
    });
    arms
}

const ALWAYS: Time = Time::MAX;

impl Arm {
    /// Submits a transfer of `ns` nanoseconds; its departure is told too.
    fn submit(&mut self, now: u64, ns: u64, tag: u64) -> TransferId {
        let transfer = (self.transfer)(ns);
        let submission = Submission { transfer, tag, sent_tag: Some(tag) };
        self.network_model.submit(Time::from_ns(now), submission)
    }

    fn cancel(&mut self, now: u64, transfer: TransferId) -> bool {
        self.network_model.cancel(Time::from_ns(now), transfer)
    }

    /// Everything up to `until`, as (nanoseconds, text).
    fn events(&mut self, until: Time) -> Vec<(u64, String)> {
        std::iter::from_fn(|| self.network_model.next_event(until))
            .map(|(time, event)| {
                let text = match event {
                    Event::Sent { tag } => format!("sent {tag}"),
                    Event::Delivered { tag } => format!("delivered {tag}"),
                };
                (time.as_ps() / 1_000, text)
            })
            .collect()
    }

    fn expect(&mut self, until: Time, expected: &[(u64, &str)]) {
        let got = self.events(until);
        let got: Vec<(u64, &str)> = got.iter().map(|(time, text)| (*time, text.as_str())).collect();
        assert_eq!(got, expected, "in {}", self.name);
    }
}

#[test]
fn transfers_are_served_one_after_the_other_and_delivered_a_latency_later() {
    for mut arm in arms(15) {
        arm.submit(0, 10, 1);
        arm.submit(0, 20, 2);
        arm.submit(0, 30, 3);
        arm.expect(
            ALWAYS,
            &[
                (10, "sent 1"),
                (25, "delivered 1"),
                (30, "sent 2"),
                (45, "delivered 2"),
                (60, "sent 3"),
                (75, "delivered 3"),
            ],
        );
    }
}

#[test]
fn at_one_time_deliveries_come_before_departures() {
    for mut arm in arms(20) {
        arm.submit(0, 10, 1);
        arm.submit(0, 20, 2);
        arm.expect(Time::from_ns(30), &[(10, "sent 1"), (30, "delivered 1"), (30, "sent 2")]);
    }
    for mut arm in all_arms(0) {
        arm.submit(0, 10, 1);
        arm.expect(ALWAYS, &[(10, "delivered 1"), (10, "sent 1")]);
    }
}

#[test]
fn a_departure_is_told_only_where_it_is_asked_for() {
    for mut arm in all_arms(5) {
        let transfer = (arm.transfer)(10);
        arm.network_model.submit(Time::ZERO, Submission { transfer, tag: 7, sent_tag: None });
        arm.expect(ALWAYS, &[(15, "delivered 7")]);
    }
}

#[test]
fn a_network_model_does_not_move_beyond_the_time_it_is_asked_for() {
    for mut arm in all_arms(5) {
        arm.submit(0, 10, 1);
        assert_eq!(arm.network_model.next_time(), Some(Time::from_ns(10)));
        arm.expect(Time::from_ps(9_999), &[]);
        arm.expect(Time::from_ns(14), &[(10, "sent 1")]);
        assert_eq!(arm.network_model.next_time(), Some(Time::from_ns(15)));
        arm.submit(14, 10, 2);
        arm.expect(ALWAYS, &[(15, "delivered 1"), (24, "sent 2"), (29, "delivered 2")]);
        assert_eq!(arm.network_model.next_time(), None);
    }
}

/// A switch is two links: what only reaches the switch is no event, and the network model stops there.
#[test]
fn a_message_that_reaches_a_switch_is_no_event_and_moves_no_clock() {
    let mut fabric = ring_of_two(10);
    fabric.dimensions[0].kind = Kind::Switch;
    let mut network_model = Links::new(&fabric);
    let message = |source, bytes| Transfer::Message {
        dimension: DIMENSION,
        source: Rank(source),
        destination: Rank(1 - source),
        bytes: Bytes::new(bytes),
    };
    let submit = |network_model: &mut Links, now, source, bytes, tag| {
        let submission = Submission { transfer: message(source, bytes), tag, sent_tag: None };
        network_model.submit(Time::from_ns(now), submission)
    };
    submit(&mut network_model, 0, 0, 100, 1);
    // Its last byte is at the switch at 105 ns; nothing has happened for the driver.
    assert_eq!(network_model.next_event(Time::from_ns(105)), None);
    assert_eq!(network_model.next_time(), Some(Time::from_ns(210)));
    submit(&mut network_model, 106, 1, 1, 2);
    let event = |tag| Event::Delivered { tag };
    assert_eq!(network_model.next_event(ALWAYS), Some((Time::from_ns(118), event(2))));
    assert_eq!(network_model.next_event(ALWAYS), Some((Time::from_ns(210), event(1))));
    assert_eq!(network_model.next_event(ALWAYS), None);
}

#[test]
fn a_cancelled_transfer_that_waits_emits_nothing() {
    for mut arm in arms(5) {
        arm.submit(0, 10, 1);
        let waiting = arm.submit(0, 20, 2);
        arm.submit(0, 30, 3);
        assert!(arm.cancel(0, waiting), "in {}", arm.name);
        assert!(!arm.cancel(0, waiting), "twice, in {}", arm.name);
        let others = match arm.name {
            // The next one takes its place.
            "dims" | "packets" => {
                [(10, "sent 1"), (15, "delivered 1"), (40, "sent 3"), (45, "delivered 3")]
            }
            // Dropped at the far end: the link carries it all the same.
            _ => [(10, "sent 1"), (15, "delivered 1"), (60, "sent 3"), (65, "delivered 3")],
        };
        arm.expect(ALWAYS, &others);
    }
}

#[test]
fn a_cancelled_transfer_that_is_served_emits_nothing() {
    for mut arm in arms(5) {
        let served = arm.submit(0, 10, 1);
        arm.submit(0, 20, 2);
        assert!(arm.cancel(4, served), "in {}", arm.name);
        let other = match arm.name {
            "dims" => [(24, "sent 2"), (29, "delivered 2")],
            _ => [(30, "sent 2"), (35, "delivered 2")],
        };
        arm.expect(ALWAYS, &other);
        assert!(!arm.cancel(40, served), "in {}", arm.name);
    }
}

#[test]
fn a_transfer_cancelled_on_its_way_is_not_delivered_and_delays_nobody() {
    for mut arm in arms(50) {
        let on_its_way = arm.submit(0, 10, 1);
        arm.submit(0, 10, 2);
        arm.expect(Time::from_ns(10), &[(10, "sent 1")]);
        assert!(arm.cancel(12, on_its_way), "in {}", arm.name);
        arm.expect(ALWAYS, &[(20, "sent 2"), (70, "delivered 2")]);
    }
}

#[test]
fn a_transfer_that_is_over_cannot_be_cancelled() {
    for mut arm in all_arms(5) {
        let over = arm.submit(0, 10, 1);
        arm.expect(ALWAYS, &[(10, "sent 1"), (15, "delivered 1")]);
        assert!(!arm.cancel(15, over), "in {}", arm.name);
        // A later transfer may use its place; the old handle still means the old one.
        let next = arm.submit(20, 10, 2);
        assert!(!arm.cancel(20, over), "in {}", arm.name);
        assert_ne!(over, next, "in {}", arm.name);
        arm.expect(ALWAYS, &[(30, "sent 2"), (35, "delivered 2")]);
    }
}

/// Without a latency it reaches the far end at the time at which it leaves.
#[test]
fn a_cancelled_transfer_emits_nothing_where_there_is_no_latency() {
    for mut arm in all_arms(0) {
        let served = arm.submit(0, 10, 1);
        assert!(arm.cancel(4, served), "in {}", arm.name);
        arm.expect(Time::from_ns(20), &[]);
        arm.submit(20, 10, 2);
        arm.expect(ALWAYS, &[(30, "delivered 2"), (30, "sent 2")]);
    }
}

/// A stage of `ns` nanoseconds.
fn stage(dimension: u32, ns: u64, tag: u64) -> Submission {
    let transfer = Transfer::Stage {
        dimension: DimensionId(dimension),
        occupancy: Time::from_ns(ns),
        latency: Time::ZERO,
    };
    Submission { transfer, tag, sent_tag: None }
}

/// In `links` the way back is a link of its own, and idle.
#[test]
fn a_server_is_busy_while_it_serves() {
    let mut dims = Dims::new(1);
    dims.submit(Time::ZERO, stage(0, 60, 1));
    let mut links = Links::new(&ring_of_two(5));
    let transfer = (arms(5).remove(1).transfer)(60);
    links.submit(Time::ZERO, Submission { transfer, tag: 1, sent_tag: None });
    while dims.next_event(ALWAYS).is_some() || links.next_event(ALWAYS).is_some() {}
    assert_eq!(dims.busy(Time::from_ns(120)), Some(vec![0.5]));
    assert_eq!(links.busy(Time::from_ns(120)), Some(vec![0.25]));
}

#[test]
fn the_rest_of_a_cancelled_service_is_given_back_in_dims() {
    let mut network_model = Dims::new(1);
    let served = network_model.submit(Time::ZERO, stage(0, 10, 1));
    assert!(network_model.cancel(Time::from_ns(4), served));
    assert_eq!(network_model.busy(Time::from_ns(8)), Some(vec![0.5]));
}

#[test]
fn dimensions_serve_side_by_side_in_dims() {
    let mut network_model = Dims::new(2);
    for (dimension, tag) in [(0, 1), (1, 2)] {
        network_model.submit(Time::ZERO, stage(dimension, 10, tag));
    }
    let times: Vec<Time> =
        std::iter::from_fn(|| network_model.next_event(ALWAYS)).map(|e| e.0).collect();
    assert_eq!(times, [Time::from_ns(10); 2]);
    assert_eq!(network_model.busy(Time::from_ns(10)), Some(vec![1.0, 1.0]));
}
