//! Links between nodes that are left, each made of paths over the network's arcs.

use std::collections::BTreeMap;

use super::carried::Path;
use crate::cuts::Network;

/// Whole capacities between nodes, and what each is made of.
pub(super) struct Logical {
    pub(super) nodes: usize,
    /// By ends; none is empty.
    links: BTreeMap<[u32; 2], Vec<Path>>,
}

impl Logical {
    /// All arcs, with so many times their capacity.
    pub(super) fn of(network: &Network, [numerator, denominator]: [u128; 2]) -> Self {
        let mut links: BTreeMap<[u32; 2], Vec<Path>> = BTreeMap::new();
        for arc in (0..network.arcs()).filter(|arc| network.capacity(*arc) > 0) {
            let multiplicity = network.capacity(arc) * numerator / denominator;
            let path = Path { multiplicity, arcs: vec![arc] };
            links.entry([network.tail(arc), network.head(arc)]).or_default().push(path);
        }
        Self { nodes: network.nodes(), links }
    }

    /// All links with their capacities.
    pub(super) fn capacities(&self) -> impl Iterator<Item = ([u32; 2], u128)> {
        let sum = |paths: &Vec<Path>| paths.iter().map(|path| path.multiplicity).sum();
        self.links.iter().map(move |(ends, paths)| (*ends, sum(paths)))
    }

    /// The links into a node, by the node that they come from, and those out of it, by the node that they lead to.
    pub(super) fn around(&self, node: u32) -> [Vec<(u32, u128)>; 2] {
        let side = |inner: usize| {
            let links = self.capacities().filter(|(ends, _)| ends[inner] == node);
            links.map(|(ends, capacity)| (ends[1 - inner], capacity)).collect()
        };
        [side(1), side(0)]
    }

    /// Takes so much of a link.
    pub(super) fn take(&mut self, from: u32, to: u32, mut amount: u128) -> Vec<Path> {
        let mut taken = Vec::new();
        let paths = self.links.get_mut(&[from, to]).expect("it was asked how much there is");
        while amount > 0 {
            let last = paths.last_mut().expect("it was asked how much there is");
            let part = last.multiplicity.min(amount);
            taken.push(Path { multiplicity: part, arcs: last.arcs.clone() });
            last.multiplicity -= part;
            amount -= part;
            if last.multiplicity == 0 {
                paths.pop();
            }
        }
        if paths.is_empty() {
            self.links.remove(&[from, to]);
        }
        taken
    }

    /// Replaces so much of what comes `from` and goes on `to` by a link past `by`; nothing where both are one.
    pub(super) fn bypass(&mut self, from: u32, by: u32, to: u32, amount: u128) {
        let mut before = self.take(from, by, amount);
        let mut after = self.take(by, to, amount);
        if from == to {
            return;
        }
        let joined = self.links.entry([from, to]).or_default();
        while let (Some(one), Some(other)) = (before.last_mut(), after.last_mut()) {
            let multiplicity = one.multiplicity.min(other.multiplicity);
            joined.push(Path { multiplicity, arcs: [&*one.arcs, &*other.arcs].concat() });
            one.multiplicity -= multiplicity;
            other.multiplicity -= multiplicity;
            before.retain(|path| path.multiplicity > 0);
            after.retain(|path| path.multiplicity > 0);
        }
    }
}
