//! How long the fluid model takes on 1,024 NPUs, beside `SimGrid` 3.32 on the same kind of machine.
//! Nothing fails on a time.
//!
//! `cargo run --release -p allrail-network --example flows_speed`: CPU time of one thread, the least of
//! three runs, tables for the paths included, the graph not.
#![allow(clippy::print_stdout, reason = "a table is what it is for")]

use std::sync::Arc;
use std::time::Instant;

use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::read;
use allrail_network::flows::{Flows, Phases, Splitting};
use allrail_network::{Event, NetworkModel, Submission, Transfer};
use serde_json::{Value, json};

/// CPU seconds of this thread so far; elsewhere than on Linux, wall time.
fn cpu(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

fn least<T>(mut run: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    let times = (0..3).map(|_| {
        let (before, mut count) = (cpu(start), 0.0);
        // The clock of a thread moves in milliseconds.
        while count == 0.0 || cpu(start) - before < 0.05 {
            std::hint::black_box(run());
            count += 1.0;
        }
        (cpu(start) - before) / count
    });
    times.fold(f64::INFINITY, f64::min)
}

/// The largest resident memory of the process so far.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "?".to_owned(), |peak| peak.trim().to_owned())
}

fn row(what: &str, seconds: f64, asked: &str, peer: &str) {
    println!("{what:<58} {seconds:>9.4} s   {asked:<10} {peer:<26} {}", peak());
}

fn graph(keys: Value) -> Arc<Graph> {
    Arc::new(read(keys).expect("a topology").simulated().expect("a graph"))
}

fn shift(npus: u32, by: u32) -> Vec<(NodeId, NodeId)> {
    (0..npus).map(|npu| (NodeId(npu), NodeId((npu + by) % npus))).collect()
}

/// A permutation without fixed points, always the same.
fn permutation(npus: u32) -> Vec<(NodeId, NodeId)> {
    let mut order: Vec<u32> = (0..npus).collect();
    let mut state = 1u64;
    for place in (1..order.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(place, (state >> 33) as usize % place);
    }
    (0..npus).map(|npu| (NodeId(npu), NodeId(order[npu as usize]))).collect()
}

fn submit(network_model: &mut Flows, now: Time, (from, to): (NodeId, NodeId), bytes: u64) {
    let transfer = Transfer::Message {
        dimension: DimensionId(0),
        source: Rank(from.0),
        destination: Rank(to.0),
        bytes: Bytes::new(bytes),
    };
    let tag = u64::from(from.0);
    network_model.submit(now, Submission { transfer, tag, sent_tag: Some(tag) });
}

/// All at once, until the last is delivered.
fn at_once(graph: &Arc<Graph>, pairs: &[(NodeId, NodeId)], bytes: u64) -> Time {
    let mut network_model = Flows::new(graph, Splitting::Single);
    for &pair in pairs {
        submit(&mut network_model, Time::ZERO, pair, bytes);
    }
    let mut last = Time::ZERO;
    while let Some((now, _)) = network_model.next_event(Time::MAX) {
        last = now;
    }
    last
}

/// Every NPU sends to the next, again and again: what a ring all-reduce does.
fn ring(graph: &Arc<Graph>, steps: u32) -> Time {
    let mut network_model = Flows::new(graph, Splitting::Ideal);
    let npus = graph.npus();
    let mut now = Time::ZERO;
    for pair in shift(npus, 1) {
        submit(&mut network_model, now, pair, 1 << 20);
    }
    let mut left = npus * (steps - 1);
    while let Some((time, event)) = network_model.next_event(Time::MAX) {
        now = time;
        if let (Event::Delivered { tag }, true) = (event, left > 0) {
            let from = (tag as u32 + 1) % npus;
            left -= 1;
            submit(&mut network_model, now, (NodeId(from), NodeId((from + 1) % npus)), 1 << 20);
        }
    }
    now
}

