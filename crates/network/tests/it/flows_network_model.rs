//! The network model `flows`: against closed forms, against `links`, and by hand.

use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, DimensionId, Rank, Time};
use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::topologies::read;
use allrail_fabric::{Dimension, Fabric, Kind};
use allrail_network::flows::{Flows, Phases, Splitting};
use allrail_network::{Event, Links, NetworkModel, Submission, Transfer};
use proptest::prelude::*;
use serde_json::{Value, json};

const ALWAYS: Time = Time::MAX;
const ALL: [Splitting; 4] =
    [Splitting::Ideal, Splitting::Minimal, Splitting::Ecmp, Splitting::Single];

fn graph(keys: Value) -> Arc<Graph> {
    Arc::new(read(keys).expect("a topology").simulated().expect("a graph"))
}

fn small() -> Vec<(&'static str, Arc<Graph>)> {
    vec![
        ("torus", graph(json!({ "topology": "torus", "shape": [4, 6] }))),
        (
            "tree",
            graph(json!({ "topology": "fat_tree", "npus": 24, "switch_radix": 8, "levels": 2,
                          "taper": 0.5 })),
        ),
        (
            "mesh",
            graph(json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [3, 2],
                          "switch_radix": 8 })),
        ),
        (
            "dragonfly",
            graph(json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 5,
                          "switch_radix": 8 })),
        ),
        ("hyperx", graph(json!({ "topology": "hyperx", "shape": [4, 4], "switch_radix": 16 }))),
    ]
}

fn message(dimension: u32, source: u32, destination: u32, bytes: u64) -> Transfer {
    Transfer::Message {
        dimension: DimensionId(dimension),
        source: Rank(source),
        destination: Rank(destination),
        bytes: Bytes::new(bytes),
    }
}

fn submit(network_model: &mut dyn NetworkModel, now: Time, transfer: Transfer, tag: u64) {
    network_model.submit(now, Submission { transfer, tag, sent_tag: Some(tag) });
}

fn events(network_model: &mut dyn NetworkModel) -> Vec<(Time, Event)> {
    std::iter::from_fn(|| network_model.next_event(ALWAYS)).collect()
}

/// When the last byte of all leaves.
fn last_sent(events: &[(Time, Event)]) -> Time {
    let sent = events.iter().filter(|(_, event)| matches!(event, Event::Sent { .. }));
    sent.map(|(time, _)| *time).max().expect("a message")
}

fn pairs(npus: u32, seed: &[u32]) -> Vec<(NodeId, NodeId)> {
    let pair = |(number, &by): (usize, &u32)| {
        let from = number as u32 % npus;
        (NodeId(from), NodeId((from + 1 + by % (npus - 1)) % npus))
    };
    seed.iter().enumerate().map(pair).collect()
}

