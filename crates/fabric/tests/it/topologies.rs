//! Closed forms against explicit graphs, over many small instances.

use allrail_fabric::graph::{CableKind, Graph, NodeId, measure};
use allrail_fabric::topologies::hyperx::HyperX;
use allrail_fabric::topologies::{GraphTopology, read};
use serde_json::{Value, json};

fn topology(keys: Value) -> Box<dyn GraphTopology> {
    read(keys).expect("a valid topology")
}

fn graph(topology: &dyn GraphTopology) -> Graph {
    topology.build().expect("a connected graph")
}

/// With one switch per row: the sweep that the formula was published for.
#[test]
fn hammingmesh_diameter_and_cut() {
    for (a, b, k) in (1..=5)
        .flat_map(|a| (1..=4).map(move |b| (a, b)))
        .flat_map(|(a, b)| [4, 8, 64].map(move |k| (a, b, k)))
    {
        for (x, y) in [(2u32, 2u32), (3, 2), (5, 4), (2, 4)] {
            let mesh = topology(json!({
                "topology": "hammingmesh", "board": [a, b], "grid": [x, y], "switch_radix": k,
                "rows": "per_accelerator",
            }));
            let graph = graph(&*mesh);
            let case = format!("{a}x{b} boards, {x}x{y}, {k} ports");
            assert_eq!(Some(measure::diameter(&graph)), mesh.diameter_formula(), "{case}");
            if x % 2 == 1 || k == 64 && a > 2 {
                continue;
            }
            let width = b * x;
            let cut = measure::flow_between(&graph, |npu| npu.0 % width < width / 2);
            assert_eq!(cut, u64::from(a * x * y), "{case}");
            assert_eq!(mesh.half_plane_cut_links(), Some(cut), "{case}");
        }
    }
}

/// One board along an axis: cables around it instead of switches, and lines that are rings.
#[test]
fn hammingmesh_of_one_dimension_wraps_cables() {
    for (a, b) in (1..=5).flat_map(|a| (1..=4).map(move |b| (a, b))) {
        for (x, y) in [(1u32, 4u32), (5, 1), (1, 1)] {
            if a * b * x * y == 1 {
                continue;
            }
            let mesh = topology(json!({
                "topology": "hammingmesh", "board": [a, b], "grid": [x, y], "switch_radix": 64,
                "rows": "per_accelerator",
            }));
            let case = format!("{a}x{b} boards, {x}x{y}");
            let (graph, counts) = (graph(&*mesh), mesh.counts());
            assert_eq!(Some(measure::diameter(&graph)), mesh.diameter_formula(), "{case}");
            let switches = if x > 1 { a * y } else { 0 } + if y > 1 { b * x } else { 0 };
            assert_eq!(counts.switches, u64::from(switches), "{case}");
            let around =
                if x == 1 && b > 1 { a * y } else { 0 } + if y == 1 && a > 1 { b * x } else { 0 };
            let rows = if x > 1 { 2 * x * a * y } else { 0 };
            assert_eq!(counts.dac, u64::from(around + rows), "{case}");
            assert_eq!(counts.aoc, u64::from(if y > 1 { 2 * y * b * x } else { 0 }), "{case}");
        }
    }
}

/// A row of 8 boards of 2 x 2: 32 ends in two rows, or 256 in all sixteen. Switches of 16 ports.
#[test]
fn boards_are_joined_by_any_network() {
    let mesh = |more: serde_json::Value| {
        let mut keys = json!({
            "topology": "hammingmesh", "board": [2, 2], "grid": [8, 8], "switch_radix": 16,
        });
        for (key, value) in more.as_object().expect("keys") {
            keys[key] = value.clone();
        }
        topology(keys)
    };
    let own = mesh(json!({}));
    let two = mesh(json!({ "joined_lines": 4 }));
    let all = mesh(json!({ "joined_lines": 16 }));
    // 16 ends fit a switch; 64 take 8 leaves and 4 spines, 256 take 32, 32 and 16 on three levels.
    assert_eq!(own.counts().switches, 2 * 16);
    assert_eq!(two.counts().switches, 2 * 4 * 12);
    assert_eq!(all.counts().switches, 2 * 80);
    assert_eq!(two.half_plane_cut_links(), None, "ends of several rows are on a leaf");
    // p = 4, a = 8, two groups; q = 5, 7 cables and 4 ends at a switch.
    for (global, joined, switches) in [("dragonfly", 4, 2 * 4 * 16), ("slim_fly", 8, 2 * 2 * 50)] {
        let other = mesh(json!({ "joined_lines": joined, "global": global }));
        assert_eq!(other.counts().switches, switches, "{global}");
        let found = measure::diameter(&graph(&*other));
        let most = other.diameter_formula().expect("a bound");
        assert!(found <= most && most <= 10, "{global}: {found}, {most}");
        assert!(other.dimensions().expect_err("no rings").contains("far apart"));
    }
    // Where one switch is enough, it is a switch.
    assert_eq!(mesh(json!({ "global": "slim_fly" })).counts(), own.counts());
    let refused = |more| {
        let mut keys = json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [8, 6] });
        for (key, value) in serde_json::Value::as_object(&more).expect("keys") {
            keys[key] = value.clone();
        }
        allrail_fabric::topologies::read(keys).err().expect("it is refused")
    };
    assert_eq!(refused(json!({ "joined_lines": 8 })).field, "fabric.joined_lines");
    assert_eq!(refused(json!({ "joined_lines": 0 })).field, "fabric.joined_lines");
    let both = refused(json!({ "joined_lines": 4, "rows": "merged" }));
    assert_eq!(both.field, "fabric.joined_lines");
    let small = json!({ "joined_lines": 4, "switch_radix": 4, "global": "slim_fly" });
    assert_eq!(refused(small).field, "fabric.switch_radix");
    assert_eq!(refused(json!({ "global": "dragonfly", "taper": 0.5 })).field, "fabric.taper");
}

