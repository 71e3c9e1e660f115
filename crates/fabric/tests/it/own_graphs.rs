//! A user's own graph, meshes of switches, and networks of which parts have failed.

use allrail_core::FieldError;
use allrail_fabric::cost::Prices;
use allrail_fabric::graph::{CableKind, NodeId, measure};
use allrail_fabric::topologies::{GraphTopology, read};
use serde_json::{Value, json};

fn topology(keys: Value) -> Box<dyn GraphTopology> {
    read(keys).expect("a valid topology")
}

fn refused(keys: Value) -> FieldError {
    read(keys).err().expect("it is refused")
}

/// Two leaves with two NPUs each, and a third NPU at both.
fn own() -> Value {
    json!({
        "topology": "graph", "npus": ["a", "b", "c", "d", "e"], "switches": ["left", "right"],
        "planes": 2, "link": { "latency": "30 ns", "cable": "aoc" },
        "links": [
            { "from": "a", "to": "left", "cable": "pcb" }, { "from": "b", "to": "left" },
            { "from": "right", "to": "c" }, { "from": "d", "to": "right", "bandwidth": "100 Gb/s" },
            { "from": "e", "to": "left" }, { "from": "e", "to": "right" },
            { "from": "left", "to": "right", "count": 3, "cable": "dac" },
        ],
    })
}

#[test]
fn nodes_are_numbered_as_they_stand() {
    let own = topology(own());
    let counts = own.counts();
    assert_eq!((counts.npus, counts.switches, counts.planes, counts.ports), (5, 4, 2, 2));
    assert_eq!((counts.aoc, counts.dac, counts.pcb), (10, 6, 2));
    assert_eq!(Prices::default().cost(&counts).dollars(), 4.0 * 14_280.0 + 6_030.0 + 1_632.0);
    let graph = own.build().expect("a graph");
    assert_eq!(graph.neighbours(NodeId(0))[0].0, NodeId(5));
    assert_eq!(graph.neighbours(NodeId(2))[0].0, NodeId(6));
    let cables = graph.cables();
    assert_eq!(cables.len(), 9);
    assert_eq!((cables[0].kind, cables[1].kind), (CableKind::Pcb, CableKind::Aoc));
    assert_eq!(cables[3].wire.bandwidth, "100 Gb/s".parse().expect("a bandwidth"));
    assert!(cables.iter().all(|cable| cable.wire.latency.as_ps() == 30_000));
    assert_eq!(measure::diameter(&graph), 3);
}

#[test]
fn failed_parts_of_it_go_by_name() {
    let mut broken = own();
    broken["failed_nodes"] = json!(["b"]);
    broken["failed_links"] = json!([["right", "left"], ["left", "right"], ["left", "right"]]);
    let broken = topology(broken);
    assert_eq!(broken.counts(), topology(own()).counts());
    let graph = broken.build().expect("NPU e joins the halves");
    assert_eq!((graph.npus(), graph.cables().len()), (4, 5));
    assert_eq!(measure::diameter(&graph), 4);
    let mut apart = own();
    apart["failed_nodes"] = json!(["left"]);
    let error = refused(apart);
    assert_eq!(error.value, "NPU b");
    assert!(error.why.contains("from NPU a"), "{}", error.why);
}