/// The theorem of `phase.rs`, with and without a splitting that is optimised.
fn phase_is_what_events_say(
    name: &str,
    graph: &Arc<Graph>,
    pairs: &[(NodeId, NodeId)],
) -> Result<(), TestCaseError> {
    const BYTES: u64 = 1 << 20;
    for splitting in ALL {
        let phase = Phases::new(graph, splitting, true).run(pairs);
        let mut network_model = Flows::with_detours(graph, splitting, true);
        for (tag, &(source, destination)) in (0..).zip(pairs) {
            submit(&mut network_model, Time::ZERO, message(0, source.0, destination.0, BYTES), tag);
        }
        let events = events(&mut network_model);
        prop_assert_eq!(events.len(), 2 * pairs.len());
        let by_events = last_sent(&events).as_s() / BYTES as f64;
        let ratio = by_events / phase.seconds_per_byte;
        // Two searches for the best end within 1 % of it each.
        let margin = match splitting {
            Splitting::Ecmp | Splitting::Single => 1e-6,
            _ => 0.011,
        };
        prop_assert!((ratio - 1.0).abs() < margin, "{} {:?}: {}", name, splitting, ratio);
        prop_assert!(phase.lower_bound <= phase.seconds_per_byte * (1.0 + 1e-9));
        prop_assert!(phase.lower_bound >= 0.99 * phase.seconds_per_byte);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_last_of_a_phase_ends_when_its_most_loaded_link_is_done(
        seed in prop::collection::vec(0..1000u32, 1..40)
    ) {
        for (name, graph) in small() {
            phase_is_what_events_say(name, &graph, &pairs(graph.npus(), &seed))?;
        }
    }

    /// Where no two messages share a link, a fluid is a server.
    #[test]
    fn equals_links_on_one_hop_where_nothing_shares(
        bytes in prop::collection::vec(0..1u64 << 33, 8),
        forwards in prop::collection::vec(any::<bool>(), 8),
        bandwidth in 1..1u64 << 38,
    ) {
        let size = 8;
        let bandwidth = Bandwidth::from_bytes_per_second(2 * bandwidth).expect("positive");
        let dimension = Dimension::new(Kind::Ring, size, 2, bandwidth, Time::from_ns(300));
        let fabric = Fabric { memory_bandwidth: None, window: None, name: "ring".into(), dimensions: vec![dimension.clone()] };
        let topology = allrail_fabric::kinds::of(dimension.kind);
        let wire = Wire { bandwidth: topology.link_bandwidth(&dimension), latency: dimension.latency };
        let mut builder = Builder::new(size);
        for npu in 0..size {
            let next = NodeId((npu + 1) % size);
            builder.cable(NodeId(npu), next, CableKind::Dac, wire).expect("a cable");
        }
        let graph = Arc::new(builder.build().expect("a ring"));
        let run = |network_model: &mut dyn NetworkModel| {
            for (npu, (&bytes, &forwards)) in (0..size).zip(bytes.iter().zip(&forwards)) {
                let to = if forwards { npu + 1 } else { npu + size - 1 } % size;
                submit(network_model, Time::ZERO, message(0, npu, to, bytes), u64::from(npu));
            }
            let mut events: Vec<String> = events(network_model).iter().map(|e| format!("{e:?}")).collect();
            events.sort();
            events
        };
        let expected = run(&mut Links::new(&fabric));
        for splitting in ALL {
            prop_assert_eq!(&run(&mut Flows::new(&graph, splitting)), &expected);
        }
    }
}

/// A switch with three NPUs; 1 byte a nanosecond, 5 ns a cable.
fn star() -> Arc<Graph> {
    let wire = Wire {
        bandwidth: Bandwidth::from_bytes_per_second(1_000_000_000).expect("positive"),
        latency: Time::from_ns(5),
    };
    let mut builder = Builder::new(3);
    let hub = builder.switch();
    for npu in 0..3 {
        builder.cable(NodeId(npu), hub, CableKind::Dac, wire).expect("a cable");
    }
    Arc::new(builder.build().expect("a star"))
}

#[test]
fn who_comes_later_takes_a_share_and_gives_it_back() {
    let mut network_model = Flows::new(&star(), Splitting::Single);
    let ns = Time::from_ns;
    submit(&mut network_model, ns(0), message(0, 0, 1, 100), 1);
    assert_eq!(network_model.next_time(), Some(ns(100)));
    assert_eq!(network_model.next_event(ns(40)), None);
    // 60 bytes to go; from now on half the speed each.
    submit(&mut network_model, ns(40), message(1, 2, 1, 20), 2);
    let sent = |tag| Event::Sent { tag };
    let delivered = |tag| Event::Delivered { tag };
    assert_eq!(
        events(&mut network_model),
        [(ns(80), sent(2)), (ns(90), delivered(2)), (ns(120), sent(1)), (ns(130), delivered(1))]
    );
}

#[test]
fn a_withdrawn_message_leaves_its_share_to_the_others() {
    let mut network_model = Flows::new(&star(), Splitting::Ecmp);
    let ns = Time::from_ns;
    let one = Submission { transfer: message(0, 0, 1, 100), tag: 1, sent_tag: None };
    submit(&mut network_model, ns(0), message(0, 2, 1, 100), 2);
    let one = network_model.submit(ns(0), one);
    assert_eq!(network_model.next_event(ns(60)), None);
    assert!(network_model.cancel(ns(60), one));
    assert!(!network_model.cancel(ns(60), one));
    assert_eq!(network_model.next_time(), Some(ns(130)));
    let tags: Vec<Time> = events(&mut network_model).iter().map(|(time, _)| *time).collect();
    assert_eq!(tags, [ns(130), ns(140)]);
}

#[test]
fn nothing_to_send_takes_its_latency() {
    for splitting in ALL {
        let mut network_model = Flows::new(&star(), splitting);
        submit(&mut network_model, Time::ZERO, message(0, 0, 1, 0), 1);
        let expected = [
            (Time::ZERO, Event::Sent { tag: 1 }),
            (Time::from_ns(10), Event::Delivered { tag: 1 }),
        ];
        assert_eq!(events(&mut network_model), expected);
    }
}

/// Whatever starts and ends when, every message is told of twice, and no link carries more than it can.
#[test]
fn nothing_is_lost_among_messages_of_all_sizes() {
    for (name, graph) in small() {
        for splitting in ALL {
            let npus = graph.npus();
            let mut network_model = Flows::new(&graph, splitting);
            let (mut told, mut next, mut state) = (0, 0u32, 1u64);
            let mut now = Time::ZERO;
            let mut bytes = 0;
            while next < 200 || network_model.next_time().is_some() {
                if next < 200 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let draw = (state >> 33) as u32;
                    let (from, by) = (draw % npus, 1 + draw / npus % (npus - 1));
                    let size = u64::from(draw % 100_000);
                    bytes += size;
                    let message = message(0, from, (from + by) % npus, size);
                    submit(&mut network_model, now, message, u64::from(next));
                    next += 1;
                }
                let horizon =
                    if next < 200 { Time::from_ps(now.as_ps() + 200_000) } else { Time::MAX };
                while let Some((time, _)) = network_model.next_event(horizon) {
                    assert!(time >= now, "time goes back in {name}");
                    (now, told) = (time, told + 1);
                }
                if next < 200 {
                    now = horizon;
                }
            }
            assert_eq!(told, 400, "{name}, {splitting:?}");
            let all: f64 = (0..npus).map(|npu| graph.injection(NodeId(npu)).gbps()).sum();
            assert!(bytes as f64 <= now.as_s() * all * 1e9 / 8.0, "{name}: faster than its cables");
        }
    }
}

