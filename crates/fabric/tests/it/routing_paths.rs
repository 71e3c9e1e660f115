//! How many minimal paths north last leaves on a `HammingMesh`.

use std::collections::BTreeMap;

use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::routing::hammingmesh::Variant;
use allrail_fabric::routing::{HammingMeshRouting, RouteState, Routing};
use allrail_fabric::topologies::GraphTopology;
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use serde_json::json;

use crate::common::NextHops;

type Known = BTreeMap<(NodeId, RouteState), u64>;

fn paths(
    graph: &Graph,
    routing: &dyn Routing,
    at: (NodeId, RouteState),
    to: NodeId,
    known: &mut Known,
) -> u64 {
    if at.0 == to {
        return 1;
    }
    if let Some(&count) = known.get(&at) {
        return count;
    }
    let mut hops = Vec::new();
    routing.hops(at.0, at.1, to, 0, &mut hops);
    let count = hops
        .iter()
        .map(|hop| paths(graph, routing, (graph.link(hop.link).to, hop.state), to, known))
        .sum();
    known.insert(at, count);
    count
}

/// A prototype found that 83 % of all minimal paths are left on an Hx4Mesh, and one in six for the worst
/// pair: from corner to corner of three rows and three columns, east and west first. Merged switches
/// let packets change their row, so that boards are crossed less.
#[test]
fn north_last_leaves_most_minimal_paths() {
    for (side, rows, kept, worst) in [
        (4, "per_accelerator", 0.83, 6),
        (4, "merged", 0.99, 2),
        (3, "per_accelerator", 0.84, 2),
        (2, "per_accelerator", 0.99, 2),
    ] {
        let keys = json!({ "board": [side, side], "grid": [3, 3], "rows": rows });
        let mesh: HammingMesh = serde_json::from_value(keys).expect("keys");
        let graph = mesh.build().expect("a graph");
        let rule = |north_last| {
            let variant = Variant { north_last, ..Variant::default() };
            let routing = HammingMeshRouting::new(&graph, &mesh.places(), variant);
            routing.expect("short paths").expect("a path for every pair")
        };
        let (north_last, any) = (rule(true), rule(false));
        let (mut left, mut all, mut fewest) = (0, 0, 1);
        for to in (0..graph.npus()).map(NodeId) {
            let (mut known, mut known_any) = (Known::new(), Known::new());
            for from in (0..graph.npus()).map(NodeId).filter(|&from| from != to) {
                let start = (from, RouteState::default());
                let some = paths(&graph, &north_last, start, to, &mut known);
                let every = paths(&graph, &any, start, to, &mut known_any);
                (left, all) = (left + some, all + every);
                fewest = fewest.max(every / some);
            }
        }
        let share = left as f64 / all as f64;
        assert!((share - kept).abs() < 0.005, "{side} {rows}: {share}");
        assert_eq!(fewest, worst, "{side} {rows}");
    }
}

/// All minimal paths that keep the rule, found by walking all of them and looking at each as a whole.
fn plainly(
    graph: &Graph,
    next: &NextHops,
    places: &[[u32; 2]],
    path: &mut Vec<NodeId>,
    to: NodeId,
) -> u64 {
    let &at = path.last().expect("a path has a start");
    if at == to {
        let place = |node: &NodeId| places.get(node.index());
        let mut moved_north = false;
        for hop in path.windows(2) {
            let (Some(from), Some(to)) = (place(&hop[0]), place(&hop[1])) else {
                moved_north = false;
                continue;
            };
            if moved_north && from[0] == to[0] {
                return 0;
            }
            moved_north |= to[0] < from[0];
        }
        return 1;
    }
    let mut count = 0;
    for &link in next.links(at, to) {
        path.push(graph.link(link).to);
        count += plainly(graph, next, places, path, to);
        path.pop();
    }
    count
}

#[test]
fn look_ahead_leaves_out_no_path_that_keeps_the_rule() {
    for keys in [
        json!({ "board": [3, 3], "grid": [2, 2], "rows": "per_accelerator" }),
        json!({ "board": [4, 2], "grid": [2, 3], "rows": "merged" }),
        json!({ "board": [2, 3], "grid": [3, 3], "failed_boards": [[1, 1], [0, 2]], "switch_radix": 4 }),
    ] {
        let mesh: HammingMesh = serde_json::from_value(keys).expect("keys");
        let graph = mesh.build().expect("a graph");
        let routing = HammingMeshRouting::new(&graph, &mesh.places(), Variant::default());
        let routing = routing.expect("short paths").expect("a path for every pair");
        let next = NextHops::new(&graph);
        for to in (0..graph.npus()).step_by(3).map(NodeId) {
            let mut known = Known::new();
            for from in (0..graph.npus()).map(NodeId) {
                let start = (from, RouteState::default());
                let found = paths(&graph, &routing, start, to, &mut known);
                let all = plainly(&graph, &next, &mesh.places(), &mut vec![from], to);
                assert_eq!(found, all, "{from:?} to {to:?} of {mesh:?}");
            }
        }
    }
}
