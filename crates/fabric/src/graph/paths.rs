//! Shortest paths through a [`Trunk`], found per destination when they are asked for.
//!
//! Distances count links. They are kept, one byte for a node and destination, up to `KEPT` bytes;
//! beyond that all are forgotten and found again: a large network is asked for few phases.

use super::trunk::Trunk;

/// How many bytes of distances are kept.
const KEPT: usize = 256 << 20;

const UNSEEN: u32 = u32::MAX;

/// All shortest paths between two nodes. Nodes are local numbers, in an order in which every arc
/// leads forwards: 0 is the source, the last one the destination.
#[derive(Clone, Debug, Default)]
pub struct Ways {
    starts: Vec<u32>,
    /// Arcs, each with the node that it leads to.
    arcs: Vec<(u32, u32)>,
}

impl Ways {
    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn leaving(&self, node: usize) -> &[(u32, u32)] {
        &self.arcs[self.starts[node] as usize..self.starts[node + 1] as usize]
    }

    /// The arcs, for renumbering.
    pub fn arcs_mut(&mut self) -> impl Iterator<Item = &mut u32> {
        self.arcs.iter_mut().map(|(arc, _)| arc)
    }

    /// Splits evenly over all paths, parallel cables told apart: calls `add` with each arc and its
    /// share.
    pub fn evenly(
        &self,
        shares: &mut Vec<f64>,
        cables: impl Fn(u32) -> u32,
        mut add: impl FnMut(u32, f64),
    ) {
        let mut counts = vec![0.0f64; self.nodes()];
        counts[self.nodes() - 1] = 1.0;
        for node in (0..self.nodes() - 1).rev() {
            let next = self.leaving(node).iter();
            counts[node] =
                next.map(|&(arc, to)| f64::from(cables(arc)) * counts[to as usize]).sum();
        }
        shares.clear();
        shares.resize(self.nodes(), 0.0);
        shares[0] = 1.0;
        for node in 0..self.nodes() {
            let each = shares[node] / counts[node];
            for &(arc, to) in self.leaving(node) {
                let share = each * f64::from(cables(arc)) * counts[to as usize];
                shares[to as usize] += share;
                add(arc, share);
            }
        }
    }

    /// The cheapest path where the arc `a` costs `lengths[a]`; appends its arcs, returns its cost.
    pub fn cheapest(
        &self,
        lengths: &[f64],
        costs: &mut Vec<(f64, u32)>,
        path: &mut Vec<u32>,
    ) -> f64 {
        costs.clear();
        costs.resize(self.nodes(), (0.0, 0));
        for node in (0..self.nodes() - 1).rev() {
            let mut best = (f64::INFINITY, 0);
            let from = self.starts[node];
            for (number, &(arc, to)) in (from..).zip(self.leaving(node)) {
                let cost = lengths[arc as usize] + costs[to as usize].0;
                if cost < best.0 {
                    best = (cost, number);
                }
            }
            costs[node] = best;
        }
        let mut node = 0;
        while node + 1 < self.nodes() {
            let (arc, to) = self.arcs[costs[node].1 as usize];
            path.push(arc);
            node = to as usize;
        }
        costs[0].0
    }