/// Three dimensions: formulas of distance and cut against searches, and one board thick it is the mesh of
/// two.
#[test]
fn hammingmesh_of_three_dimensions() {
    for (board, grid) in [
        ([2, 2, 2], [2, 3, 2]),
        ([3, 1, 2], [2, 2, 4]),
        ([1, 1, 1], [3, 3, 2]),
        ([4, 2, 3], [2, 1, 2]),
    ] {
        let keys = json!({ "topology": "hammingmesh_3d", "board": board, "grid": grid });
        let mesh = topology(keys.clone());
        let graph = graph(&*mesh);
        assert_eq!(Some(measure::diameter(&graph)), mesh.diameter_formula(), "{keys}");
        let half = graph.npus() / 2;
        let cut = measure::flow_between(&graph, |npu| npu.0 < half);
        assert_eq!(mesh.half_plane_cut_links(), Some(cut), "{keys}");
    }
    let flat = topology(json!({ "topology": "hammingmesh", "board": [3, 2], "grid": [4, 5],
                                "rows": "per_accelerator" }));
    let thin = topology(json!({ "topology": "hammingmesh_3d", "board": [2, 3, 1],
                                "grid": [4, 5, 1] }));
    assert_eq!(thin.counts(), flat.counts());
    let joined = |mesh: &dyn GraphTopology| {
        let mut ends: Vec<_> = graph(mesh).cables().iter().map(|cable| cable.ends).collect();
        ends.sort_unstable();
        ends
    };
    assert!(joined(&*thin) == joined(&*flat), "other cables");
    let refused = |keys| allrail_fabric::topologies::read(keys).err().expect("it is refused").field;
    let zero = json!({ "topology": "hammingmesh_3d", "board": [2, 0, 1], "grid": [4, 5, 1] });
    assert_eq!(refused(zero), "fabric.board");
    let odd = json!({ "topology": "hammingmesh_3d", "board": [2, 1, 1], "grid": [4, 5, 1],
                      "joined_lines": 3 });
    assert_eq!(refused(odd), "fabric.joined_lines");
}

#[test]
fn tapered_trees_carry_what_the_formula_says() {
    for (npus, taper) in [(24u32, 0.0), (24, 0.5), (32, 0.5), (20, 0.75), (32, 0.0), (28, 0.5)] {
        let tree = topology(json!({
            "topology": "fat_tree", "npus": npus, "switch_radix": 8, "levels": 2, "taper": taper,
        }));
        let flow = measure::flow_between(&graph(&*tree), |npu| npu.0 < npus / 2);
        assert_eq!(tree.half_plane_cut_links(), Some(flow), "{npus} NPUs, taper {taper}");
    }
}

#[test]
fn trees_of_three_levels_are_whole_at_any_size() {
    for npus in [9u32, 31, 33, 57, 64, 100, 127, 128] {
        for taper in [0.0, 0.5, 0.75] {
            let tree = topology(json!({
                "topology": "fat_tree", "npus": npus, "switch_radix": 8, "levels": 3,
                "taper": taper,
            }));
            let graph = graph(&*tree);
            assert_eq!(graph.switches() as u64, tree.counts().switches);
            assert_eq!(Some(measure::diameter(&graph)), tree.diameter_formula(), "{npus} {taper}");
            let ports =
                (npus..graph.nodes() as u32).map(|node| graph.neighbours(NodeId(node)).len());
            assert!(ports.max() <= Some(8), "{npus} {taper}");
        }
    }
}

