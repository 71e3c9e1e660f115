//! Takes nodes that only pass on out of a network, so that no member receives less.
//!
//! With a source that gives `copies` to each member, every member has to receive `N · copies`. Replacing `γ` of a link
//! into a node and of one out of it by one that passes it by takes `γ` from the sets that have the node and neither
//! neighbour, and from those that have both and not the node. A node is taken out whole: pair by pair, with as much as
//! the [sets](super::sets) that are known can spare.

use super::carried::NoTrees;
use super::logical::Logical;
use super::sets::{Sets, short};
use crate::cuts::{Network, Supply};

/// `amount` of what comes from the first goes on to the second.
type Bypass = ([u32; 2], u128);

/// Leaves links between members only.
pub(super) fn out(logical: &mut Logical, members: &[u32], copies: u128) -> Result<(), NoTrees> {
    let mut is_member = vec![false; logical.nodes];
    members.iter().for_each(|member| is_member[*member as usize] = true);
    let mut sets = Sets::new(logical.nodes);
    for node in (0..logical.nodes as u32).filter(|node| !is_member[*node as usize]) {
        let around = logical.around(node);
        let sum = |links: &[(u32, u128)]| links.iter().map(|(_, capacity)| capacity).sum::<u128>();
        if sum(&around[0]) != sum(&around[1]) {
            return Err(NoTrees::Lopsided(node));
        }
        let others = logical.capacities().filter(|(ends, _)| !ends.contains(&node)).collect();
        let mut task = Task { node, around, others, members, copies, nodes: logical.nodes };
        for ([from, to], amount) in task.bypasses(&mut sets) {
            logical.bypass(from, node, to, amount);
        }
    }
    Ok(())
}

/// A node to be taken out.
struct Task<'m> {
    node: u32,
    /// The links into it and out of it.
    around: [Vec<(u32, u128)>; 2],
    /// All others.
    others: Vec<Bypass>,
    members: &'m [u32],
    copies: u128,
    nodes: usize,
}

impl Task<'_> {
    /// What replaces its links.
    fn bypasses(&mut self, sets: &mut Sets) -> Vec<Bypass> {
        loop {
            let spare = sets.spare.clone();
            let (bypasses, left) = self.attempt(sets);
            let node = self.node;
            let left = left[0]
                .iter()
                .map(|(from, rest)| ([*from, node], *rest))
                .chain(left[1].iter().map(|(to, rest)| ([node, *to], *rest)));
            let whole = bypasses.iter().filter(|([from, to], _)| from != to).copied();
            let links = self.others.iter().copied().chain(whole).chain(left.clone());
            let network = Network::of_capacities(self.nodes, links.filter(|(_, most)| *most > 0));
            let mut supplies = vec![Supply::Limited(0); self.nodes];
            for member in self.members {
                supplies[*member as usize] = Supply::Limited(self.copies);
            }
            let needed = self.members.len() as u128 * self.copies;
            let sinks = network.nearest_first(self.members);
            let found = short(&network, supplies, &sinks, needed, self.nodes);
            if found.is_empty() {
                let rest: u128 = left.map(|(_, rest)| rest).sum();
                assert_eq!(rest, 0, "what enters a node can always be split off");
                return bypasses;
            }
            sets.spare = spare;
            for set in found {
                let spare = self.spare(&set);
                sets.learn(set, spare);
            }
        }
    }

    /// Pairs what enters with what leaves, as far as the known sets can spare it; and what is left of the links.
    fn attempt(&self, sets: &mut Sets) -> (Vec<Bypass>, [Vec<(u32, u128)>; 2]) {
        let mut left = self.around.clone();
        let mut bypasses = Vec::new();
        let [before, after] = [&self.around[0], &self.around[1]];
        let mut pair = |one: usize, other: usize| {
            let ends = [before[one].0, after[other].0];
            let most = left[0][one].1.min(left[1][other].1);
            let amount = self.take(sets, ends, most);
            left[0][one].1 -= amount;
            left[1][other].1 -= amount;
            if amount > 0 {
                bypasses.push((ends, amount));
            }
        };
        // The one before it first: links past a switch then go round, from each to one other where that is enough, and
        // nobody waits for a port that others share.
        let count = before.len();
        let pairs = (1..=count)
            .flat_map(|by| (0..after.len()).map(move |to| ((to % count + count - by) % count, to)));
        // Nothing comes of what goes back to where it came from.
        let (back, on): (Vec<_>, Vec<_>) =
            pairs.partition(|(from, to)| before[*from].0 == after[*to].0);
        on.into_iter().chain(back).for_each(|(from, to)| pair(from, to));
        (bypasses, left)
    }

    /// Takes what the known sets can spare, `most` at most.
    fn take(&self, sets: &mut Sets, [from, to]: [u32; 2], most: u128) -> u128 {
        // Those with the node and neither neighbour, and those with both and not the node.
        let with =
            sets.of(self.node).iter().filter(|set| !sets.has(**set, from) && !sets.has(**set, to));
        let without =
            sets.of(from).iter().filter(|set| sets.has(**set, to) && !sets.has(**set, self.node));
        let affected: Vec<u32> = with.chain(without).copied().collect();
        let spare = affected.iter().map(|set| sets.spare[*set as usize]).fold(most, u128::min);
        affected.iter().for_each(|set| sets.spare[*set as usize] -= spare);
        spare
    }

    /// How much more leads into a set than has to, as long as the node is there.
    fn spare(&self, set: &[bool]) -> u128 {
        let [before, after] = &self.around;
        let own = before.iter().map(|(from, capacity)| ([*from, self.node], *capacity));
        let own = own.chain(after.iter().map(|(to, capacity)| ([self.node, *to], *capacity)));
        let enters = |[from, to]: [u32; 2]| !set[from as usize] && set[to as usize];
        let links = self.others.iter().copied().chain(own).filter(|(ends, _)| enters(*ends));
        let outside = self.members.iter().filter(|member| !set[**member as usize]).count();
        let needed = outside as u128 * self.copies;
        let entering: u128 = links.map(|(_, capacity)| capacity).sum();
        entering.checked_sub(needed).expect("no set was short before")
    }
}