    /// The largest sum of `latency` over a path.
    #[must_use]
    pub fn longest(&self, latency: impl Fn(u32) -> u64) -> u64 {
        let mut longest = vec![0; self.nodes()];
        for node in (0..self.nodes()).rev() {
            let paths = self.leaving(node).iter();
            longest[node] =
                paths.map(|&(arc, to)| latency(arc) + longest[to as usize]).max().unwrap_or(0);
        }
        longest[0]
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Paths {
    /// How many nodes have arcs.
    inner: usize,
    distances: Vec<Option<Box<[u8]>>>,
    kept: usize,
    queue: Vec<u32>,
    places: Vec<u32>,
}

impl Paths {
    /// Nothing is found yet.
    #[must_use]
    pub fn new(trunk: &Trunk) -> Self {
        let inner = (0..trunk.nodes() as u32).filter(|&node| !trunk.leaving(node).is_empty());
        Self {
            inner: inner.count(),
            distances: vec![None; trunk.nodes()],
            kept: 0,
            queue: Vec::new(),
            places: vec![UNSEEN; trunk.nodes()],
        }
    }

    /// How far every node is from `destination`; 255 where nothing leads there.
    ///
    /// # Panics
    /// Some node is more than 254 links away.
    pub fn distances(&mut self, trunk: &Trunk, destination: u32) -> &[u8] {
        if self.distances[destination as usize].is_none() {
            if self.kept + trunk.nodes() > KEPT {
                self.distances.fill(None);
                self.kept = 0;
            }
            self.kept += trunk.nodes();
            let found = search(trunk, destination, self.inner, &mut self.queue);
            self.distances[destination as usize] = Some(found);
        }
        self.distances[destination as usize].as_deref().expect("it was just found")
    }

    /// All shortest paths.
    pub fn ways(&mut self, trunk: &Trunk, from: u32, to: u32) -> Ways {
        let mut places = std::mem::take(&mut self.places);
        let mut queue = std::mem::take(&mut self.queue);
        let distances = self.distances(trunk, to);
        let mut ways = Ways { starts: vec![0], arcs: Vec::new() };
        queue.clear();
        queue.push(from);
        places[from as usize] = 0;
        let mut head = 0;
        while let Some(&node) = queue.get(head) {
            head += 1;
            let here = distances[node as usize];
            if here > 0 {
                for number in trunk.leaving(node) {
                    let next = trunk.arcs()[number].to;
                    if distances[next as usize] + 1 != here {
                        continue;
                    }
                    if places[next as usize] == UNSEEN {
                        places[next as usize] = queue.len() as u32;
                        queue.push(next);
                    }
                    ways.arcs.push((number as u32, places[next as usize]));
                }
            }
            ways.starts.push(ways.arcs.len() as u32);
        }
        for &node in &queue {
            places[node as usize] = UNSEEN;
        }
        (self.places, self.queue) = (places, queue);
        ways
    }

    /// One shortest path for messages to the NPU `destination`: calls `add` with each arc and the
    /// cable taken.
    ///
    /// A switch takes the next link number `q mod count`, where links are listed cable by cable (the
    /// first to every next node, then the second), `q` is the destination at first and is divided by
    /// the number of next nodes at every switch: destination mod k in trees. An NPU that forwards
    /// goes to the node whose number is nearest to its own: on a torus, that is dimension order, the last
    /// one first.
    pub fn single(
        &mut self,
        trunk: &Trunk,
        from: u32,
        destination: u32,
        mut add: impl FnMut(u32, u32),
    ) {
        let to = trunk.host(destination);
        let distances = self.distances(trunk, to);
        let (mut node, mut quotient) = (from, destination);
        while node != to {
            let here = distances[node as usize];
            let next = trunk
                .leaving(node)
                .map(|number| (number as u32, trunk.arcs()[number]))
                .filter(|(_, arc)| distances[arc.to as usize] + 1 == here);
            if node < trunk.npus() {
                let nearest = next.min_by_key(|(_, arc)| arc.to.abs_diff(node));
                let (number, arc) = nearest.expect("a path goes on");
                add(number, quotient % arc.cables);
                node = arc.to;
                continue;
            }
            let (mut nodes, mut links) = (0, 0);
            for (_, arc) in next.clone() {
                nodes += 1;
                links += arc.cables;
            }
            let mut skip = quotient % links;
            quotient /= nodes;
            let mut cable = 0;
            let (number, arc) = loop {
                let mut listed = next.clone().filter(|(_, arc)| arc.cables > cable);
                if let Some(found) = listed.nth(skip as usize) {
                    break found;
                }
                skip -= next.clone().filter(|(_, arc)| arc.cables > cable).count() as u32;
                cable += 1;
            };
            add(number, cable);
            node = arc.to;
        }
    }
}

fn search(trunk: &Trunk, destination: u32, inner: usize, queue: &mut Vec<u32>) -> Box<[u8]> {
    let mut distances = vec![u8::MAX; trunk.nodes()].into_boxed_slice();
    distances[destination as usize] = 0;
    queue.clear();
    queue.push(destination);
    let mut head = 0;
    // Once all are seen, the rest of the queue has nothing to tell.
    while let (Some(&node), true) = (queue.get(head), queue.len() < inner) {
        head += 1;
        let next = distances[node as usize] + 1;
        for arc in &trunk.arcs()[trunk.leaving(node)] {
            let distance = &mut distances[arc.to as usize];
            if *distance == u8::MAX {
                assert!(next < u8::MAX, "NPUs are at most 254 links apart");
                *distance = next;
                queue.push(arc.to);
            }
        }
    }
    distances
}
