//! How fast the network model `packets` is: `cargo run --release -p allrail-network --example packets_speed`.
//!
//! One row for each piece of work that a peer was measured with on 1,024 hosts, its figures beside
//! ours. An argument runs only the rows whose name holds it; a second one is the JSON of
//! `Settings` to run them with. Peak memory is that of the process so
//! far, so for one row's own give its name. CPU seconds are those of one thread.

use std::sync::Arc;
use std::time::Instant;

use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_fabric::topologies;
use allrail_network::packets::Settings;
use allrail_network::{NetworkModel, Packets, Submission, Transfer};
use serde_json::{Value, json};

/// For each NPU: destinations and bytes, in the order in which it sends them.
type Traffic = Vec<Vec<(u32, u64)>>;

struct Row {
    name: &'static str,
    fabric: Value,
    traffic: Traffic,
    /// Messages of an NPU at once.
    window: usize,
    peer: &'static str,
}

const NPUS: u32 = 1024;

/// Phase `i`: everyone sends to the one that is `i` further on.
fn shifts(phases: &(impl Iterator<Item = u32> + Clone), bytes: u64) -> Traffic {
    let of = |npu| phases.clone().map(|i| ((npu + i) % NPUS, bytes)).collect();
    (0..NPUS).map(of).collect()
}

fn in_groups(size: u32, bytes: u64) -> Traffic {
    let of = |npu: u32| {
        let first = npu / size * size;
        (1..size).map(|i| (first + (npu - first + i) % size, bytes)).collect()
    };
    (0..NPUS).map(of).collect()
}

fn permutation(bytes: u64) -> Traffic {
    // A multiplication modulo a power of two permutes; no one keeps its place.
    (0..NPUS).map(|npu| vec![((npu * 421 + 511) % NPUS, bytes)]).collect()
}

fn rows() -> Vec<Row> {
    let tree = || json!({ "topology": "fat_tree", "npus": NPUS, "levels": 2 });
    let pairs = || shifts(&(1..NPUS), 8192);
    let all = NPUS as usize;
    let sixteen = (1..=16).map(|i| i * 61);
    let row = |name, fabric, traffic, window, peer| Row { name, fabric, traffic, window, peer };
    vec![
        row("shift fat tree", tree(), shifts(&sixteen, 128 << 10), 2, "htsim 17 s, 186 MB"),
        row("groups of 64", tree(), in_groups(64, 128 << 10), 8, "htsim 137 s, 707 MB"),
        row("pairs fat tree", tree(), pairs(), all, "merlin 14-18 s, 375 MB"),
        row(
            "pairs dragonfly",
            json!({ "topology": "dragonfly", "a": 16, "p": 8, "h": 8, "groups": 8 }),
            pairs(),
            all,
            "merlin 70-85 s",
        ),
        row(
            "pairs hyperx",
            json!({ "topology": "hyperx", "shape": [32, 32] }),
            pairs(),
            all,
            "merlin 121-162 s, 1.2 GB",
        ),
        row(
            "pairs torus",
            json!({ "topology": "torus", "shape": [32, 32], "board": [2, 2] }),
            pairs(),
            all,
            "merlin 159 s, 523 MB",
        ),
        row("permutation", tree(), permutation(4 << 20), 1, "HTSIM 11.3 s, 57 MB"),
    ]
}

/// Sends everything, an NPU's next message when one of its window has left; returns the end.
fn drive(network_model: &mut Packets, traffic: &Traffic, window: usize) -> Time {
    let mut next = vec![0; traffic.len()];
    let mut submit = |network_model: &mut Packets, now: Time, npu: usize| {
        let Some(&(to, bytes)) = traffic[npu].get(next[npu]) else { return };
        next[npu] += 1;
        let transfer = Transfer::Message {
            dimension: DimensionId(0),
            source: Rank(npu as u32),
            destination: Rank(to),
            bytes: Bytes::new(bytes),
        };
        network_model.submit(now, Submission { transfer, tag: npu as u64, sent_tag: None });
    };
    for _ in 0..window {
        for npu in 0..traffic.len() {
            submit(network_model, Time::ZERO, npu);
        }
    }
    let mut end = Time::ZERO;
    while let Some((now, event)) = network_model.next_event(Time::MAX) {
        if let allrail_network::Event::Delivered { tag } = event {
            submit(network_model, now, tag as usize);
        }
        end = now;
    }
    if let Some(cycle) = network_model.stalled() {
        panic!("{cycle}");
    }
    network_model.check_empty();
    end
}

fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kilobytes.unwrap_or(f64::NAN) / 1e3
}

/// CPU time of this process, in seconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let settings: Settings = std::env::args().nth(2).map_or_else(Settings::default, |text| {
        serde_json::from_str(&text).expect("the second argument is JSON of settings")
    });
    let print = |line: String| {
        use std::io::Write;
        writeln!(std::io::stdout(), "{line}").expect("standard output is open");
    };
    print(format!(
        "{:16} {:>9} {:>9} {:>7} {:>7} {:>8} {:>8} {:>7} {:>8} {:>6}  peer",
        "work",
        "packets",
        "hops",
        "CPU s",
        "wall s",
        "Mhops/s",
        "at once",
        "B each",
        "peak MB",
        "share"
    ));
    for row in rows().into_iter().filter(|row| row.name.contains(&only)) {
        let topology = topologies::read(row.fabric).expect("a fabric");
        let graph = Arc::new(topology.simulated().expect("a graph"));
        let routing = topology.routing(&graph).expect("a routing");
        let before = peak_megabytes();
        let mut network_model =
            Packets::new(Arc::clone(&graph), routing, &settings, 1).expect("a network model");
        let (start, begun) = (Instant::now(), cpu());
        let end = drive(&mut network_model, &row.traffic, row.window);
        let (seconds, wall) = (cpu() - begun, start.elapsed().as_secs_f64());
        let sums = network_model.statistics();
        let peak = peak_megabytes();
        let bytes: u64 = row.traffic.iter().flatten().map(|&(_, bytes)| bytes).sum();
        let injection = graph.injection(allrail_fabric::graph::NodeId(0)).bytes_per_second() as f64;
        let share = bytes as f64 / f64::from(NPUS) / end.as_s() / injection;
        print(format!(
            "{:16} {:>9} {:>9} {seconds:>7.2} {wall:>7.2} {:>8.2} {:>8} {:>7.0} {peak:>8.1} {share:>6.3}  {}",
            row.name,
            sums.packets,
            sums.packet_hops,
            sums.packet_hops as f64 / seconds / 1e6,
            sums.most_at_once,
            (peak - before) * 1e6 / sums.most_at_once as f64,
            row.peer,
        ));
    }
}
