//! Paths by way of any one node: a shortest path to it, and a shortest path on (Valiant's detours).
//!
//! What a dragonfly's routing may take beside shortest paths: by way of a router of another group a
//! packet crosses two global cables instead of one. The tables take all pairs of inner nodes, so
//! they are for networks that shrink to few switches.

use allrail_fabric::graph::paths::Paths;
use allrail_fabric::graph::trunk::Trunk;

const OUTSIDE: u32 = u32::MAX;

/// Tables of a network. Nodes are numbered anew, without NPUs that hang on switches.
#[derive(Clone, Debug)]
pub(super) struct Detours {
    /// The number of each node of the trunk.
    numbers: Vec<u32>,
    nodes: usize,
    /// For each destination, for each node: where its next arcs start; one more at the end.
    starts: Vec<u32>,
    /// Classes of arcs on shortest paths, with the number of the node that each leads to.
    next: Vec<(u32, u32)>,
    /// For each destination, the other nodes, nearest first.
    order: Vec<u32>,
    /// Of the current prices, for each destination, for each node.
    costs: Vec<f64>,
}

impl Detours {
    /// The tables; `classes` says which link each arc is for the prices.
    pub(super) fn new(trunk: &Trunk, paths: &mut Paths, classes: &[u32]) -> Self {
        let inner: Vec<u32> =
            (0..trunk.nodes() as u32).filter(|&node| !trunk.leaving(node).is_empty()).collect();
        let mut numbers = vec![OUTSIDE; trunk.nodes()];
        for (number, &node) in (0..).zip(&inner) {
            numbers[node as usize] = number;
        }
        let nodes = inner.len();
        let mut tables = Self {
            numbers,
            nodes,
            starts: Vec::with_capacity(nodes * nodes + 1),
            next: Vec::new(),
            order: Vec::with_capacity(nodes * nodes),
            costs: vec![0.0; nodes * nodes],
        };
        for &destination in &inner {
            let distances = paths.distances(trunk, destination);
            let from = tables.order.len();
            tables.order.extend(0..nodes as u32);
            tables.order[from..].sort_by_key(|&number| distances[inner[number as usize] as usize]);
            for &node in &inner {
                tables.starts.push(tables.next.len() as u32);
                for arc in trunk.leaving(node) {
                    let to = trunk.arcs()[arc].to;
                    if distances[to as usize] + 1 == distances[node as usize] {
                        tables.next.push((classes[arc], tables.numbers[to as usize]));
                    }
                }
            }
        }
        tables.starts.push(tables.next.len() as u32);
        tables
    }

    fn row(&self, destination: usize) -> std::ops::Range<usize> {
        destination * self.nodes..(destination + 1) * self.nodes
    }

    fn next(&self, destination: usize, node: usize) -> &[(u32, u32)] {
        let place = destination * self.nodes + node;
        &self.next[self.starts[place] as usize..self.starts[place + 1] as usize]
    }

    /// Finds the cheapest shortest path between every two nodes.
    pub(super) fn set_prices(&mut self, prices: &[f64]) {
        let mut costs = std::mem::take(&mut self.costs);
        for destination in 0..self.nodes {
            let row = &mut costs[self.row(destination)];
            row[destination] = 0.0;
            for &node in &self.order[self.row(destination)][1..] {
                let onwards = self.next(destination, node as usize).iter();
                row[node as usize] = onwards
                    .map(|&(class, to)| prices[class as usize] + row[to as usize])
                    .fold(f64::INFINITY, f64::min);
            }
        }
        self.costs = costs;
    }

    /// The cheapest path between two nodes of the trunk: appends its classes, returns its price.
    pub(super) fn cheapest(&self, prices: &[f64], from: u32, to: u32, path: &mut Vec<u32>) -> f64 {
        let from = self.numbers[from as usize] as usize;
        let to = self.numbers[to as usize] as usize;
        let onwards = &self.costs[self.row(to)];
        let mut best = (f64::INFINITY, to);
        for (by, onwards) in onwards.iter().enumerate() {
            let cost = self.costs[by * self.nodes + from] + onwards;
            // A tie goes to the shortest path itself, which is the way by its destination.
            if cost < best.0 || cost == best.0 && by == to {
                best = (cost, by);
            }
        }
        self.follow(prices, from, best.1, path);
        self.follow(prices, best.1, to, path);
        best.0
    }

    fn follow(&self, prices: &[f64], from: usize, to: usize, path: &mut Vec<u32>) {
        let mut node = from;
        while node != to {
            let mut best = (f64::INFINITY, (0, 0));
            for &(class, next) in self.next(to, node) {
                let cost = prices[class as usize] + self.costs[to * self.nodes + next as usize];
                if cost < best.0 {
                    best = (cost, (class, next));
                }
            }
            path.push(best.1.0);
            node = best.1.1 as usize;
        }
    }
}