fn main() {
    let networks = [
        ("fat tree", json!({ "topology": "fat_tree", "npus": 1024, "levels": 2 })),
        ("dragonfly", json!({ "topology": "dragonfly", "a": 16, "p": 8, "h": 8, "groups": 8 })),
        ("torus", json!({ "topology": "torus", "shape": [32, 32], "board": [2, 2] })),
    ];
    let networks = networks.map(|(name, keys)| (name, graph(keys)));
    println!(
        "{:<58} {:>11}   {:<10} {:<26} peak memory so far",
        "1,024 NPUs", "CPU time", "asked", "SimGrid 3.32"
    );
    let peers = ["11-20 s, 39 MB", "20.9 s", "25.5 s"];
    for ((name, graph), peer) in networks.iter().zip(peers) {
        let seconds = least(|| {
            let mut phases = Phases::new(graph, Splitting::Single, false);
            (1..1024).map(|by| phases.run(&shift(1024, by)).seconds_per_byte).sum::<f64>()
        });
        row(&format!("{name}: shift all-to-all, 1,023 phases, single"), seconds, "1 s", peer);
    }
    for ((name, graph), (asked, peer)) in
        networks.iter().zip([("0.01 s", "0.02 s"), ("0.02 s", "0.3 s"), ("0.05 s", "4.1 s")])
    {
        let pairs = permutation(1024);
        let seconds = least(|| at_once(graph, &pairs, 16 << 20));
        row(&format!("{name}: permutation, 1,024 flows by events"), seconds, asked, peer);
    }
    for (name, graph) in &networks {
        let pairs: Vec<_> = (1..=32).flat_map(|by| shift(1024, 31 * by)).collect();
        let seconds = least(|| at_once(graph, &pairs, 1 << 20));
        let what = format!("{name}: 32 phases in flight, 32,768 flows by events");
        row(&what, seconds, "0.2 s", "0.7-1.9 s");
    }
    for (name, graph) in &networks {
        let seconds = least(|| ring(graph, 512));
        let what = format!("{name}: ring, 524,288 messages by events, ideal");
        row(&what, seconds, "1 s", "-");
    }
    for (name, graph) in &networks {
        let detours = *name == "dragonfly";
        let seconds = least(|| {
            let mut phases = Phases::new(graph, Splitting::Ideal, detours);
            (1..1024).map(|by| phases.run(&shift(1024, by)).seconds_per_byte).sum::<f64>()
        });
        row(&format!("{name}: shift all-to-all, 1,023 phases, ideal"), seconds, "60 s", "-");
    }
    if std::env::args().nth(1).as_deref() != Some("large") {
        println!("`-- large` adds networks of 16,384 NPUs");
        return;
    }
    let large = [
        ("fat tree", json!({ "topology": "fat_tree", "npus": 16384, "levels": 3, "taper": 0.5 })),
        ("Hx2Mesh", json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [64, 64] })),
        ("Hx4Mesh", json!({ "topology": "hammingmesh", "board": [4, 4], "grid": [32, 32] })),
        ("dragonfly", json!({ "topology": "dragonfly", "a": 32, "p": 17, "h": 16, "groups": 30 })),
        ("torus", json!({ "topology": "torus", "shape": [128, 128], "board": [2, 2] })),
        ("direct HyperX", json!({ "topology": "hyperx", "shape": [128, 128] })),
    ];
    for (name, keys) in large {
        let graph = graph(keys);
        let npus = graph.npus();
        let injection = graph.injection(NodeId(0)).bytes_per_second() as f64;
        for splitting in [Splitting::Single, Splitting::Ideal] {
            let start = Instant::now();
            let before = cpu(start);
            let mut phases = Phases::new(&graph, splitting, name == "dragonfly");
            let phase = phases.run(&shift(npus, npus / 3));
            let what = format!(
                "{name}, {npus} NPUs: one shift phase, {splitting:?}: share {:.4} (at most {:.4})",
                1.0 / (phase.seconds_per_byte * injection),
                1.0 / (phase.lower_bound * injection)
            );
            row(&what, cpu(start) - before, "", "-");
        }
    }
}
