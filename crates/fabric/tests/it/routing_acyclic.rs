//! Deadlock freedom, proved on small instances: no circle of channels that wait for each other, every
//! pair joined, nobody stuck. And the circles that there are with fewer channels or weaker rules.

use allrail_fabric::graph::{Builder, CableKind, Graph, NodeId, Wire};
use allrail_fabric::routing::hammingmesh::Variant;
use allrail_fabric::routing::{
    Adaptive, Dependencies, DragonflyRouting, HammingMeshRouting, HyperXRouting, Routing,
    TorusRouting,
};
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use allrail_fabric::topologies::{GraphTopology, read};
use serde_json::{Value, json};

fn explored(keys: &Value) -> (Dependencies, u8, Graph) {
    let topology = read(keys.clone()).expect("a valid topology");
    let graph = topology.simulated().expect("a connected graph");
    let routing = topology.routing(&graph).expect("a rule");
    (Dependencies::explore(&graph, &*routing), routing.channels(), graph)
}

/// Explores, and asks for `channels` channels and no fault.
fn sound(keys: &Value, channels: u8) {
    let (found, has, graph) = explored(keys);
    assert!(found.sound(), "{keys}: {:?}", found.in_words(&graph));
    assert_eq!(has, channels, "{keys}");
}

/// Boards, grids, radix and rows of the instances below: separate and merged switches, trees of two
/// levels.
fn meshes() -> Vec<Value> {
    let mesh = |side: u32, radix: u32, rows: &str| {
        let mut keys = json!({
            "topology": "hammingmesh", "board": [side, side], "grid": [3, 3],
            "switch_radix": radix, "rows": rows,
        });
        if rows == "where it fits" {
            keys.as_object_mut().expect("a mapping").remove("rows");
        }
        keys
    };
    [2, 3, 4]
        .into_iter()
        .flat_map(|side| {
            [
                mesh(side, 64, "per_accelerator"),
                mesh(side, 64, "merged"),
                mesh(side, 4, "where it fits"),
            ]
        })
        .collect()
}

fn hammingmesh(keys: &Value, variant: Variant) -> (Dependencies, Graph) {
    let mut keys = keys.clone();
    keys.as_object_mut().expect("a mapping").remove("topology");
    let mesh: HammingMesh = serde_json::from_value(keys).expect("keys");
    mesh.validate().expect("a valid mesh");
    let graph = mesh.build().expect("a graph");
    let routing = HammingMeshRouting::new(&graph, &mesh.places(), variant);
    let routing = routing.expect("short paths").expect("a path for every pair");
    (Dependencies::explore(&graph, &routing), graph)
}

#[test]
fn hammingmesh_with_three_channels_and_north_last() {
    for keys in meshes() {
        sound(&keys, 3);
    }
    for (board, grid) in
        [([1, 2], [3, 3]), ([1, 4], [2, 3]), ([3, 1], [3, 2]), ([1, 1], [3, 3]), ([2, 3], [4, 2])]
    {
        for radix in [4, 64] {
            sound(
                &json!({
                    "topology": "hammingmesh", "board": board, "grid": grid, "switch_radix": radix,
                }),
                3,
            );
        }
    }
}

/// A cable around a board makes a ring of its line: the rule of meshes and trees would wait in circles.
#[test]
fn hammingmesh_of_one_dimension_cannot_deadlock() {
    for (board, grid) in
        [([2, 2], [1, 3]), ([3, 3], [3, 1]), ([4, 4], [1, 1]), ([4, 5], [1, 2]), ([3, 3], [1, 1])]
    {
        let keys = json!({
            "topology": "hammingmesh", "board": board, "grid": grid, "switch_radix": 4,
        });
        let (found, _, graph) = explored(&keys);
        assert!(found.sound(), "{keys}: {:?}", found.in_words(&graph));
    }
}

#[test]
fn hammingmesh_around_failed_boards() {
    for (failed, channels) in [
        (json!([[0, 0]]), 3),
        (json!([[0, 0], [0, 1], [0, 2]]), 3),
        // Neither board of [1, 0] to [2, 1]'s corners works: three trees.
        (json!([[1, 1], [2, 0]]), 4),
    ] {
        for radix in [4, 64] {
            let keys = json!({
                "topology": "hammingmesh", "board": [2, 2], "grid": [3, 3],
                "switch_radix": radix, "failed_boards": failed,
            });
            sound(&keys, channels);
        }
    }
}

