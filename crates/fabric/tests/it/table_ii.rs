//! The sixteen clusters of Table II of `HammingMesh` (SC'22, arXiv 2209.01346).
//!
//! Costs and diameters are the printed ones. Switches and cables are those of the paper's appendix
//! with two corrections, without which its own printed prices do not come out: 391 leaves of 42 NPUs
//! in the large half-tapered tree (its text has 390, too few), and 12,288 switches in the large
//! `HyperX` (its text has twice as many). Torus cables count as optical for the same reason.

use allrail_fabric::cost::Prices;
use allrail_fabric::graph::{CableKind, Graph, NodeId, measure};
use allrail_fabric::topologies::{GraphTopology, read};
use serde_json::{Value, json};

struct Row {
    name: &'static str,
    keys: Value,
    /// Switches, AoC, DAC.
    parts: [u64; 3],
    /// As printed, and its last printed digit in dollars.
    cost: (f64, f64),
    /// As printed.
    diameter: u32,
}

fn row(name: &'static str, keys: Value, parts: [u64; 3], cost: (f64, f64), diameter: u32) -> Row {
    Row { name, keys, parts, cost, diameter }
}

fn fat_tree(npus: u32, levels: u32, taper: f64) -> Value {
    json!({ "topology": "fat_tree", "npus": npus, "levels": levels, "taper": taper, "planes": 16 })
}

fn mesh(side: u32, grid: u32) -> Value {
    let (board, grid) = ([side, side], [grid, grid]);
    json!({ "topology": "hammingmesh", "board": board, "grid": grid, "planes": 4 })
}

fn dragonfly(a: u32, p: u32, h: u32, groups: u32) -> Value {
    json!({ "topology": "dragonfly", "a": a, "p": p, "h": h, "groups": groups, "planes": 16 })
}

fn square(topology: &str, side: u32) -> Value {
    let mut keys = json!({ "topology": topology, "shape": [side, side], "planes": 4 });
    if topology == "torus" {
        keys["board"] = json!([2, 2]);
    }
    keys
}

#[rustfmt::skip]
fn table() -> Vec<Row> {
    vec![
        row("small fat tree", fat_tree(1024, 2, 0.0), [768, 16_384, 16_384], (25.3, 1e5), 4),
        row("small fat tree, 50 %", fat_tree(1024, 2, 0.5), [544, 8_800, 16_800], (17.6, 1e5), 4),
        row("small fat tree, 75 %", fat_tree(1024, 2, 0.75), [416, 4_368, 17_136], (13.2, 1e5), 4),
        row("small dragonfly", dragonfly(16, 8, 8, 8), [1_024, 8_192, 30_720], (27.9, 1e5), 3),
        row("small HyperX", square("hyperx", 32), [256, 8_192, 8_192], (10.8, 1e5), 4),
        row("small Hx2Mesh", mesh(2, 16), [128, 4_096, 4_096], (5.4, 1e5), 4),
        row("small Hx4Mesh", mesh(4, 8), [64, 2_048, 2_048], (2.7, 1e5), 8),
        row("small torus", square("torus", 32), [0, 4_096, 0], (2.5, 1e5), 32),
        row("large fat tree", fat_tree(16_384, 3, 0.0), [20_480, 524_288, 262_144], (680.0, 1e6), 6),
        row("large fat tree, 50 %", fat_tree(16_384, 3, 0.5), [12_720, 275_264, 262_752], (419.0, 1e6), 6),
        row("large fat tree, 75 %", fat_tree(16_384, 3, 0.75), [8_304, 133_952, 262_752], (271.0, 1e6), 6),
        row("large dragonfly", dragonfly(32, 17, 16, 30), [15_360, 122_880, 499_200], (429.0, 1e6), 5),
        row("large HyperX", square("hyperx", 128), [12_288, 393_216, 131_072], (448.0, 1e6), 8),
        row("large Hx2Mesh", mesh(2, 64), [6_144, 196_608, 65_536], (224.0, 1e6), 8),
        row("large Hx4Mesh", mesh(4, 32), [1_024, 32_768, 32_768], (43.3, 1e5), 8),
        row("large torus", square("torus", 128), [0, 65_536, 0], (39.5, 1e5), 128),
    ]
}

