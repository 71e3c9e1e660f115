//! Laws of all topologies, over the list: a new one is tested as soon as it is in it.

use allrail_fabric::graph::{CableKind, NodeId, measure};
use allrail_fabric::routing::Dependencies;
use allrail_fabric::topologies::{ALL, GraphTopology, read};
use serde_json::Value;

use crate::common::NextHops;

/// Every example of every topology, with its keys.
fn examples() -> Vec<(Value, Box<dyn GraphTopology>)> {
    let keys = ALL.iter().flat_map(|entry| {
        assert!(!entry.examples.is_empty(), "`{}` has no examples", entry.tag);
        entry.examples.iter().map(|text| {
            let mut keys: Value = serde_json::from_str(text).expect("JSON");
            keys["topology"] = entry.tag.into();
            keys
        })
    });
    keys.map(|keys| {
        let topology = read(keys.clone()).unwrap_or_else(|error| panic!("{keys}: {error}"));
        (keys, topology)
    })
    .collect()
}

#[test]
fn a_topology_has_the_tag_by_which_it_is_read() {
    for (keys, topology) in examples() {
        assert_eq!(keys["topology"], topology.tag());
    }
}

/// What is counted in closed form is what is built, in every plane. (A fat tree whose last leaf is not full
/// is counted with a full one: it is bought whole. Its examples fill theirs.)
#[test]
fn counts_are_those_of_the_graph() {
    for (keys, topology) in examples() {
        let (counts, graph) = (topology.counts(), topology.build().expect("a graph"));
        let planes = counts.planes;
        let cables =
            |kind| graph.cables().iter().filter(|cable| cable.kind == kind).count() as u64 * planes;
        assert_eq!(counts.npus, u64::from(graph.npus()), "{keys}");
        let bought = graph.switches() as u64 - topology.on_board();
        assert_eq!(counts.switches, bought * planes, "{keys}");
        let kinds = [CableKind::Aoc, CableKind::Dac, CableKind::Pcb].map(cables);
        assert_eq!([counts.aoc, counts.dac, counts.pcb], kinds, "{keys}");
        let ports = (0..graph.npus()).map(|npu| {
            let near = graph.cables().iter().filter(|cable| cable.ends.contains(&NodeId(npu)));
            near.count() as u64
        });
        assert_eq!(Some(counts.ports), ports.max(), "{keys}");
    }
}

#[test]
fn no_two_npus_are_further_apart_than_the_formula_says() {
    for (keys, topology) in examples() {
        let found = measure::diameter(&topology.build().expect("a graph"));
        assert!(topology.diameter_formula().is_none_or(|most| found <= most), "{keys}: {found}");
    }
}

/// No circle of channels that wait for each other, every pair joined, nobody stuck.
#[test]
fn packets_cannot_deadlock() {
    for (keys, topology) in examples() {
        let graph = topology.simulated().expect("a graph");
        let routing = topology.routing(&graph).expect("a rule");
        let found = Dependencies::explore(&graph, &*routing);
        assert!(found.sound(), "{keys}: {:?}", found.in_words(&graph));
    }
}

/// Dimensions are a product of all NPUs, and neighbours along one are as near as its kind says: no
/// further apart than any two NPUs.
#[test]
fn dimensions_are_a_product_of_the_npus() {
    for (keys, topology) in examples() {
        let Ok(dimensions) = topology.dimensions() else { continue };
        let graph = topology.simulated().expect("a graph");
        let npus: u32 = dimensions.iter().map(|dimension| dimension.size).product();
        assert_eq!(npus, graph.npus(), "{keys}");
        let (paths, most) = (NextHops::new(&graph), measure::diameter(&graph));
        let mut stride = 1;
        for dimension in &dimensions {
            for npu in 0..npus {
                let at = npu / stride % dimension.size;
                let next = npu - at * stride + (at + 1) % dimension.size * stride;
                assert!(paths.distance(NodeId(npu), NodeId(next)) <= most, "{keys}");
            }
            stride *= dimension.size;
        }
    }
}

#[test]
fn grids_and_floors_hold_all_npus() {
    for (keys, topology) in examples() {
        let npus = topology.counts().npus;
        if let Some([rows, columns]) = topology.grid() {
            assert!(npus.is_multiple_of(u64::from(rows) * u64::from(columns)), "{keys}");
        }
        if let Some(floor) = topology.floor() {
            assert_eq!(floor.boards() * floor.per_board(), npus, "{keys}");
            assert_eq!(floor.topology, topology.tag(), "{keys}");
        }
    }
}

/// The smaller network of a picture is one of its kind, with no more NPUs.
#[test]
fn pictures_are_of_networks_that_there_are() {
    for (keys, topology) in examples() {
        let drawing = topology.drawing();
        let graph = topology.build().expect("a graph");
        let names = drawing.names.map(|names| names.len());
        assert!(names.is_none_or(|names| names == graph.nodes()), "{keys}");
        let mut small = keys.clone();
        for (key, value) in drawing.smaller.into_iter().flatten() {
            small[key] = value;
        }
        let small = read(small).unwrap_or_else(|error| panic!("{keys}: {error}"));
        assert!(small.counts().npus <= topology.counts().npus, "{keys}");
    }
}
