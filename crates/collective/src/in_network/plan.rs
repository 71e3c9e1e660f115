//! The tree over which some NPUs' buffers are summed: a plan that is proven before it is used, and what
//! messages of a fluid network model stand for it.
//!
//! Every node of the tree sends what it has to the node above it once, and the root's sum comes down
//! the same cables: [`SumTree::prove`] carries that out with sets of NPUs in the place of numbers.
//!
//! In a network model of messages between NPUs the tree is one round of messages, each NPU's whole buffer to the
//! next in the order of the tree ([`SumTree::order`], [`Around`]). Whoever visits the leaves of a tree in
//! that order and returns passes every cable of it once each way: so every cable carries one buffer up
//! and one down, as when its switch sums, and the message between the two farthest leaves has the
//! latency of up and down. What it ignores: with several cables to choose from, messages are spread over
//! them as the network model splits them, as if there were a tree for each.

use std::collections::BTreeMap;

use allrail_core::Bytes;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::Summing;

use super::{Distances, refusal};
use crate::{CollectiveError, Steps};

/// A tree over NPUs: who sends to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumTree {
    root: NodeId,
    members: Vec<NodeId>,
    /// Each node below the root with the node above it, the nearest to the root first.
    edges: Vec<(NodeId, NodeId)>,
}

/// What is wrong with a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A node sends to one that has sent already, or is not in the tree.
    #[error("node {0} sends its sum to a node that cannot take it any more")]
    Late(u32),
    /// A buffer is in the sum more than once.
    #[error("the buffer of NPU {0} is added more than once")]
    Twice(u32),
    /// A buffer is missing in the sum.
    #[error("the buffer of NPU {0} is not in the sum")]
    Missing(u32),
    /// An NPU that does not get the sum.
    #[error("NPU {0} does not get the sum")]
    Uninformed(u32),
}

impl SumTree {
    /// A tree of shortest paths over switches, from the middle of the longest way between two members.
    ///
    /// # Errors
    /// [`CollectiveError::Field`] where switches alone do not join the members.
    pub fn over(graph: &Graph, members: &[NodeId]) -> Result<Self, CollectiveError> {
        let mut distances = Distances::new(graph, Summing::Switches);
        let mut farthest = |from: NodeId| {
            distances.around(graph, from);
            let of = &distances.of;
            let far = members.iter().copied().max_by_key(|member| (of[member.index()], member.0));
            let far = far.expect("a group has members");
            (far, of[far.index()])
        };
        let apart = || {
            let why = "switches alone do not join its ranks: sums would pass through NPUs";
            refusal(why.to_owned())
        };
        let (one, reach) = farthest(members[0]);
        if reach == Distances::FAR {
            return Err(apart());
        }
        // Twice, so that it is the longest in every tree.
        let (other, length) = farthest(one);
        let mut root = other;
        distances.around(graph, one);
        while distances.of[root.index()] > length / 2 {
            root = distances.nearer(graph, root).ok_or_else(apart)?;
        }
        if root.0 < graph.npus() {
            return Err(apart());
        }
        distances.around(graph, root);
        let mut above: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for &member in members {
            let mut node = member;
            while node != root && !above.contains_key(&node) {
                let next = distances.nearer(graph, node).ok_or_else(apart)?;
                above.insert(node, next);
                node = next;
            }
        }
        let mut edges: Vec<(NodeId, NodeId)> = above.into_iter().collect();
        edges.sort_by_key(|(node, _)| (distances.of[node.index()], *node));
        let tree = Self { root, members: members.to_vec(), edges };
        tree.prove().map_err(|violation| refusal(violation.to_string()))?;
        Ok(tree)
    }