fn topology(keys: &Value) -> Box<dyn GraphTopology> {
    read(keys.clone()).expect("a valid topology")
}

fn graph(keys: &Value) -> Graph {
    topology(keys).build().expect("a connected graph")
}

#[test]
fn all_sixteen_costs_to_the_printed_digits() {
    for row in table() {
        let counts = topology(&row.keys).counts();
        assert_eq!([counts.switches, counts.aoc, counts.dac], row.parts, "{}", row.name);
        let dollars = Prices::default().cost(&counts).dollars();
        let (printed, digit) = row.cost;
        let rounded = (dollars / digit).round() * digit / 1e6;
        assert!((rounded - printed).abs() < 1e-6, "{}: {rounded} M$, not {printed}", row.name);
        let npus = match row.name {
            "large dragonfly" => 16_320,
            name if name.starts_with("small") => 1_024,
            _ => 16_384,
        };
        assert_eq!(counts.npus, npus, "{}", row.name);
    }
}

/// The small dragonfly's 3 counts hops between switches, and only if all 64 were adjacent.
#[test]
fn fifteen_diameters_by_formula() {
    for row in table() {
        let expected = if row.name == "small dragonfly" { 4 } else { row.diameter };
        assert_eq!(topology(&row.keys).diameter_formula(), Some(expected), "{}", row.name);
    }
}

/// The merged switch that is costed shortens the small Hx4Mesh to 6; a switch per row gives 8.
#[test]
fn fourteen_diameters_by_search_and_two_exceptions() {
    for row in table() {
        let expected = match row.name {
            "small dragonfly" => 4,
            "small Hx4Mesh" => 6,
            _ => row.diameter,
        };
        assert_eq!(measure::diameter(&graph(&row.keys)), expected, "{}", row.name);
    }
    let mut separate = mesh(4, 8);
    separate["rows"] = json!("per_accelerator");
    assert_eq!(measure::diameter(&graph(&separate)), 8);
}

/// One plane holds the parts that are counted; tapered trees have leaf ports without an NPU.
#[test]
fn graphs_have_the_parts_that_are_counted() {
    for row in table() {
        let (counts, graph) = (topology(&row.keys).counts(), graph(&row.keys));
        assert_eq!(graph.switches() as u64 * counts.planes, counts.switches, "{}", row.name);
        let [mut aoc, mut dac, mut pcb] = [0; 3];
        for cable in graph.cables() {
            match cable.kind {
                CableKind::Aoc => aoc += counts.planes,
                CableKind::Dac => dac += counts.planes,
                CableKind::Pcb => pcb += counts.planes,
            }
        }
        assert_eq!((aoc, pcb), (counts.aoc, counts.pcb), "{}", row.name);
        let unused = if row.name.contains('%') { counts.dac - dac } else { 0 };
        assert_eq!(dac + unused, counts.dac, "{}", row.name);
        for node in (graph.npus()..graph.nodes() as u32).map(NodeId) {
            assert!(graph.neighbours(node).len() <= 64, "{}: a switch has 64 ports", row.name);
        }
        for npu in (0..graph.npus()).map(NodeId) {
            assert_eq!(graph.neighbours(npu).len() as u64, counts.ports, "{}", row.name);
        }
    }
}

/// a·x·y for `HammingMesh`; 272 and 132 of 512 for tapered trees; 64 for the torus (§3 of the paper
/// and its appendix). The paper has none for the dragonfly.
#[test]
fn half_plane_cuts() {
    let small = [512, 272, 132, 0, 1024, 512, 256, 64];
    for (row, cut) in table().iter().zip(small) {
        if cut > 0 {
            assert_eq!(topology(&row.keys).half_plane_cut_links(), Some(cut), "{}", row.name);
        }
    }
    assert_eq!(topology(&mesh(2, 64)).half_plane_cut_links(), Some(2 * 64 * 64));
    assert_eq!(topology(&mesh(4, 32)).half_plane_cut_links(), Some(4 * 32 * 32));
}