#[test]
fn refuses_graphs_that_no_one_can_mean() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str, &str, &str); 14] = [
        (|g| g["links"][0]["to"] = json!("lost"), "links[0].to", "lost", "`left`"),
        (|g| g["links"][1]["to"] = json!("b"), "links[1].to", "b", "itself"),
        (
            |g| g["links"][1] = json!({ "from": "left", "to": "a" }),
            "links[1]",
            "left to a",
            "`count`",
        ),
        (|g| g["links"][6]["count"] = json!(0), "links[6].count", "0", "below 1"),
        (|g| g["links"][6]["count"] = json!(5000), "links[6].count", "5000", "above 4096"),
        (|g| g["npus"][1] = json!("a"), "npus[1]", "a", "twice"),
        (|g| g["switches"][1] = json!("a"), "switches[1]", "a", "rename"),
        (|g| g["npus"] = json!([]), "npus", "[]", "2 NPUs"),
        (|g| g["npus"] = json!(["a"]), "npus", "[\"a\"]", "2 NPUs"),
        (|g| g["links"][0]["from"] = json!("b"), "links[1]", "b to left", "`links[0]`"),
        (|g| g["npus"][4] = json!("f"), "links[4].from", "e", "`f`"),
        (|g| g["switches"][2] = json!("e"), "switches[2]", "e", "NPU"),
        (|g| g["failed_nodes"] = json!(["z"]), "failed_nodes[0]", "z", "no such node"),
        (
            |g| g["failed_links"] = json!([["a", "right"]]),
            "failed_links[0]",
            "a to right",
            "no cable",
        ),
    ];
    for (change, field, value, told) in cases {
        let mut keys = own();
        if field == "switches[2]" {
            keys["switches"] = json!(["left", "right", ""]);
        }
        change(&mut keys);
        let error = refused(keys);
        assert_eq!((&*error.field, &*error.value), (&*format!("fabric.{field}"), value));
        let text = format!("{} {}", error.why, error.hint);
        assert!(text.contains(told), "{text}");
    }
    let mut alone = own();
    alone["npus"].as_array_mut().expect("a list").push(json!("f"));
    let error = refused(alone);
    assert_eq!((&*error.field, &*error.value), ("fabric.npus[5]", "f"));
    assert!(error.why.contains("`a`"));
    let many: Vec<String> = (0..=1 << 16).map(|npu| npu.to_string()).collect();
    let error = refused(json!({ "topology": "graph", "npus": many, "links": [] }));
    assert!(error.why.contains("65536"));
}

#[test]
fn meshes_have_their_formulas() {
    for (shape, npus) in [
        (vec![2u32, 2], 1u32),
        (vec![4, 3], 2),
        (vec![3, 5], 1),
        (vec![2, 6], 3),
        (vec![4, 2, 3], 2),
        (vec![3, 3, 3], 1),
    ] {
        let mesh = topology(json!({
            "topology": "mesh", "shape": shape, "npus_per_switch": npus, "planes": 2,
        }));
        let (graph, counts) = (mesh.build().expect("a graph"), mesh.counts());
        let cables = |kind| graph.cables().iter().filter(|cable| cable.kind == kind).count() as u64;
        let built = [CableKind::Aoc, CableKind::Dac, CableKind::Pcb].map(|kind| 2 * cables(kind));
        assert_eq!(built, [counts.aoc, counts.dac, counts.pcb], "{shape:?}");
        assert_eq!(2 * graph.switches() as u64, counts.switches, "{shape:?}");
        assert_eq!(u64::from(graph.npus()), counts.npus, "{shape:?}");
        assert_eq!(Some(measure::diameter(&graph)), mesh.diameter_formula(), "{shape:?}");
        let Some(longest) = shape.iter().copied().filter(|size| size % 2 == 0).max() else {
            assert_eq!(mesh.half_plane_cut_links(), None);
            continue;
        };
        let axis = shape.iter().position(|&size| size == longest).expect("it is there");
        let stride = npus * shape[..axis].iter().product::<u32>();
        let flow = measure::flow_between(&graph, |npu| npu.0 / stride % longest < longest / 2);
        assert_eq!(mesh.half_plane_cut_links(), Some(flow), "{shape:?}");
    }
    let full =
        json!({ "topology": "mesh", "shape": [3, 2], "npus_per_switch": 6, "switch_radix": 8 });
    assert!(refused(full).why.contains("9 cables"));
}

/// Every topology takes failed parts by number, keeps its counts, and has no formula left.
#[test]
fn failed_parts_leave_the_graph_but_not_the_bill() {
    for (whole, link) in [
        (json!({ "topology": "fat_tree", "npus": 32, "switch_radix": 8, "levels": 2 }), [32, 40]),
        (json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 5 }), [40, 42]),
        (json!({ "topology": "torus", "shape": [4, 4] }), [1, 2]),
        (
            json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [3, 3], "rows": "merged" }),
            [0, 1],
        ),
        (json!({ "topology": "mesh", "shape": [3, 3] }), [9, 10]),
    ] {
        let mut broken = whole.clone();
        broken["failed_nodes"] = json!([5]);
        broken["failed_links"] = json!([link]);
        let (whole, broken) = (topology(whole), topology(broken));
        let (before, after) =
            (whole.build().expect("a graph"), broken.build().expect("it is still whole"));
        assert_eq!(whole.counts(), broken.counts());
        assert_eq!(after.npus() + 1, before.npus());
        let at_node = before.neighbours(NodeId(5)).len();
        assert_eq!(after.cables().len() + at_node + 1, before.cables().len());
        assert_eq!((broken.diameter_formula(), broken.half_plane_cut_links()), (None, None));
        assert_eq!(broken.simulated().expect("a graph").cables(), after.cables());
    }
}

