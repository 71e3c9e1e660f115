//! Grows trees over links between members, many copies at once.
//!
//! A *batch* is some copies of one root's data and the members that have it. Batches can all be completed if and only if
//! into every set of members leads as much as there are copies of which no member of the set has anything (Edmonds 1973).
//! One more step of a batch, from `x` that has the data to `y` that has not, takes from the sets with `y` and without
//! `x`; those that no member of the batch is in need it less from then on.
//!
//! A tree is grown whole, members nearest to the root first and over links with most left, by steps that the
//! [sets](super::sets) that are known can spare. Then flows to all members that were reached say whether there are others.
//! Where no step is left for all copies of a batch, as many as can take one go on, and the others stay where they are as a
//! batch of their own.

use std::cmp::Reverse;

use super::carried::{Edge, Tree};
use super::logical::Logical;
use super::sets::{Sets, short};
use crate::cuts::{Network, Supply};

#[derive(Clone)]
struct Batch {
    multiplicity: u128,
    /// Members that have the data, in the order in which they get it.
    has: Vec<u32>,
    /// The steps.
    edges: Vec<[u32; 2]>,
}

/// The trees of all members, so many copies each.
pub(super) fn all(logical: &mut Logical, members: &[u32], copies: u128) -> Vec<Tree> {
    let mut packing = Packing::new(logical, members, copies);
    let mut trees = Vec::new();
    for (place, &root) in members.iter().enumerate() {
        packing.later = &members[place + 1..];
        let mut batches = vec![Batch { multiplicity: copies, has: vec![root], edges: Vec::new() }];
        while let Some(batch) = batches.pop() {
            let grown = packing.grow(&batch, &mut batches);
            trees.push(tree(logical, root, &grown));
        }
    }
    trees
}

struct Packing<'m> {
    nodes: usize,
    members: usize,
    links: Vec<[u32; 2]>,
    /// By node, the links that leave it.
    leaving: Vec<Vec<u32>>,
    /// Capacities that no tree has taken.
    left: Vec<u128>,
    sets: Sets,
    /// Whether a member of the batch that grows is in each set.
    entered: Vec<bool>,
    /// Roots whose trees are yet to come.
    later: &'m [u32],
    copies: u128,
}

impl<'m> Packing<'m> {
    fn new(logical: &Logical, members: &'m [u32], copies: u128) -> Self {
        let (links, left): (Vec<[u32; 2]>, Vec<u128>) = logical.capacities().unzip();
        let mut leaving = vec![Vec::new(); logical.nodes];
        for (number, [from, _]) in (0u32..).zip(&links) {
            leaving[*from as usize].push(number);
        }
        Self {
            nodes: logical.nodes,
            members: members.len(),
            links,
            leaving,
            left,
            sets: Sets::new(logical.nodes),
            entered: Vec::new(),
            later: members,
            copies,
        }
    }

    /// Completes a batch; copies that cannot keep up with it are left beside the `others`.
    fn grow(&mut self, batch: &Batch, others: &mut Vec<Batch>) -> Batch {
        loop {
            let (left, spare, count) = (self.left.clone(), self.sets.spare.clone(), others.len());
            let grown = self.attempt(batch.clone(), others);
            let found = self.short(&grown, others, &grown.has[batch.has.len()..]);
            if found.is_empty() {
                assert_eq!(grown.has.len(), self.members, "a batch can always be completed");
                return grown;
            }
            (self.left, self.sets.spare) = (left, spare);
            others.truncate(count);
            for set in found {
                let spare = self.spare(&set, others.iter().chain([batch]));
                self.sets.learn(set, spare);
            }
        }
    }

