//! Small networks, traffic on them, and a driver, for the tests of `packets`.

use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, DimensionId, Rank, Time};
use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::routing::{Adaptive, Routing};
use allrail_network::packets::Settings;
use allrail_network::{Event, NetworkModel, Packets, Submission, Transfer, TransferId};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) at: Time,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) bytes: u64,
}

/// When a message had left, and when it had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) sent: Time,
    pub(crate) delivered: Time,
}

pub(crate) fn message(at: u64, source: u32, destination: u32, bytes: u64) -> Message {
    Message { at: Time::from_ps(at), source, destination, bytes }
}

pub(crate) fn wire(gbps: u64, latency_ps: u64) -> Wire {
    let bandwidth = Bandwidth::from_bytes_per_second(gbps * 125_000_000).expect("not zero");
    Wire { bandwidth, latency: Time::from_ps(latency_ps) }
}

/// Two NPUs, joined by cables of (Gb/s, ps) with switches between.
pub(crate) fn chain(cables: &[(u64, u64)]) -> Graph {
    let mut builder = Builder::new(2);
    let mut from = NodeId(0);
    for (i, &(gbps, latency)) in cables.iter().enumerate() {
        let to = if i + 1 == cables.len() { NodeId(1) } else { builder.switch() };
        builder.cable(from, to, CableKind::Dac, wire(gbps, latency)).expect("a cable");
        from = to;
    }
    builder.build().expect("a graph")
}

pub(crate) fn line(switches: u64, gbps: u64, latency_ps: u64) -> Graph {
    chain(&vec![(gbps, latency_ps); switches as usize + 1])
}

/// Cable i joins NPU i to i + 1.
pub(crate) fn ring(npus: u32) -> Graph {
    let mut builder = Builder::new(npus);
    for npu in 0..npus {
        let next = NodeId((npu + 1) % npus);
        builder.cable(NodeId(npu), next, CableKind::Dac, Wire::cable()).expect("a cable");
    }
    builder.build().expect("a graph")
}

/// Leaves of `down` NPUs, each joined to all spines; the cables have the wires in turn.
pub(crate) fn tree(leaves: u32, down: u32, spines: u32, wires: &[Wire]) -> Graph {
    let mut builder = Builder::new(leaves * down);
    let tops: Vec<NodeId> = (0..spines).map(|_| builder.switch()).collect();
    let mut wires = wires.iter().copied().cycle();
    for leaf in 0..leaves {
        let here = builder.switch();
        for npu in 0..down {
            let wire = wires.next().expect("endless");
            builder.cable(NodeId(leaf * down + npu), here, CableKind::Dac, wire).expect("a cable");
        }
        for &top in &tops {
            let wire = wires.next().expect("endless");
            builder.cable(here, top, CableKind::Aoc, wire).expect("a cable");
        }
    }
    builder.build().expect("a graph")
}

/// NPUs that all pass on: a square grid without wrap-around.
pub(crate) fn grid(side: u32, wires: &[Wire]) -> Graph {
    let mut builder = Builder::new(side * side);
    let mut wires = wires.iter().copied().cycle();
    for npu in 0..side * side {
        let right = (npu % side + 1 < side).then_some(npu + 1);
        let below = (npu + side < side * side).then_some(npu + side);
        for other in [right, below].into_iter().flatten() {
            let wire = wires.next().expect("endless");
            builder.cable(NodeId(npu), NodeId(other), CableKind::Pcb, wire).expect("a cable");
        }
    }
    builder.build().expect("a graph")
}

/// Messages carry their number as both tags.
pub(crate) fn submit(network_model: &mut Packets, tag: u64, message: &Message) -> TransferId {
    let transfer = Transfer::Message {
        dimension: DimensionId(0),
        source: Rank(message.source),
        destination: Rank(message.destination),
        bytes: Bytes::new(message.bytes),
    };
    network_model.submit(message.at, Submission { transfer, tag, sent_tag: Some(tag) })
}