#[test]
fn torus_diameter_and_cut() {
    for shape in [vec![4u32, 4], vec![2, 6], vec![3, 4], vec![2, 2], vec![4, 3, 2], vec![4, 4, 6]] {
        let torus = topology(json!({ "topology": "torus", "shape": shape }));
        let graph = graph(&*torus);
        assert_eq!(Some(measure::diameter(&graph)), torus.diameter_formula(), "{shape:?}");
        assert_eq!(graph.cables().len() as u64, torus.counts().aoc, "{shape:?}");
        let longest = shape.iter().copied().filter(|size| size % 2 == 0).max().expect("even");
        let axis = shape.iter().position(|&size| size == longest).expect("it is there");
        let stride: u32 = shape[axis + 1..].iter().product();
        let flow = measure::flow_between(&graph, |npu| npu.0 / stride % longest < longest / 2);
        assert_eq!(torus.half_plane_cut_links(), Some(flow), "{shape:?}");
    }
}

#[test]
fn dragonflies_are_whole_and_use_every_global_port() {
    for (a, p, h, groups) in
        [(4u32, 2, 2, 9), (4, 2, 2, 5), (4, 2, 1, 4), (3, 1, 1, 4), (6, 2, 3, 7), (5, 2, 3, 8)]
    {
        for radix in [16u32, 64] {
            let keys = json!({
                "topology": "dragonfly", "a": a, "p": p, "h": h, "groups": groups,
                "switch_radix": radix,
            });
            let dragonfly = topology(keys);
            let (graph, counts) = (graph(&*dragonfly), dragonfly.counts());
            let case = format!("{a} {p} {h} {groups}, {radix} ports");
            assert_eq!(graph.cables().len() as u64, counts.aoc + counts.dac, "{case}");
            assert_eq!(graph.switches() as u64, counts.switches, "{case}");
            let found = measure::diameter(&graph);
            assert!(dragonfly.diameter_formula().is_some_and(|formula| found <= formula), "{case}");
            let (npus, half) = (graph.npus(), groups / 2);
            let per_group = graph.switches() as u32 / groups;
            let near = |node: NodeId| (node.0 - npus) / per_group < half;
            let crosses = |ends: &[NodeId; 2]| near(ends[0]) != near(ends[1]);
            let global = graph.cables().iter().filter(|cable| cable.kind == CableKind::Aoc);
            let crossing = global.filter(|cable| crosses(&cable.ends)).count() as u64;
            let most = crossing.min(u64::from(npus) / 2);
            let expected = (groups % 2 == 0).then_some(most);
            assert_eq!(dragonfly.half_plane_cut_links(), expected, "{case}");
        }
    }
}

#[test]
fn failed_boards_leave_the_graph_but_not_the_bill() {
    let whole = json!({ "topology": "hammingmesh", "board": [2, 2], "grid": [4, 4] });
    let mut broken = whole.clone();
    broken["failed_boards"] = json!([[0, 0], [3, 2]]);
    let (whole, broken) = (topology(whole), topology(broken));
    assert_eq!(whole.counts(), broken.counts());
    assert_eq!(graph(&*broken).npus(), 64 - 8);
    let apart = topology(json!({
        "topology": "hammingmesh", "board": [2, 2], "grid": [2, 2],
        "failed_boards": [[0, 0], [1, 1]],
    }));
    let error = apart.build().expect_err("boards [1, 0] and [0, 1] share no tree");
    assert!(error.why.contains("no path"));
}

/// The published bandwidth is that of direct links: 31 + 31 of them at each of 1,024 routers.
#[test]
fn hyperx_has_direct_links_too() {
    let keys = json!({ "shape": [32, 32], "planes": 4 });
    let hyperx: HyperX = serde_json::from_value(keys).expect("keys");
    let direct = hyperx.direct().expect("a graph");
    assert_eq!(direct.neighbours(NodeId(1024)).len(), 1 + 31 + 31);
    assert_eq!(measure::diameter(&direct), 4);
}

/// A tree whose uplinks do not divide evenly among its spines is simulated with one cable from each
/// leaf to each of as many spines as a leaf has uplinks; an even one as it is costed.
#[test]
fn uneven_trees_are_simulated_evenly() {
    for (taper, down, up, uneven) in
        [(0.0, 32, 32, false), (0.5, 42, 22, true), (0.75, 51, 13, true)]
    {
        let keys = json!({ "topology": "fat_tree", "npus": 1024, "levels": 2, "taper": taper });
        let tree = read(keys).expect("a tree");
        assert_eq!(tree.simulated_as().is_some(), uneven, "{taper}");
        let (costed, graph) = (tree.build().expect("a graph"), tree.simulated().expect("a graph"));
        assert_eq!(costed.cables().len(), graph.cables().len());
        let leaves = 1024u32.div_ceil(down);
        assert_eq!(graph.switches() as u32, leaves + if uneven { up } else { 16 });
        for spine in 1024 + leaves..graph.nodes() as u32 {
            let ports = graph.neighbours(NodeId(spine)).len() as u32;
            assert_eq!(ports, if uneven { leaves } else { 64 });
        }
    }
}
