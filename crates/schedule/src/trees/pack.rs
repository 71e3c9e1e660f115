//! Grows trees over links between members, many copies at once.
//!
//! A *batch* is some copies of one root's data and the members that have it. Batches can all be completed if and only if
//! into every set of members leads as much as there are copies of which no member of the set has anything (Edmonds 1973).
//! One more step of a batch, from `x` that has the data to `y` that has not, takes from sets with `y` and without `x`, and they
//! have to spare
//!
//! ```text
//! max-flow to y, where x gives what it likes and each other batch once what it has copies of, less all copies of other batches
//! ```
//!
//! So many copies take the step, the others stay where they are as a batch of their own.

use super::carried::{Edge, Tree};
use super::logical::Logical;
use crate::cuts::{Flow, Network, Supply};

struct Batch {
    multiplicity: u128,
    /// Members that have the data, in the order in which they get it.
    has: Vec<u32>,
    /// The steps.
    edges: Vec<[u32; 2]>,
}

/// The trees of all members, so many copies each.
pub(super) fn all(logical: &mut Logical, members: &[u32], copies: u128) -> Vec<Tree> {
    let mut left = Links(logical.capacities().collect());
    let mut trees = Vec::new();
    for (place, &root) in members.iter().enumerate() {
        let mut batches = vec![Batch { multiplicity: copies, has: vec![root], edges: Vec::new() }];
        let later = &members[place + 1..];
        while let Some(mut batch) = batches.pop() {
            while batch.has.len() < members.len() {
                let rest = step(&mut left, logical.nodes, &mut batch, &batches, later, copies);
                batches.extend(rest);
            }
            trees.push(tree(logical, root, &batch));
        }
    }
    trees
}

/// Capacities that no tree has taken.
struct Links(Vec<([u32; 2], u128)>);

/// Lets a batch take one step with as many copies as can; the others are left as a batch.
fn step(
    left: &mut Links,
    nodes: usize,
    batch: &mut Batch,
    others: &[Batch],
    later: &[u32],
    copies: u128,
) -> Option<Batch> {
    for at in 0..batch.has.len() {
        let from = batch.has[at];
        for link in 0..left.0.len() {
            let ([tail, to], capacity) = left.0[link];
            if tail != from || capacity == 0 || batch.has.contains(&to) {
                continue;
            }
            let most = capacity.min(batch.multiplicity);
            let spare = spare(left, nodes, [from, to], most, others, later, copies);
            if spare == 0 {
                continue;
            }
            left.0[link].1 -= spare;
            let rest = batch.multiplicity - spare;
            let rest = (rest > 0).then(|| Batch {
                multiplicity: rest,
                has: batch.has.clone(),
                edges: batch.edges.clone(),
            });
            batch.multiplicity = spare;
            batch.has.push(to);
            batch.edges.push([from, to]);
            return rest;
        }
    }
    unreachable!("what leads into every set is enough for all batches")
}

/// With how many copies a batch can take a step, `most` at most.
fn spare(
    left: &Links,
    nodes: usize,
    [from, to]: [u32; 2],
    most: u128,
    others: &[Batch],
    later: &[u32],
    copies: u128,
) -> u128 {
    let links = left.0.iter().copied().filter(|(_, capacity)| *capacity > 0);
    // Each of the root's other batches is a node that gives its copies to all that have them.
    let hubs = (nodes as u32..).zip(others).flat_map(|(hub, other)| {
        other.has.iter().map(move |member| ([hub, *member], other.multiplicity))
    });
    let nodes_and_hubs = nodes + others.len();
    let network = Network::of_capacities(nodes_and_hubs, links.chain(hubs));
    let mut flow = Flow::new(&network, vec![Supply::Limited(0); nodes_and_hubs]);
    later.iter().for_each(|member| flow.give(*member, Supply::Limited(copies)));
    for (hub, other) in (nodes as u32..).zip(others) {
        flow.give(hub, Supply::Limited(other.multiplicity));
    }
    flow.give(from, Supply::Unlimited);
    let of_others =
        later.len() as u128 * copies + others.iter().map(|other| other.multiplicity).sum::<u128>();
    flow.reach(to, of_others + most) - of_others
}

/// A grown batch, on the paths of its links.
fn tree(logical: &mut Logical, root: u32, batch: &Batch) -> Tree {
    let edges = batch.edges.iter().map(|&[from, to]| {
        let paths = logical.take(from, to, batch.multiplicity);
        Edge { from, to, paths }
    });
    Tree { root, multiplicity: batch.multiplicity, edges: edges.collect() }
}