/// Runs messages that are sorted by time, with minimal adaptive routing, and checks the end.
pub(crate) fn run_network_model(
    graph: &Arc<Graph>,
    settings: &Settings,
    messages: &[Message],
) -> (Vec<Times>, Packets) {
    let routing = Box::new(Adaptive::new(graph).expect("few channels"));
    let mut network_model =
        Packets::new(Arc::clone(graph), routing, settings, 0).expect("a network model");
    let mut times = vec![Times { sent: Time::MAX, delivered: Time::MAX }; messages.len()];
    let mut last = (Time::ZERO, 0);
    let mut take = |network_model: &mut Packets, until: Time| {
        while let Some((now, event)) = network_model.next_event(until) {
            let (place, class) = match event {
                Event::Delivered { tag } => (&mut times[tag as usize].delivered, 0),
                Event::Sent { tag } => (&mut times[tag as usize].sent, 1),
            };
            assert_eq!(*place, Time::MAX, "told twice");
            assert!(last <= (now, class), "told out of order");
            (*place, last) = (now, (now, class));
        }
    };
    for (tag, message) in (0..).zip(messages) {
        // The network model has not moved beyond what it was asked for.
        take(&mut network_model, message.at);
        submit(&mut network_model, tag, message);
    }
    take(&mut network_model, Time::MAX);
    assert_eq!(network_model.stalled(), None);
    network_model.check_empty();
    (times, network_model)
}

pub(crate) fn run(graph: &Arc<Graph>, settings: &Settings, messages: &[Message]) -> Vec<Times> {
    run_network_model(graph, settings, messages).0
}

fn any_wire() -> impl Strategy<Value = Wire> {
    // Odd picoseconds, so that two things rarely happen at once.
    (1u64..40_000, 3_000_000_017u64..60_000_000_000).prop_map(|(latency, bandwidth)| Wire {
        bandwidth: Bandwidth::from_bytes_per_second(bandwidth).expect("not zero"),
        latency: Time::from_ps(latency),
    })
}

fn any_graph() -> impl Strategy<Value = Graph> {
    let wires = prop::collection::vec(any_wire(), 1..9);
    (0u32..3, 2u32..4, 1u32..4, 1u32..4, wires).prop_map(|(kind, leaves, down, spines, wires)| {
        match kind {
            0 => tree(leaves, down, spines, &wires),
            1 => tree(1, leaves + down, 1, &wires),
            _ => grid(leaves, &wires),
        }
    })
}

/// A network, settings and messages of `bytes`, sorted by time. Buffers hold 1 to 4 packets a channel.
pub(crate) fn any_case(
    bytes: impl Strategy<Value = u64>,
) -> impl Strategy<Value = (Graph, Settings, Vec<Message>)> {
    let draws = (0u64..600_000, any::<u32>(), any::<u32>(), bytes);
    let messages = prop::collection::vec(draws, 1..40);
    let ports = (500u64..3_000, 1u64..400, 0u64..60_000, 101u32..300, 0u64..4);
    (any_graph(), ports, messages).prop_map(|(graph, ports, draws)| {
        let (packet, flit, latency, speedup, room) = ports;
        let channels = Adaptive::new(&graph).expect("few channels").channels();
        let settings = Settings {
            packet: Some(Bytes::new(packet)),
            buffer: Bytes::new(packet * (room + 1) * u64::from(channels)),
            flit: Bytes::new(flit),
            buffer_latency: Time::from_ps(latency),
            crossbar_speedup: f64::from(speedup) / 100.0,
            ..Settings::default()
        };
        let npus = graph.npus();
        let mut messages: Vec<Message> = draws
            .into_iter()
            .map(|(at, source, other, bytes)| {
                let source = source % npus;
                let destination = (source + 1 + other % (npus - 1)) % npus;
                message(at, source, destination, bytes)
            })
            .collect();
        messages.sort_by_key(|message| message.at);
        (graph, settings, messages)
    })
}