#[test]
fn refuses_failed_parts_that_are_not_there_or_cut_it() {
    let tree = json!({ "topology": "fat_tree", "npus": 32, "switch_radix": 8, "levels": 2 });
    for (nodes, links, field, told) in [
        (json!([44]), json!([]), "failed_nodes[0]", "switches 32 to 43"),
        (json!([3, 3]), json!([]), "failed_nodes[1]", "twice"),
        (json!([]), json!([[0, 40]]), "failed_links[0]", "no cable joins"),
        (json!([]), json!([[0, 99]]), "failed_links[0]", "no such node"),
        (json!([32]), json!([]), "", "NPU 1"),
        (json!([]), json!([[32, 0]]), "", "NPU 1"),
    ] {
        let mut keys = tree.clone();
        (keys["failed_nodes"], keys["failed_links"]) = (nodes, links);
        let error = refused(keys);
        assert_eq!(error.field, format!("fabric.{field}").trim_end_matches('.'));
        let text = format!("{} {} {}", error.value, error.why, error.hint);
        assert!(text.contains(told), "{text}");
    }
    let hyperx = json!({ "topology": "hyperx", "shape": [4, 4], "failed_nodes": [3, 16] });
    assert_eq!(refused(hyperx).field, "fabric.failed_nodes[1]");
    let hyperx = topology(json!({ "topology": "hyperx", "shape": [4, 4], "failed_nodes": [3] }));
    assert_eq!(hyperx.build().expect("a graph").npus(), 15);
    assert_eq!(hyperx.simulated().expect("a graph").npus(), 15);
}

/// Any network can be written down node by node, its failed parts too, and is the same network.
#[test]
fn every_topology_can_be_written_as_a_graph() {
    for (keys, nodes, link) in [
        (
            json!({ "topology": "fat_tree", "npus": 30, "switch_radix": 8, "levels": 3 }),
            [7, 40],
            [30, 38],
        ),
        (json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 4, "groups": 4 }), [3, 6], [32, 33]),
        (json!({ "topology": "torus", "shape": [3, 4, 2] }), [0, 23], [5, 4]),
        (
            json!({ "topology": "hammingmesh", "board": [1, 2], "grid": [3, 2], "planes": 3, "rows": "merged" }),
            [4, 9],
            [0, 12],
        ),
        (json!({ "topology": "mesh", "shape": [3, 4], "npus_per_switch": 2 }), [1, 2], [24, 25]),
    ] {
        let whole = topology(keys.clone()).build().expect("a graph");
        let name = |node: NodeId| format!("n{}", node.0);
        let mut links: Vec<(Value, u32)> = Vec::new();
        for cable in whole.cables() {
            let [from, to] = cable.ends;
            let link = json!({
                "from": name(from), "to": name(to), "cable": cable.kind,
                "bandwidth": cable.wire.bandwidth, "latency": cable.wire.latency,
            });
            match links.iter_mut().find(|(known, _)| *known == link) {
                Some((_, count)) => *count += 1,
                None => links.push((link, 1)),
            }
        }
        let links = links.into_iter().map(|(mut link, count)| {
            link["count"] = json!(count);
            link
        });
        let names: Vec<String> = (0..whole.nodes() as u32).map(|n| name(NodeId(n))).collect();
        let (npus, switches) = names.split_at(whole.npus() as usize);
        let written = json!({
            "topology": "graph", "npus": npus, "switches": switches,
            "links": links.collect::<Vec<_>>(),
            "failed_nodes": nodes.map(|node| name(NodeId(node))),
            "failed_links": [link.map(|node| name(NodeId(node)))],
        });
        let mut numbered = keys.clone();
        (numbered["failed_nodes"], numbered["failed_links"]) = (json!(nodes), json!([link]));
        let sorted = |keys: Value| {
            let graph = topology(keys).build().expect("it is still whole");
            let mut cables: Vec<String> =
                graph.cables().iter().map(|cable| format!("{cable:?}")).collect();
            cables.sort();
            (graph.npus(), graph.nodes(), cables)
        };
        assert_eq!(sorted(written), sorted(numbered), "{keys}");
    }
}
