//! Composed networks: what planners see of them, where packets go, and parts that do not meet.

use allrail_core::FieldError;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::{GraphTopology, Planned, read};
use allrail_fabric::{Dimension, Kind};
use serde_json::{Value, json};

use crate::common::NextHops;

/// 8 GPUs of 450 GB/s in a domain, 400 Gb/s each outside, on leaves of 32.
fn pod() -> Value {
    json!({
        "topology": "composed", "domains": 64,
        "inside": { "kind": "switch", "size": 8, "bandwidth": "450 GB/s", "latency": "1 us" },
        "outside": { "topology": "fat_tree", "npus": 512, "levels": 2 },
    })
}

fn with(mut keys: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().expect("a mapping") {
        keys[key] = value.clone();
    }
    keys
}

fn network(keys: Value) -> Box<dyn GraphTopology> {
    read(keys).expect("a valid network")
}

fn refused(keys: Value) -> FieldError {
    read(keys).err().expect("it is refused")
}

/// Kind, size, Gb/s of an NPU, ns.
fn shown(dimensions: &[Dimension]) -> Vec<(Kind, u32, u64, u64)> {
    let of = |d: &Dimension| {
        let gbps = d.aggregate().bytes_per_second() * 8 / 1_000_000_000;
        (d.kind, d.size, gbps, d.latency.as_ps() / 1000)
    };
    dimensions.iter().map(of).collect()
}

fn dimensions(keys: Value) -> Vec<(Kind, u32, u64, u64)> {
    shown(&network(keys).dimensions().expect("a product of dimensions"))
}

const INSIDE: (Kind, u32, u64, u64) = (Kind::Switch, 8, 3600, 1000);

#[test]
fn a_domain_is_cut_away_from_the_leaf_it_stands_at() {
    let between = [(Kind::Switch, 4, 400, 42), (Kind::Switch, 16, 400, 82)];
    assert_eq!(dimensions(pod()), [INSIDE, between[0], between[1]]);
}

/// A rail's ports are the first dimensions outside: 64 domains on two leaves of 32.
#[test]
fn by_rail_only_the_ports_of_one_rail_are_joined() {
    let rails = with(pod(), &json!({ "ports": "by_rail" }));
    assert_eq!(
        dimensions(rails),
        [INSIDE, (Kind::Switch, 32, 400, 42), (Kind::Switch, 2, 400, 82)]
    );
}

/// 72 GPUs in one domain, nodes of four with one interface each.
#[test]
fn a_domain_need_not_be_a_node() {
    let rack = json!({ "kind": "switch", "size": 72, "bandwidth": "900 GB/s", "latency": "1 us" });
    let keys = json!({
        "domains": 8, "inside": rack, "npus_per_port": 4,
        "port_link": { "bandwidth": "64 GB/s", "latency": "300 ns" },
        "outside": { "topology": "torus", "shape": [8, 18], "planes": 4 },
    });
    let keys = with(pod(), &keys);
    // A ring of 18 is within a domain; of the other, two links of 400 Gb/s in each of four planes.
    let found = dimensions(keys.clone());
    assert_eq!(found[0], (Kind::Switch, 72, 7200, 1000));
    assert_eq!(found[1..], [(Kind::Ring, 8, 2 * 4 * 400 / 4, 620)]);
    let network = network(keys);
    assert_eq!(network.counts().npus, 576);
    let graph = network.build().expect("a graph");
    // Each NPU has a quarter of the inside in each of four planes.
    let cables = graph.neighbours(NodeId(0)).iter();
    let rates: Vec<u64> =
        cables.map(|(_, link)| graph.link(*link).wire.bandwidth.bytes_per_second()).collect();
    assert_eq!(rates, [225_000_000_000, 64_000_000_000]);
}

/// What a port's link carries bounds what an NPU has of it.
#[test]
fn a_narrow_way_to_the_port_bounds_the_dimensions_outside() {
    let narrow = json!({ "port_link": { "bandwidth": "100 Gb/s", "latency": "0 ns" } });
    assert_eq!(dimensions(with(pod(), &narrow))[1], (Kind::Switch, 4, 100, 40));
}

/// Four neighbours with a port of their own send through its cables.
#[test]
fn domains_over_cables_have_their_part_of_their_ports() {
    let outside = json!({ "topology": "mesh", "shape": [4, 4], "npus_per_switch": 1, "planes": 2 });
    let keys = with(pod(), &json!({ "domains": 8, "npus_per_port": 4, "outside": outside }));
    let planned = Planned::of(&*network(keys)).expect("a graph");
    let [_, between] = &planned.dimensions[..] else { panic!("two dimensions") };
    assert_eq!(shown(std::slice::from_ref(between))[0].2, 2 * 400 / 4);
    let wiring = between.wiring.as_ref().expect("cables");
    // All eight NPUs of a domain send a byte to those of the next: a port's cable has four in two planes.
    let shift: Vec<(u32, u32, u64)> = (0..8).map(|d| (d, (d + 1) % 8, 1)).collect();
    assert!(wiring.load(&shift).most() >= 1.0);
    let one = wiring.among([(4, 2)]);
    assert_eq!((one.member(6), one.member(7)), (3, 3));
}

