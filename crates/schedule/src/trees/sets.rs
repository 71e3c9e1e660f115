//! Sets of nodes that a step has found too little to lead into, and what they have to spare.
//!
//! Whether copies can take a step depends on all sets of nodes at once, and costs a flow. So many steps are taken against
//! the sets that are known, and flows are asked once. Where they find more sets, these are known from then on, the steps are
//! taken back, and others taken. What a set has to spare never grows.

use crate::cuts::{Flow, Network, Supply};

/// Sets of nodes, by number.
#[derive(Default)]
pub(super) struct Sets {
    pub(super) inside: Vec<Vec<bool>>,
    /// How much more leads into each than has to.
    pub(super) spare: Vec<u128>,
    /// The sets of each node.
    pub(super) of: Vec<Vec<u32>>,
}

impl Sets {
    /// No sets, of so many nodes.
    pub(super) fn new(nodes: usize) -> Self {
        Self { of: vec![Vec::new(); nodes], ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.inside.len()
    }

    /// One more: its nodes, marked, and what it has to spare.
    pub(super) fn learn(&mut self, inside: Vec<bool>, spare: u128) {
        let number = u32::try_from(self.len()).expect("fewer than 2^32 sets");
        let nodes = inside.iter().zip(&mut self.of).filter(|(inside, _)| **inside);
        nodes.for_each(|(_, of)| of.push(number));
        self.inside.push(inside);
        self.spare.push(spare);
    }

    pub(super) fn has(&self, set: u32, node: u32) -> bool {
        self.inside[set as usize][node as usize]
    }

    /// The sets that a node is in.
    pub(super) fn of(&self, node: u32) -> &[u32] {
        &self.of[node as usize]
    }
}

/// Sets with a sink among them into which less than `needed` leads, marked; of those that overlap only some. None if
/// all sinks get what they need. Nodes beyond the first `nodes` are never inside.
pub(super) fn short(
    network: &Network,
    supplies: Vec<Supply>,
    sinks: &[u32],
    needed: u128,
    nodes: usize,
) -> Vec<Vec<bool>> {
    let mut flow = Flow::new(network, supplies);
    let mut found: Vec<Vec<bool>> = Vec::new();
    for &sink in sinks {
        if found.iter().any(|set| set[sink as usize]) {
            continue;
        }
        if flow.reach(sink, needed) < needed {
            let mut set = vec![false; nodes];
            let members: Vec<u32> = flow.cut_off().to_vec();
            for node in members.into_iter().filter(|node| (*node as usize) < nodes) {
                set[node as usize] = true;
                flow.give(node, Supply::Unlimited);
            }
            found.push(set);
        }
        // No set with it is short, or one that is has been found: the next are asked for sets without it.
        flow.give(sink, Supply::Unlimited);
    }
    found
}
