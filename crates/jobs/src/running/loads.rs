//! What messages put on links when each is spread evenly over all of its shortest paths.
//!
//! All messages to one NPU are pushed down together. With `n(v)` shortest paths from `v` to the
//! destination (parallel cables are paths of their own), a node that has `x` bytes to pass on gives
//!
//! ```text
//! to its neighbour w, one link nearer:   x · n(w) / n(v)
//! ```
//!
//! which is what [`Splitting::Ecmp`](allrail_network::flows::Splitting::Ecmp) does to each message alone.
//! The search for a destination ends where its farthest source is found.

use allrail_fabric::graph::{Graph, NodeId};

const UNKNOWN: u32 = u32::MAX;

/// Pushes messages through a graph; see the module.
pub struct Loads<'a> {
    graph: &'a Graph,
    /// Of each node: links to the destination, shortest paths, bytes to pass on.
    levels: Vec<u32>,
    paths: Vec<f64>,
    bytes: Vec<f64>,
    /// Nodes in the order in which they were found.
    found: Vec<u32>,
}

impl<'a> Loads<'a> {
    /// For one graph.
    #[must_use]
    pub fn new(graph: &'a Graph) -> Self {
        let nodes = graph.nodes();
        Self {
            graph,
            levels: vec![UNKNOWN; nodes],
            paths: vec![0.0; nodes],
            bytes: vec![0.0; nodes],
            found: Vec::new(),
        }
    }

    /// Adds to `loads`, one for each link, the messages (source, bytes) to `destination`.
    ///
    /// # Errors
    /// The NPU that one of them would pass though `may_pass` says no.
    pub fn add(
        &mut self,
        destination: u32,
        messages: &[(u32, f64)],
        may_pass: &dyn Fn(u32) -> bool,
        loads: &mut [f64],
    ) -> Result<(), u32> {
        for &(source, bytes) in messages {
            self.bytes[source as usize] += bytes;
        }
        self.search(destination, messages);
        let mut passed = Ok(());
        for &node in self.found.iter().rev() {
            let at = node as usize;
            let bytes = self.bytes[at];
            if bytes == 0.0 || node == destination {
                continue;
            }
            if node < self.graph.npus() && !may_pass(node) {
                passed = Err(node);
            }
            for &(next, link) in self.graph.neighbours(NodeId(node)) {
                if self.levels[next.index()] < self.levels[at] {
                    let share = bytes * self.paths[next.index()] / self.paths[at];
                    loads[link as usize] += share;
                    self.bytes[next.index()] += share;
                }
            }
        }
        for node in self.found.drain(..) {
            self.levels[node as usize] = UNKNOWN;
            self.paths[node as usize] = 0.0;
            self.bytes[node as usize] = 0.0;
        }
        passed
    }

    /// Finds all nodes as near to the destination as the farthest source, and counts their paths.
    fn search(&mut self, destination: u32, messages: &[(u32, f64)]) {
        let mut missing = messages.len();
        missing -= messages.iter().filter(|(source, _)| *source == destination).count();
        let mut sources: Vec<u32> = messages.iter().map(|&(source, _)| source).collect();
        sources.sort_unstable();
        self.levels[destination as usize] = 0;
        self.paths[destination as usize] = 1.0;
        self.found.push(destination);
        let mut last = if missing == 0 { 0 } else { UNKNOWN };
        let mut next = 0;
        while let Some(&node) = self.found.get(next) {
            let level = self.levels[node as usize];
            if level >= last {
                break;
            }
            next += 1;
            let paths = self.paths[node as usize];
            for &(other, _) in self.graph.neighbours(NodeId(node)) {
                let at = other.index();
                if self.levels[at] == UNKNOWN {
                    self.levels[at] = level + 1;
                    self.found.push(other.0);
                    let from = sources.partition_point(|&source| source < other.0);
                    missing -= sources[from..].iter().take_while(|&&s| s == other.0).count();
                    if missing == 0 {
                        last = level + 1;
                    }
                }
                if self.levels[at] == level + 1 {
                    self.paths[at] += paths;
                }
            }
        }
    }
}