fn hops(graph: &Graph, from: u32, to: u32) -> u32 {
    NextHops::new(graph).distance(NodeId(from), NodeId(to))
}

#[test]
fn neighbours_of_a_domain_are_nearer_inside_than_outside() {
    let graph = network(pod()).build().expect("a graph");
    assert_eq!((hops(&graph, 0, 7), hops(&graph, 0, 8), hops(&graph, 0, 256)), (2, 4, 6));
}

/// With a leaf a rail, a message to another rail goes over the inside and its leaf, not over a spine.
#[test]
fn by_rail_the_inside_leads_to_other_rails() {
    let keys = json!({
        "domains": 32, "ports": "by_rail",
        "outside": { "topology": "fat_tree", "npus": 256, "levels": 2 },
    });
    let graph = network(with(pod(), &keys)).build().expect("a graph");
    assert_eq!((hops(&graph, 0, 8), hops(&graph, 0, 9)), (4, 6));
}

#[test]
fn switches_and_cables_outside_are_priced_and_nodes_are_not() {
    let (whole, tree) = (network(pod()), network(pod()["outside"].clone()));
    let (ours, bought) = (whole.counts(), tree.counts());
    assert_eq!((ours.switches, ours.aoc, ours.dac), (bought.switches, bought.aoc, bought.dac));
    assert_eq!(whole.on_board(), 64 + 512);
}

#[test]
fn where_the_outside_has_no_dimensions_it_says_why() {
    let outside = json!({ "topology": "dragonfly", "a": 8, "p": 4, "h": 4, "groups": 16 });
    let network = network(with(pod(), &json!({ "outside": outside })));
    assert!(network.dimensions().expect_err("none").contains("global cables"));
    assert!(network.takes_detours());
    let planned = Planned::of(&*network).expect("a graph");
    assert_eq!(shown(&planned.dimensions), [INSIDE, (Kind::Switch, 64, 400, 42)]);
    assert!(planned.counted.expect("why").contains("global cables"));
    let whole = json!({ "topology": "torus", "shape": [2, 4, 64] });
    let torus = read(with(pod(), &json!({ "outside": whole })));
    let torus = torus.expect("a valid network");
    assert!(torus.dimensions().expect_err("a part of a ring").contains("8 ports of a domain"));
}

#[test]
fn parts_meet_or_are_refused() {
    for (changes, field, told) in [
        (json!({ "domains": 63 }), "fabric.outside", "504 ports"),
        (json!({ "domains": 0 }), "fabric.domains", "below 1"),
        (json!({ "npus_per_port": 2 }), "fabric.outside", "256 ports"),
        (json!({ "npus_per_port": 3 }), "fabric.npus_per_port", "8 NPUs"),
        (json!({ "npus_per_port": 0 }), "fabric.npus_per_port", "8 NPUs"),
        (json!({ "outside": { "topology": "tree" } }), "fabric.outside.topology", "no such"),
        (
            json!({ "outside": { "topology": "fat_tree", "npus": 512, "levels": 4 } }),
            "fabric.outside.levels",
            "2 or 3",
        ),
        (json!({ "outside": 3 }), "fabric.outside.topology", "no such"),
    ] {
        let error = refused(with(pod(), &changes));
        assert_eq!(error.field, field);
        assert!(error.why.contains(told), "{error}");
        assert!(!error.hint.is_empty());
    }
    let mut ring = pod();
    ring["inside"]["size"] = 1.into();
    assert_eq!(refused(ring.clone()).field, "fabric.inside.size");
    ring["inside"]["size"] = 8.into();
    ring["inside"]["contention"] = "none".into();
    assert_eq!(refused(ring).field, "fabric.inside.contention");
}

/// What has failed is named beside `outside`, not within it.
#[test]
fn failed_parts_are_those_of_the_whole() {
    let whole = network(with(pod(), &json!({ "failed_nodes": [3], "failed_links": [[0, 512]] })));
    assert_eq!(whole.build().expect("a graph").npus(), 511);
    let mut within = pod();
    within["outside"]["failed_nodes"] = json!([3]);
    let error = network(within).build().expect_err("a port is missing");
    assert_eq!(error.field, "fabric.outside");
    assert!(error.hint.contains("beside `outside`"));
}
