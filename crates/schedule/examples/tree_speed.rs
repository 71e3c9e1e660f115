//! How long spanning trees at the bound take on one core.
//!
//! ```console
//! $ cargo run --release -p allrail-schedule --example tree_speed
//! ```

use std::time::Instant;

use allrail_fabric::graph::Graph;
use allrail_fabric::topologies::read;
use allrail_schedule::cuts::Network;
use allrail_schedule::trees::{Tree, forest};
use serde_json::{Value, json};

/// CPU seconds of this thread so far; elsewhere than on Linux, wall time.
fn cpu(since: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = stat.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// The largest resident memory of the process so far.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "?".to_owned(), |peak| peak.trim().to_owned())
}

fn graph(keys: Value) -> Graph {
    read(keys).expect("a topology").simulated().expect("a graph")
}

fn depth(tree: &Tree, nodes: usize) -> u32 {
    let mut depths = vec![0; nodes];
    for edge in &tree.edges {
        depths[edge.to as usize] = depths[edge.from as usize] + 1;
    }
    depths.into_iter().max().unwrap_or(0)
}

fn main() {
    let torus = |shape: [u32; 2]| {
        graph(json!({"topology": "torus", "shape": shape, "failed_links": [[0, 1]]}))
    };
    let tree = |npus: u32| {
        let keys = json!({
            "topology": "fat_tree", "npus": npus, "switch_radix": 32, "levels": 2, "taper": 0.5
        });
        graph(keys)
    };
    let start = Instant::now();
    table(start, "torus less a cable", [[4, 4], [8, 16], [32, 32]].map(torus));
    table(start, "tapered fat tree", [64, 512].map(tree));
}

#[expect(clippy::print_stdout, reason = "what it is for")]
fn table<const N: usize>(start: Instant, what: &str, graphs: [Graph; N]) {
    println!(
        "\n| {what}, NPUs | time (s) | trees | deepest | memory |\n|---:|---:|---:|---:|---:|"
    );
    for graph in graphs {
        let network = Network::of_graph(&graph, 1);
        let members: Vec<u32> = (0..graph.npus()).collect();
        let begin = cpu(start);
        let found = forest(&network, &members).expect("it is whole");
        let seconds = cpu(start) - begin;
        let deepest = found.trees.iter().map(|tree| depth(tree, network.nodes())).max();
        println!(
            "| {} | {seconds:.3} | {} | {} | {} |",
            members.len(),
            found.trees.len(),
            deepest.unwrap_or(0),
            peak()
        );
    }
}