#[test]
fn hammingmesh_with_less_than_that_has_circles() {
    for keys in meshes() {
        for (what, variant) in [
            ("2 channels", Variant { channels: Some(2), ..Variant::default() }),
            ("1 channel", Variant { channels: Some(1), ..Variant::default() }),
            ("any turn", Variant { north_last: false, ..Variant::default() }),
        ] {
            let (found, graph) = hammingmesh(&keys, variant);
            let cycle = found.cycle.as_deref().unwrap_or_else(|| panic!("{keys}, {what}"));
            assert!(cycle.len() > 1, "{keys}, {what}");
            for (held, wanted) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
                assert_eq!(graph.link(held.link).to, graph.link(wanted.link).from);
            }
            assert_eq!(found.in_words(&graph).len(), cycle.len());
            assert!(found.unreachable.is_empty() && found.stuck.is_empty(), "{keys}, {what}");
        }
    }
}

/// A prototype counted 18, 270 and 1,170 dead states on 3 x 3 boards: places and destinations, not
/// channels, from which a packet that moved north cannot arrive.
#[test]
fn without_look_ahead_packets_get_stuck() {
    for (keys, known) in meshes().iter().step_by(3).zip([18, 270, 1170]) {
        let (found, graph) = hammingmesh(keys, Variant { look_ahead: false, ..Variant::default() });
        let mut places: Vec<_> = found.stuck.iter().map(|at| (at.node, at.destination)).collect();
        places.dedup();
        assert_eq!(places.len(), known, "{keys}");
        assert!(found.unreachable.is_empty());
        assert!(found.in_words(&graph)[0].contains("get stuck"));
    }
}

#[test]
fn other_topologies() {
    for (keys, channels) in [
        (json!({ "topology": "torus", "shape": [4, 4] }), 6),
        (json!({ "topology": "torus", "shape": [5, 3] }), 6),
        (json!({ "topology": "torus", "shape": [2, 6] }), 4),
        (json!({ "topology": "torus", "shape": [2, 2] }), 2),
        (json!({ "topology": "torus", "shape": [6, 5] }), 6),
        (json!({ "topology": "torus", "shape": [4, 3, 3] }), 16),
        (json!({ "topology": "torus", "shape": [4, 2, 4] }), 12),
        (json!({ "topology": "hyperx", "shape": [4, 4] }), 2),
        (json!({ "topology": "hyperx", "shape": [5, 2] }), 2),
        (json!({ "topology": "fat_tree", "npus": 24, "switch_radix": 8, "levels": 2 }), 1),
        (
            json!({ "topology": "fat_tree", "npus": 24, "switch_radix": 8, "levels": 2, "taper": 0.5 }),
            1,
        ),
        (json!({ "topology": "fat_tree", "npus": 60, "switch_radix": 8, "levels": 3 }), 1),
        (
            json!({ "topology": "fat_tree", "npus": 50, "switch_radix": 8, "levels": 3, "taper": 0.75 }),
            1,
        ),
    ] {
        sound(&keys, channels);
    }
    for (a, p, h, groups) in
        [(4u32, 2, 2, 9), (4, 2, 2, 5), (4, 2, 1, 4), (3, 1, 1, 4), (6, 2, 3, 7), (4, 2, 2, 2)]
    {
        for (radix, routing) in [(8, "ugal"), (8, "minimal"), (20, "ugal"), (64, "ugal")] {
            let radix = radix.max((a + p + h) / 2 * 2 + 2 * (a % 2));
            sound(
                &json!({
                    "topology": "dragonfly", "a": a, "p": p, "h": h, "groups": groups,
                    "switch_radix": radix, "routing": routing,
                }),
                if routing == "ugal" { 3 } else { 2 },
            );
        }
    }
}