    /// Takes steps with a batch for as long as the known sets let it.
    fn attempt(&mut self, mut batch: Batch, others: &mut Vec<Batch>) -> Batch {
        let mut reached = vec![false; self.nodes];
        batch.has.iter().for_each(|member| reached[*member as usize] = true);
        self.entered.clear();
        self.entered.resize(self.sets.len(), false);
        for set in batch.has.iter().flat_map(|member| self.sets.of(*member)) {
            self.entered[*set as usize] = true;
        }
        let mut refused: Vec<u32> = Vec::new();
        // Who has the data may have had it for long, but not these.
        let mut first = 0;
        while batch.has.len() < self.members {
            let next = batch.has.len();
            let steps = batch.has[first..].iter().flat_map(|from| &self.leaving[*from as usize]);
            let mut steps: Vec<u32> =
                steps.copied().filter(|link| self.left[*link as usize] > 0).collect();
            steps.sort_by_key(|link| Reverse(self.left[*link as usize]));
            for link in steps {
                let [_, to] = self.links[link as usize];
                if reached[to as usize] {
                    continue;
                }
                if self.room(link, batch.multiplicity) < batch.multiplicity {
                    refused.push(link);
                    continue;
                }
                reached[to as usize] = true;
                self.step(link, &mut batch);
            }
            first = next;
            if batch.has.len() > next {
                continue;
            }
            refused.retain(|link| !reached[self.links[*link as usize][1] as usize]);
            let rooms = refused.iter().map(|link| (self.room(*link, batch.multiplicity), *link));
            let Some((room, link)) = rooms.max_by_key(|(room, link)| (*room, Reverse(*link)))
            else {
                break;
            };
            if room == 0 {
                break;
            }
            others.push(Batch { multiplicity: batch.multiplicity - room, ..batch.clone() });
            batch.multiplicity = room;
            reached[self.links[link as usize][1] as usize] = true;
            self.step(link, &mut batch);
            // Fewer copies may go where all could not.
            refused.clear();
            first = 0;
        }
        batch
    }

    /// How many copies of the batch that grows can go over a link, `most` at most.
    fn room(&self, link: u32, most: u128) -> u128 {
        let [from, to] = self.links[link as usize];
        let sets = self.sets.of(to).iter();
        let affected =
            sets.filter(|set| self.entered[**set as usize] && !self.sets.has(**set, from));
        let spare = affected.map(|set| self.sets.spare[*set as usize]);
        spare.fold(most.min(self.left[link as usize]), u128::min)
    }

    fn step(&mut self, link: u32, batch: &mut Batch) {
        let [from, to] = self.links[link as usize];
        self.left[link as usize] -= batch.multiplicity;
        let Self { sets, entered, .. } = self;
        for &set in &sets.of[to as usize] {
            let before = std::mem::replace(&mut entered[set as usize], true);
            if before && !sets.inside[set as usize][from as usize] {
                sets.spare[set as usize] -= batch.multiplicity;
            }
        }
        batch.has.push(to);
        batch.edges.push([from, to]);
    }

    /// Sets with one of `reached` into which too little leads for all batches.
    fn short(&self, grown: &Batch, others: &[Batch], reached: &[u32]) -> Vec<Vec<bool>> {
        let open = (grown.has.len() < self.members).then_some(grown);
        let batches: Vec<&Batch> = others.iter().chain(open).collect();
        let links = self.links.iter().copied().zip(self.left.iter().copied());
        let links = links.filter(|(_, capacity)| *capacity > 0);
        // Each batch is a node that gives its copies to all that have them.
        let hubs = (self.nodes as u32..).zip(&batches).flat_map(|(hub, batch)| {
            batch.has.iter().map(move |member| ([hub, *member], batch.multiplicity))
        });
        let network = Network::of_capacities(self.nodes + batches.len(), links.chain(hubs));
        let mut supplies = vec![Supply::Limited(0); self.nodes];
        for member in self.later {
            supplies[*member as usize] = Supply::Limited(self.copies);
        }
        supplies.extend(batches.iter().map(|batch| Supply::Limited(batch.multiplicity)));
        let of_batches: u128 = batches.iter().map(|batch| batch.multiplicity).sum();
        let needed = self.later.len() as u128 * self.copies + of_batches;
        short(&network, supplies, reached, needed, self.nodes)
    }

    /// How much more leads into a set than has to.
    fn spare<'b>(&self, set: &[bool], batches: impl Iterator<Item = &'b Batch>) -> u128 {
        let enters = |[from, to]: [u32; 2]| !set[from as usize] && set[to as usize];
        let links = self.links.iter().zip(&self.left).filter(|(ends, _)| enters(**ends));
        let outside = self.later.iter().filter(|root| !set[**root as usize]).count();
        let waits = |batch: &&Batch| batch.has.iter().all(|member| !set[*member as usize]);
        let of_batches: u128 = batches.filter(waits).map(|batch| batch.multiplicity).sum();
        let needed = outside as u128 * self.copies + of_batches;
        let entering: u128 = links.map(|(_, capacity)| capacity).sum();
        entering.checked_sub(needed).expect("no set was short before")
    }
}

/// A grown batch, on the paths of its links.
fn tree(logical: &mut Logical, root: u32, batch: &Batch) -> Tree {
    let edges = batch.edges.iter().map(|&[from, to]| {
        let paths = logical.take(from, to, batch.multiplicity);
        Edge { from, to, paths }
    });
    Tree { root, multiplicity: batch.multiplicity, edges: edges.collect() }
}