    /// Carries the plan out on sets of NPUs.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn prove(&self) -> Result<(), Violation> {
        let mut held: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
        for member in &self.members {
            held.entry(*member).or_default().push(member.0);
        }
        let mut open: BTreeMap<NodeId, bool> = BTreeMap::from([(self.root, true)]);
        open.extend(self.edges.iter().map(|(node, _)| (*node, true)));
        for (node, above) in self.edges.iter().rev() {
            open.insert(*node, false);
            if open.get(above) != Some(&true) {
                return Err(Violation::Late(node.0));
            }
            let mut sum = held.remove(node).unwrap_or_default();
            held.entry(*above).or_default().append(&mut sum);
        }
        let mut sum = held.remove(&self.root).unwrap_or_default();
        sum.sort_unstable();
        if let Some(twice) = sum.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Violation::Twice(twice[0]));
        }
        if let Some(missing) = self.members.iter().find(|m| sum.binary_search(&m.0).is_err()) {
            return Err(Violation::Missing(missing.0));
        }
        let mut informed = std::collections::BTreeSet::from([self.root]);
        for (node, above) in &self.edges {
            if informed.contains(above) {
                informed.insert(*node);
            }
        }
        match self.members.iter().find(|member| !informed.contains(member)) {
            Some(member) => Err(Violation::Uninformed(member.0)),
            None => Ok(()),
        }
    }

    /// The members by their places in what the tree was made of, in the order in which a walk along the
    /// tree meets them.
    #[must_use]
    pub fn order(&self) -> Vec<u32> {
        let mut below: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
        for (node, above) in &self.edges {
            below.entry(*above).or_default().push(*node);
        }
        let places: BTreeMap<NodeId, u32> = self.members.iter().copied().zip(0..).collect();
        let (mut order, mut waiting) = (Vec::with_capacity(self.members.len()), vec![self.root]);
        while let Some(node) = waiting.pop() {
            order.extend(places.get(&node));
            waiting.extend(below.get(&node).into_iter().flatten().rev());
        }
        order
    }

    /// How many cables it has.
    #[must_use]
    pub fn cables(&self) -> usize {
        self.edges.len()
    }
}

/// One round: each rank's whole buffer to the next in an order.
#[derive(Clone, Debug)]
pub struct Around {
    next: Vec<u32>,
    bytes: Bytes,
}

impl Around {
    /// In the order of a tree.
    #[must_use]
    pub fn new(tree: &SumTree, bytes: Bytes) -> Self {
        let order = tree.order();
        let mut next = vec![0; order.len()];
        for (at, &rank) in order.iter().enumerate() {
            next[rank as usize] = order[(at + 1) % order.len()];
        }
        Self { next, bytes }
    }
}

impl Steps for Around {
    fn ranks(&self) -> u32 {
        self.next.len() as u32
    }

    fn steps(&self) -> u32 {
        1
    }

    fn sends(&self, rank: u32, _: u32, out: &mut Vec<(u32, Bytes)>) {
        out.push((self.next[rank as usize], self.bytes));
    }

    fn expected(&self, _: u32, _: u32) -> u32 {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 and 1 below 4, 2 and 3 below 5, both below 6.
    fn tree(edges: &[(u32, u32)]) -> SumTree {
        SumTree {
            root: NodeId(6),
            members: (0..4).map(NodeId).collect(),
            edges: edges.iter().map(|&(node, above)| (NodeId(node), NodeId(above))).collect(),
        }
    }

    const WHOLE: [(u32, u32); 6] = [(4, 6), (5, 6), (0, 4), (1, 4), (2, 5), (3, 5)];

    #[test]
    fn a_wrong_tree_is_not_proven() {
        assert_eq!(tree(&WHOLE).prove(), Ok(()));
        assert_eq!(tree(&WHOLE[..5]).prove(), Err(Violation::Missing(3)));
        // 4 has sent before 0 sends to it.
        let late = [(0, 4), (4, 6), (5, 6), (1, 4), (2, 5), (3, 5)];
        assert_eq!(tree(&late).prove(), Err(Violation::Late(0)));
        let mut twice = tree(&WHOLE);
        twice.members[3] = NodeId(2);
        assert_eq!(twice.prove(), Err(Violation::Twice(2)));
        let mut above = WHOLE;
        above[5] = (3, 7);
        assert_eq!(tree(&above).prove(), Err(Violation::Late(3)));
    }

    #[test]
    fn a_walk_meets_the_leaves_of_a_switch_together() {
        let mut crossed = tree(&WHOLE);
        crossed.members = [0, 2, 1, 3].map(NodeId).to_vec();
        assert_eq!(crossed.order(), [0, 2, 1, 3]);
        let around = Around::new(&crossed, Bytes::new(7));
        let next: Vec<u32> = (0..4)
            .map(|rank| {
                let mut out = Vec::new();
                around.sends(rank, 0, &mut out);
                out[0].0
            })
            .collect();
        assert_eq!(next, [2, 3, 1, 0]);
    }
}
