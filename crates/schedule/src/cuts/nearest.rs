//! Shortest paths from a node over arcs that have a capacity (Dijkstra).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::network::Network;

/// The shortest paths from one node.
pub(super) struct Tree {
    /// Infinite where no path leads.
    pub(super) distance: Vec<f64>,
    /// The last arc of the path to a node.
    pub(super) by: Vec<Option<u32>>,
    /// The nodes that are reached, by rising distance.
    pub(super) order: Vec<u32>,
}

/// From `root`, over arcs of these lengths, none below 0.
pub(super) fn tree(network: &Network, root: u32, length: impl Fn(u32) -> f64) -> Tree {
    let nodes = network.nodes();
    let mut tree = Tree {
        distance: vec![f64::INFINITY; nodes],
        by: vec![None; nodes],
        order: Vec::with_capacity(nodes),
    };
    let mut settled = vec![false; nodes];
    tree.distance[root as usize] = 0.0;
    // No distance is negative, and the bits of such floats have their order.
    let mut heap = BinaryHeap::from([Reverse((0.0f64.to_bits(), root))]);
    while let Some(Reverse((_, node))) = heap.pop() {
        if std::mem::replace(&mut settled[node as usize], true) {
            continue;
        }
        tree.order.push(node);
        for &arc in network.leaving(node) {
            let next = network.head(arc) as usize;
            let distance = tree.distance[node as usize] + length(arc);
            if network.capacity(arc) > 0 && distance < tree.distance[next] {
                tree.distance[next] = distance;
                tree.by[next] = Some(arc);
                heap.push(Reverse((distance.to_bits(), next as u32)));
            }
        }
    }
    tree
}
