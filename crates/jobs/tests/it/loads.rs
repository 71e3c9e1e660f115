//! The loads of jobs on links, against every shortest path walked.

use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::GraphTopology;
use allrail_fabric::topologies::hammingmesh::HammingMesh;
use allrail_jobs::running::loads::Loads;
use serde_json::json;

/// Every shortest path, walked.
fn walk(
    graph: &Graph,
    at: NodeId,
    to: NodeId,
    left: u32,
    path: &mut Vec<u32>,
    all: &mut Vec<Vec<u32>>,
) {
    if at == to {
        all.push(path.clone());
    } else if left > 0 {
        for &(next, link) in graph.neighbours(at) {
            path.push(link);
            walk(graph, next, to, left - 1, path, all);
            path.pop();
        }
    }
}

#[test]
fn loads_are_those_of_all_shortest_paths_walked() {
    let mesh: HammingMesh = serde_json::from_value(
        json!({ "board": [2, 2], "grid": [4, 2], "switch_radix": 4, "taper": 0.0,
                            "failed_boards": [[2, 1]] }),
    )
    .expect("its keys");
    let graph = mesh.build().expect("a mesh");
    let mut loads = Loads::new(&graph);
    for to in [0, 5, 17] {
        let messages: Vec<(u32, f64)> = (0..graph.npus())
            .filter(|&n| n != to && n % 3 == 0)
            .map(|n| (n, f64::from(n + 1)))
            .collect();
        let (mut found, mut expected) =
            (vec![0.0; graph.links() as usize], vec![0.0; graph.links() as usize]);
        loads.add(to, &messages, &|_| true, &mut found).expect("all may pass");
        for &(from, bytes) in &messages {
            let mut all = Vec::new();
            for left in 1.. {
                walk(&graph, NodeId(from), NodeId(to), left, &mut Vec::new(), &mut all);
                if !all.is_empty() {
                    break;
                }
            }
            for path in &all {
                path.iter().for_each(|&link| expected[link as usize] += bytes / all.len() as f64);
            }
        }
        for (link, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() < 1e-9 * expected.max(1.0),
                "{link}: {found} {expected}"
            );
        }
    }
}
