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