#[test]
fn other_topologies_with_fewer_channels_have_circles() {
    let built = |keys: Value| read(keys).expect("keys").simulated().expect("a graph");
    let cyclic = |graph: &Graph, routing: &dyn Routing| {
        let found = Dependencies::explore(graph, routing);
        assert!(found.cycle.is_some(), "{}", routing.about());
    };
    for shape in [[4, 4], [6, 5]] {
        let graph = built(json!({ "topology": "torus", "shape": shape }));
        let torus = TorusRouting::new(&graph, &shape).expect("a whole torus");
        for channels in [1, 2, 3] {
            cyclic(&graph, &torus.clone().with_channels(channels));
        }
    }
    let graph = built(json!({ "topology": "hyperx", "shape": [4, 4] }));
    let hyperx = HyperXRouting::new(&graph, [4, 4]).expect("a whole HyperX");
    cyclic(&graph, &hyperx.with_channels(1));
    let graph = built(
        json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9, "switch_radix": 8 }),
    );
    for (detours, channels) in [(true, 2), (true, 1), (false, 1)] {
        let dragonfly = DragonflyRouting::new(&graph, 9, detours).expect("a whole dragonfly");
        cyclic(&graph, &dragonfly.with_channels(channels));
    }
}

/// The rule for any graph, where others have their own.
#[test]
fn any_graph_takes_as_many_channels_as_its_turns_need() {
    for (keys, channels) in [
        (json!({ "topology": "torus", "shape": [4, 4] }), 1),
        (json!({ "topology": "torus", "shape": [5, 7] }), 2),
        (json!({ "topology": "torus", "shape": [3, 4, 5] }), 2),
        (json!({ "topology": "hyperx", "shape": [4, 4] }), 1),
        (json!({ "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9 }), 1),
        (
            json!({
                "topology": "dragonfly", "a": 4, "p": 2, "h": 2, "groups": 9, "switch_radix": 8
            }),
            2,
        ),
        (json!({ "topology": "hammingmesh", "board": [3, 3], "grid": [3, 3] }), 2),
    ] {
        let graph = read(keys.clone()).expect("keys").simulated().expect("a graph");
        let routing = Adaptive::new(&graph).expect("a rule");
        let found = Dependencies::explore(&graph, &routing);
        assert!(found.sound(), "{keys}: {:?}", found.in_words(&graph));
        assert_eq!(routing.channels(), channels, "{keys}");
    }
}

fn of_npus(npus: u32, switches: u32, cables: &[[u32; 2]]) -> Graph {
    let mut builder = Builder::new(npus);
    for _ in 0..switches {
        builder.switch();
    }
    for &[a, b] in cables {
        let (kind, wire) = (CableKind::Dac, Wire::cable());
        builder.cable(NodeId(a), NodeId(b), kind, wire).expect("a cable");
    }
    builder.build().expect("a connected graph")
}

#[test]
fn trees_and_meshes_take_one_channel_however_they_are_numbered() {
    let zigzag: Vec<[u32; 2]> =
        (0..40).flat_map(|i| [[i, 40 + i], [40 + i, (i + 1) % 41]]).collect();
    let line = of_npus(80, 0, &zigzag[..79]);
    assert_eq!(Adaptive::new(&line).expect("a rule").channels(), 1);
    // NPUs at every other switch of a line.
    let mut cables: Vec<[u32; 2]> = (0..39).map(|i| [20 + i, 21 + i]).collect();
    cables.extend((0..20).map(|npu| [npu, 20 + 2 * npu]));
    assert_eq!(Adaptive::new(&of_npus(20, 40, &cables)).expect("a rule").channels(), 1);
    // A mesh of 4 x 4 switches, an NPU at each.
    let at = |row: u32, column: u32| 16 + row * 4 + column;
    let mut cables: Vec<[u32; 2]> = (0..16).map(|npu| [npu, 16 + npu]).collect();
    for i in 0..4 {
        for j in 0..3 {
            cables.extend([[at(i, j), at(i, j + 1)], [at(j, i), at(j + 1, i)]]);
        }
    }
    let mesh = of_npus(16, 16, &cables);
    let routing = Adaptive::new(&mesh).expect("a rule");
    assert_eq!(routing.channels(), 1);
    assert!(Dependencies::explore(&mesh, &routing).sound());
}

#[test]
fn refuses_paths_that_are_too_long() {
    let line: Vec<[u32; 2]> = (0..299).map(|i| [i, i + 1]).collect();
    let refused = Adaptive::new(&of_npus(300, 0, &line)).expect_err("299 links");
    assert!(refused.hint.contains("flows"), "{refused}");
}
