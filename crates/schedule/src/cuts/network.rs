//! A network as capacities between nodes: what cuts are counted over.
//!
//! All cables between two nodes, of all planes, are one pair of arcs: arc `2i` leads forwards, `2i + 1` back. The two
//! may differ in capacity, and one of them may be 0. Nodes are those of a [`Graph`], NPUs first.

use allrail_core::Time;
use allrail_fabric::graph::Graph;

/// Capacities between nodes, in units of [`Network::unit`].
#[derive(Clone, Debug)]
pub struct Network {
    /// Of arc `a`, where it ends; it begins where `a ^ 1` ends.
    heads: Vec<u32>,
    /// Of every arc, in units.
    capacities: Vec<u128>,
    /// Of every arc, the least of its cables.
    latencies: Vec<Time>,
    /// Where each node's part of `leaving` starts; one entry more than nodes.
    starts: Vec<u32>,
    /// The arcs that leave each node.
    leaving: Vec<u32>,
    unit: u64,
}

/// All cables between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The two nodes.
    pub ends: [u32; 2],
    /// Bytes per second from the first to the second, and back.
    pub rates: [u64; 2],
    /// The least latency of its cables.
    pub latency: Time,
}

impl Network {
    /// From the cables of a graph, in so many identical planes.
    #[must_use]
    pub fn of_graph(graph: &Graph, planes: u64) -> Self {
        let pairs = graph.cables().iter().map(|cable| {
            let rate = cable.wire.bandwidth.bytes_per_second().saturating_mul(planes);
            let ends = cable.ends.map(|end| end.0);
            Pair { ends, rates: [rate; 2], latency: cable.wire.latency }
        });
        Self::new(graph.nodes(), pairs)
    }

    /// From pairs of nodes; those with the same ends are added up.
    #[must_use]
    pub fn new(nodes: usize, pairs: impl IntoIterator<Item = Pair>) -> Self {
        let mut pairs: Vec<Pair> = pairs.into_iter().map(Pair::sorted).collect();
        pairs.sort_by_key(|pair| (pair.ends, pair.latency));
        let unit = pairs.iter().flat_map(|pair| pair.rates).fold(0, gcd).max(1);
        let in_units =
            |pair: &Pair| (pair.ends, pair.rates.map(|rate| u128::from(rate / unit)), pair.latency);
        let pairs: Vec<_> = pairs.iter().map(in_units).collect();
        Self::of_sorted(nodes, &pairs, unit)
    }

    /// From pairs in rising order of their ends, which rise themselves.
    fn of_sorted(nodes: usize, pairs: &[([u32; 2], [u128; 2], Time)], unit: u64) -> Self {
        let mut network = Self {
            heads: Vec::new(),
            capacities: Vec::new(),
            latencies: Vec::new(),
            starts: vec![0; nodes + 1],
            leaving: Vec::new(),
            unit,
        };
        let mut last = None;
        for ([a, b], rates, latency) in pairs {
            if last.replace([a, b]) != Some([a, b]) {
                network.heads.extend([b, a]);
                network.capacities.extend([0, 0]);
                network.latencies.extend([latency; 2]);
                network.starts[*a as usize + 1] += 1;
                network.starts[*b as usize + 1] += 1;
            }
            let forwards = network.capacities.len() - 2;
            for (way, rate) in rates.iter().enumerate() {
                network.capacities[forwards + way] += rate;
            }
        }
        for node in 0..nodes {
            network.starts[node + 1] += network.starts[node];
        }
        let mut next = network.starts.clone();
        network.leaving = vec![0; network.heads.len()];
        for arc in 0..network.arcs() {
            let place = &mut next[network.tail(arc) as usize];
            network.leaving[*place as usize] = arc;
            *place += 1;
        }
        network
    }

    /// From whole capacities of links; those with the same ends are added up.
    pub(crate) fn of_capacities(
        nodes: usize,
        links: impl IntoIterator<Item = ([u32; 2], u128)>,
    ) -> Self {
        let pairs = links.into_iter().map(|([from, to], capacity)| {
            let rates = if from <= to { [capacity, 0] } else { [0, capacity] };
            ([from.min(to), from.max(to)], rates, Time::ZERO)
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_unstable_by_key(|(ends, ..)| *ends);
        Self::of_sorted(nodes, &pairs, 1)
    }

    /// The same with every arc turned round.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let mut turned = self.clone();
        for pair in turned.capacities.chunks_exact_mut(2) {
            pair.swap(0, 1);
        }
        turned
    }

    /// How many nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many arcs: two for each pair of joined nodes.
    #[must_use]
    pub fn arcs(&self) -> u32 {
        u32::try_from(self.heads.len()).expect("fewer than 2^32 arcs")
    }

    /// Bytes per second of a capacity of 1.
    #[must_use]
    pub fn unit(&self) -> u64 {
        self.unit
    }

    /// Where an arc ends.
    #[must_use]
    pub fn head(&self, arc: u32) -> u32 {
        self.heads[arc as usize]
    }

    /// Where an arc begins.
    #[must_use]
    pub fn tail(&self, arc: u32) -> u32 {
        self.heads[(arc ^ 1) as usize]
    }

    /// The capacity of an arc, in units.
    #[must_use]
    pub fn capacity(&self, arc: u32) -> u128 {
        self.capacities[arc as usize]
    }

    /// The latency of an arc.
    #[must_use]
    pub fn latency(&self, arc: u32) -> Time {
        self.latencies[arc as usize]
    }

    /// The arcs that leave a node.
    #[must_use]
    pub fn leaving(&self, node: u32) -> &[u32] {
        let (from, to) = (self.starts[node as usize], self.starts[node as usize + 1]);
        &self.leaving[from as usize..to as usize]
    }

    /// What enters a set of nodes from outside, in units.
    #[must_use]
    pub fn entering(&self, inside: &[bool]) -> u128 {
        let enters =
            |arc: &u32| inside[self.head(*arc) as usize] && !inside[self.tail(*arc) as usize];
        (0..self.arcs()).filter(enters).map(|arc| self.capacity(arc)).sum()
    }

    /// What enters a node, in units.
    #[must_use]
    pub fn entering_one(&self, node: u32) -> u128 {
        self.leaving(node).iter().map(|arc| self.capacity(arc ^ 1)).sum()
    }

    /// The members in the order in which a search from the first of them meets them; those that it cannot reach
    /// follow.
    pub(crate) fn nearest_first(&self, members: &[u32]) -> Vec<u32> {
        let mut is_member = vec![false; self.nodes()];
        members.iter().for_each(|member| is_member[*member as usize] = true);
        let mut seen = vec![false; self.nodes()];
        let mut order = Vec::with_capacity(self.nodes());
        for &first in members {
            if !std::mem::replace(&mut seen[first as usize], true) {
                order.push(first);
            }
            let mut at = order.len() - 1;
            while at < order.len() {
                for &arc in self.leaving(order[at]) {
                    let next = self.head(arc);
                    if !std::mem::replace(&mut seen[next as usize], true) {
                        order.push(next);
                    }
                }
                at += 1;
            }
        }
        order.retain(|node| is_member[*node as usize]);
        order
    }
}

impl Pair {
    /// The same with its ends in rising order.
    fn sorted(self) -> Self {
        let ([a, b], [there, back]) = (self.ends, self.rates);
        if a <= b { self } else { Self { ends: [b, a], rates: [back, there], ..self } }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
