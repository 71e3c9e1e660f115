//! What can be read off a graph: its diameter, its halves, whether it is whole.
//!
//! Distances count cables, those at the NPUs included, as `HammingMesh` (SC'22, Table II) does.
//!
//! - [`diameter`] is exact: a breadth-first search from every NPU, 64 at once, one bit each. It takes
//!   some seconds at most for 16,384 NPUs: its cost grows with NPUs, cables and, on a torus, distance.
//! - [`flow_between`] is the largest flow from some NPUs to all others, each cable of capacity 1. It
//!   is the plain check of the closed forms of the half-plane cut; use it on small instances.

use std::ops::ControlFlow;

use super::{Graph, NodeId};

/// The largest distance between two NPUs, in cables; 0 for a single NPU.
#[must_use]
pub fn diameter(graph: &Graph) -> u32 {
    diameter_watched(graph, &mut |_, _| ControlFlow::Continue(())).unwrap_or(0)
}

/// [`diameter`], which tells from how many NPUs it has looked; `None` where whoever is told wants it to end.
pub(crate) fn diameter_watched(
    graph: &Graph,
    watch: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Option<u32> {
    let mut search = Search::new(graph);
    let mut most = 0;
    for first in (0..graph.npus()).step_by(64) {
        if watch(u64::from(first), u64::from(graph.npus())).is_break() {
            return None;
        }
        most = most.max(search.eccentricity(first));
    }
    Some(most)
}

/// A distance between two NPUs above `most`, if there is one. It takes a search or two where the
/// network is far from it.
#[must_use]
pub fn distance_above(graph: &Graph, most: u32) -> Option<u32> {
    let mut search = Search::new(graph);
    // Between any two there is the way by NPU 0.
    let near = search.eccentricity(0);
    if near > most {
        return Some(near);
    }
    if 2 * near <= most {
        return None;
    }
    let rest = (64..graph.npus()).step_by(64);
    rest.map(|first| search.eccentricity(first)).find(|&distance| distance > most)
}

/// An NPU that NPU 0 cannot reach.
#[must_use]
pub fn unreachable(graph: &Graph) -> Option<NodeId> {
    let mut seen = vec![false; graph.nodes()];
    let mut stack = vec![NodeId(0)];
    seen[0] = true;
    while let Some(node) = stack.pop() {
        for &(next, _) in graph.neighbours(node) {
            if !std::mem::replace(&mut seen[next.index()], true) {
                stack.push(next);
            }
        }
    }
    (0..graph.npus()).map(NodeId).find(|npu| !seen[npu.index()])
}

/// Breadth-first search from 64 NPUs at once: bit `i` of a word belongs to the `i`-th of them.
struct Search<'g> {
    graph: &'g Graph,
    seen: Vec<u64>,
    arriving: Vec<u64>,
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph) -> Self {
        Self { graph, seen: vec![0; graph.nodes()], arriving: vec![0; graph.nodes()] }
    }

    /// The largest distance of an NPU from one of the NPUs `first .. first + 64`.
    fn eccentricity(&mut self, first: u32) -> u32 {
        self.seen.fill(0);
        let mut front: Vec<(NodeId, u64)> = (first..self.graph.npus())
            .take(64)
            .map(|npu| (NodeId(npu), 1u64 << (npu - first)))
            .collect();
        for &(npu, bit) in &front {
            self.seen[npu.index()] |= bit;
        }
        let mut touched: Vec<NodeId> = Vec::new();
        let (mut distance, mut farthest) = (0, 0);
        while !front.is_empty() {
            distance += 1;
            for &(node, bits) in &front {
                for &(next, _) in self.graph.neighbours(node) {
                    let new = bits & !self.seen[next.index()];
                    if new == 0 {
                        continue;
                    }
                    if self.arriving[next.index()] == 0 {
                        touched.push(next);
                    }
                    self.arriving[next.index()] |= new;
                }
            }
            front.clear();
            for node in touched.drain(..) {
                let bits = std::mem::take(&mut self.arriving[node.index()]);
                self.seen[node.index()] |= bits;
                front.push((node, bits));
                if node.0 < self.graph.npus() {
                    farthest = distance;
                }
            }
        }
        farthest
    }
}

/// The largest flow, in cables, from the NPUs that are `inside` to all others (Edmonds and Karp).
#[must_use]
pub fn flow_between(graph: &Graph, inside: impl Fn(NodeId) -> bool) -> u64 {
    let mut free = vec![1u8; 2 * graph.cables().len()];
    let is_npu = |node: NodeId| node.0 < graph.npus();
    let sources: Vec<NodeId> = (0..graph.npus()).map(NodeId).filter(|&n| inside(n)).collect();
    let mut flow = 0;
    loop {
        let mut via: Vec<Option<(NodeId, u32)>> = vec![None; graph.nodes()];
        let mut queue: std::collections::VecDeque<NodeId> = sources.iter().copied().collect();
        let mut end = None;
        'search: while let Some(node) = queue.pop_front() {
            for &(next, link) in graph.neighbours(node) {
                let inner = is_npu(next) && inside(next);
                if free[link as usize] == 0 || inner || via[next.index()].is_some() {
                    continue;
                }
                via[next.index()] = Some((node, link));
                if is_npu(next) {
                    end = Some(next);
                    break 'search;
                }
                queue.push_back(next);
            }
        }
        let Some(mut node) = end else { return flow };
        while let Some((before, link)) = via[node.index()] {
            free[link as usize] -= 1;
            free[link as usize ^ 1] += 1;
            node = before;
        }
        flow += 1;
    }
}
