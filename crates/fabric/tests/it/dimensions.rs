//! The dimensions that planners see of a topology, against its graph: same numbers, same bandwidth.

use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::{GraphTopology, read};
use allrail_fabric::{Dimension, Fabric, Kind};
use serde_json::{Value, json};

use crate::common::NextHops;

fn topology(keys: Value) -> Box<dyn GraphTopology> {
    read(keys).expect("a valid topology")
}

fn dimensions(topology: &dyn GraphTopology) -> Vec<Dimension> {
    topology.dimensions().expect("a product of dimensions")
}

/// Kind, size, links, Gb/s of a link and ns of each.
fn shown(dimensions: &[Dimension]) -> Vec<(Kind, u32, u32, u64, f64)> {
    let of = |d: &Dimension| {
        let gbps = d.bandwidth.bytes_per_second() * 8 / 1_000_000_000;
        (d.kind, d.size, d.links, gbps, d.latency.as_ps() as f64 / 1e3)
    };
    dimensions.iter().map(of).collect()
}

#[test]
fn the_small_clusters_of_table_ii() {
    let dims = |keys| shown(&dimensions(&*topology(keys)));
    assert_eq!(
        dims(json!({ "topology": "torus", "shape": [16, 32], "board": [2, 2], "planes": 4 })),
        [(Kind::Ring, 32, 8, 400, 10.5), (Kind::Ring, 16, 8, 400, 10.5)]
    );
    assert_eq!(
        dims(json!({ "topology": "hammingmesh", "board": [4, 2], "grid": [16, 8], "planes": 4 })),
        [(Kind::Ring, 32, 8, 400, 20.5), (Kind::Ring, 32, 8, 400, 10.75)]
    );
    assert_eq!(
        dims(json!({ "topology": "hyperx", "shape": [32, 16], "planes": 4 })),
        [(Kind::FullyConnected, 32, 4, 400, 60.0), (Kind::FullyConnected, 16, 4, 400, 60.0)]
    );
    assert_eq!(
        dims(
            json!({ "topology": "fat_tree", "npus": 1050, "levels": 2, "taper": 0.5, "planes": 16 })
        ),
        [(Kind::Switch, 42, 16, 400, 40.0), (Kind::Switch, 25, 16, 209, 80.0)]
    );
    assert_eq!(
        dims(json!({ "topology": "fat_tree", "npus": 16384, "levels": 3, "planes": 16 })),
        [
            (Kind::Switch, 32, 16, 400, 40.0),
            (Kind::Switch, 32, 16, 400, 80.0),
            (Kind::Switch, 16, 16, 400, 120.0)
        ]
    );
    assert_eq!(
        dims(json!({ "topology": "fat_tree", "npus": 48, "levels": 2 })),
        [(Kind::Switch, 48, 1, 400, 40.0)]
    );
}

/// Every second hop of a line of boards of two is a trace.
#[test]
fn hops_that_are_unlike_carry_their_mean() {
    let mesh = |trace: &str| {
        let wire = |bandwidth: &str| json!({ "bandwidth": bandwidth, "latency": "1 ns" });
        let keys = json!({
            "topology": "hammingmesh", "board": [2, 2], "grid": [4, 3], "planes": 4,
            "link": wire("100 Gb/s"), "board_link": wire(trace),
        });
        dimensions(&*topology(keys))
    };
    let gbps =
        |bandwidth: allrail_core::Bandwidth| bandwidth.bytes_per_second() * 8 / 1_000_000_000;
    for (trace, mean) in [("400 Gb/s", 250), ("100 Gb/s", 100), ("50 Gb/s", 75)] {
        for ring in mesh(trace) {
            let (narrowest, links) = (gbps(ring.bandwidth), u64::from(ring.links));
            assert_eq!(gbps(ring.aggregate()), links * narrowest);
            assert_eq!(gbps(ring.capacity()), links * mean, "{trace}");
        }
    }
}

