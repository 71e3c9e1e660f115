//! All next links on shortest paths, for every node and destination, in plain tables: what routings
//! are held to.
//!
//! A node has few different lists of next links, so each is kept once.

use std::collections::HashMap;

use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::routing::FARTHEST;

/// See the module. Destinations are NPUs.
#[derive(Clone, Debug)]
pub(crate) struct NextHops {
    nodes: usize,
    /// For each destination, for each node: which list.
    list_of: Vec<u32>,
    /// Where each list starts; one entry more than lists.
    starts: Vec<u32>,
    links: Vec<u32>,
    distances: Vec<u8>,
}

impl NextHops {
    /// The tables of a graph.
    pub(crate) fn new(graph: &Graph) -> Self {
        let nodes = graph.nodes();
        let mut tables = Self {
            nodes,
            list_of: Vec::with_capacity(nodes * graph.npus() as usize),
            starts: vec![0],
            links: Vec::new(),
            distances: Vec::with_capacity(nodes * graph.npus() as usize),
        };
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let (mut queue, mut list) = (Vec::new(), Vec::new());
        for destination in 0..graph.npus() {
            let from = tables.distances.len();
            tables.distances.resize(from + nodes, u8::MAX);
            let distances = &mut tables.distances[from..];
            distances[destination as usize] = 0;
            queue.clear();
            queue.push(NodeId(destination));
            let mut head = 0;
            while let Some(&node) = queue.get(head) {
                head += 1;
                let next = u32::from(distances[node.index()]) + 1;
                for &(neighbour, _) in graph.neighbours(node) {
                    if distances[neighbour.index()] == u8::MAX {
                        assert!(next <= FARTHEST, "NPUs are at most {FARTHEST} links apart");
                        distances[neighbour.index()] = next as u8;
                        queue.push(neighbour);
                    }
                }
            }
            for node in (0..nodes as u32).map(NodeId) {
                let here = distances[node.index()];
                list.clear();
                if here != 0 && here != u8::MAX {
                    list.extend(graph.neighbours(node).iter().filter_map(|&(next, link)| {
                        (distances[next.index()] == here - 1).then_some(link)
                    }));
                }
                let number = if let Some(&number) = known.get(&list) {
                    number
                } else {
                    let number = u32::try_from(known.len()).expect("few lists");
                    tables.links.extend(&list);
                    tables.starts.push(u32::try_from(tables.links.len()).expect("few links"));
                    known.insert(list.clone(), number);
                    number
                };
                tables.list_of.push(number);
            }
        }
        tables
    }

    /// The next links on shortest paths from `node` to the NPU `destination`, in the order of
    /// [`Graph::neighbours`]; none at the destination.
    pub(crate) fn links(&self, node: NodeId, destination: NodeId) -> &[u32] {
        let list = self.list_of[destination.index() * self.nodes + node.index()] as usize;
        &self.links[self.starts[list] as usize..self.starts[list + 1] as usize]
    }

    /// How many links lie between `node` and the NPU `destination`.
    pub(crate) fn distance(&self, node: NodeId, destination: NodeId) -> u32 {
        u32::from(self.distances[destination.index() * self.nodes + node.index()])
    }
}