/// Messages of a stream to one NPU leave one after the other; those of others share as ever.
#[test]
fn a_stream_s_messages_leave_one_after_the_other() {
    let submission = |destination, tag| {
        let transfer = message(0, 0, destination, 100);
        Submission { transfer, tag, sent_tag: None }
    };
    let all = |streams: [Option<u64>; 3]| {
        let mut network_model = Flows::new(&star(), Splitting::Single);
        for (tag, stream) in (0..).zip(streams) {
            match stream {
                Some(stream) => {
                    network_model.submit_in_stream(Time::ZERO, submission(1, tag), stream)
                }
                None => network_model.submit(Time::ZERO, submission(1, tag)),
            };
        }
        let mut ends = [Time::ZERO; 3];
        while let Some((now, event)) = network_model.next_event(Time::MAX) {
            let Event::Delivered { tag } = event else { continue };
            ends[tag as usize] = now;
        }
        ends
    };
    let together = all([None; 3]);
    assert_eq!(
        (together[0], together[1]),
        (together[2], together[2]),
        "all share, and end together"
    );
    let after = all([Some(7); 3]);
    assert_eq!(after[2], together[2], "the link is as busy");
    assert!(after[0] < after[1] && after[1] < after[2], "{after:?}");
    assert_eq!(after[1].as_ps() - after[0].as_ps(), after[2].as_ps() - after[1].as_ps());
    let two = all([Some(7), Some(8), None]);
    assert_eq!(two, together, "streams do not wait for each other");
    // One that is withdrawn lets the next begin, and one that waits is not sent.
    let mut network_model = Flows::new(&star(), Splitting::Single);
    let ids =
        [0, 1, 2].map(|tag| network_model.submit_in_stream(Time::ZERO, submission(1, tag), 7));
    assert!(network_model.cancel(Time::ZERO, ids[0]) && network_model.cancel(Time::ZERO, ids[1]));
    let mut heard = Vec::new();
    while let Some((now, event)) = network_model.next_event(Time::MAX) {
        heard.push((now, event));
    }
    assert_eq!(heard, [(after[0], Event::Delivered { tag: 2 })]);
}