/// An NPU's neighbours along a dimension in the graph are those that its number says.
#[test]
fn numbers_are_those_of_the_graph() {
    for (keys, hops) in [
        (json!({ "topology": "torus", "shape": [3, 4, 5] }), [1, 1, 1]),
        (json!({ "topology": "torus", "shape": [2, 6] }), [1, 1, 0]),
        (json!({ "topology": "hyperx", "shape": [4, 3] }), [3, 3, 0]),
        (json!({ "topology": "hammingmesh", "board": [1, 1], "grid": [4, 3] }), [2, 2, 0]),
        (json!({ "topology": "hammingmesh", "board": [2, 3], "grid": [3, 4] }), [2, 2, 0]),
        (json!({ "topology": "fat_tree", "npus": 12, "switch_radix": 8, "levels": 2 }), [2, 4, 0]),
        (json!({ "topology": "fat_tree", "npus": 64, "switch_radix": 8, "levels": 3 }), [2, 4, 6]),
    ] {
        let topology = topology(keys.clone());
        let graph = topology.simulated().expect("a graph");
        let paths = NextHops::new(&graph);
        let mut stride = 1;
        for (dimension, most) in dimensions(&*topology).iter().zip(hops) {
            let mut longest = 0;
            for npu in 0..graph.npus() {
                let at = npu / stride % dimension.size;
                let next = npu - at * stride + (at + 1) % dimension.size * stride;
                longest = longest.max(paths.distance(NodeId(npu), NodeId(next)));
            }
            assert_eq!(longest, most, "{keys}");
            stride *= dimension.size;
        }
        assert_eq!(stride, graph.npus(), "{keys}");
    }
}

/// A torus lowered from its dimensions is the torus.
#[test]
fn a_torus_comes_back_as_its_dimensions() {
    for shape in [vec![4u32, 3], vec![2, 5], vec![3, 2, 4]] {
        let torus = topology(json!({ "topology": "torus", "shape": shape }));
        let fabric = Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: dimensions(&*torus),
        };
        let ends = |graph: &Graph| {
            let sorted = |cable: &allrail_fabric::graph::Cable| {
                let [one, other] = cable.ends;
                (one.min(other), one.max(other), cable.wire.bandwidth)
            };
            let mut all: Vec<_> = graph.cables().iter().map(sorted).collect();
            all.sort();
            all
        };
        let (lowered, built) = (fabric.graph().expect("a graph"), torus.build().expect("a graph"));
        assert_eq!(ends(&lowered), ends(&built), "{shape:?}");
    }
}

/// Over all planes: the ports of a torus and a `HammingMesh` are shared out among the dimensions; a
/// fat tree's and a direct `HyperX`'s one port serves each in turn.
#[test]
fn bandwidth_is_what_an_npu_injects() {
    for (keys, all_at_once) in [
        (json!({ "topology": "torus", "shape": [2, 4, 5], "planes": 3 }), true),
        (json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [3, 4], "planes": 4 }), true),
        (json!({ "topology": "hyperx", "shape": [4, 3], "planes": 2 }), false),
        (json!({ "topology": "fat_tree", "npus": 128, "levels": 2, "planes": 2 }), false),
    ] {
        let topology = topology(keys.clone());
        let planes = topology.counts().planes;
        let graph = topology.simulated().expect("a graph");
        let injected = graph.injection(NodeId(0)).checked_mul(planes).expect("in range");
        let dimensions = dimensions(&*topology);
        if all_at_once {
            let fabric =
                Fabric { memory_bandwidth: None, window: None, name: String::new(), dimensions };
            assert_eq!(fabric.validate(), Ok(()));
            assert_eq!(fabric.total_bandwidth(), injected, "{keys}");
        } else {
            assert!(dimensions.iter().all(|d| d.aggregate() == injected), "{keys}");
        }
    }
}

#[test]
fn others_say_why_they_have_none() {
    for (keys, why) in [
        (json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9 }), "groups"),
        (json!({ "topology": "mesh", "shape": [3, 3] }), "line of switches"),
        (json!({ "topology": "fat_tree", "npus": 1024, "levels": 2, "taper": 0.5 }), "42"),
        (
            json!({ "topology": "fat_tree", "npus": 48, "switch_radix": 8, "levels": 3,
                    "failed_nodes": [1] }),
            "no longer alike",
        ),
        (json!({ "topology": "fat_tree", "npus": 72, "switch_radix": 8, "levels": 3 }), "pods"),
        (
            json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [3, 3],
                    "failed_boards": [[0, 0]] }),
            "no longer alike",
        ),
        (
            json!({ "topology": "graph", "npus": ["a", "b"],
                    "links": [{ "from": "a", "to": "b" }] }),
            "one's own",
        ),
    ] {
        let told = topology(keys.clone()).dimensions().expect_err("no dimensions");
        assert!(told.contains(why), "{keys}: {told}");
    }
}
