//! Takes nodes that only pass on out of a network, so that no member receives less.
//!
//! With a source that gives `copies` to each member, every member has to receive `N · copies`. Replacing `γ` of a link
//! into a node and of one out of it by one that passes it by takes `γ` from the sets that have one of the neighbours and either keep
//! the node out or the other neighbour, and from no others. So `γ` is what those sets have to spare, and each is the
//! smallest cut between some nodes.

use super::carried::NoTrees;
use super::logical::Logical;
use crate::cuts::{Flow, Network, Supply};

/// Leaves links between members only.
pub(super) fn out(logical: &mut Logical, members: &[u32], copies: u128) -> Result<(), NoTrees> {
    let mut is_member = vec![false; logical.nodes];
    members.iter().for_each(|member| is_member[*member as usize] = true);
    for node in (0..logical.nodes as u32).filter(|node| !is_member[*node as usize]) {
        let [before, after] = logical.around(node);
        let sum = |of: &dyn Fn(&u32) -> u128, nodes: &[u32]| -> u128 { nodes.iter().map(of).sum() };
        let enters = sum(&|other| logical.capacity(*other, node), &before);
        if enters != sum(&|other| logical.capacity(node, *other), &after) {
            return Err(NoTrees::Lopsided(node));
        }
        for to in after {
            // The one before it first: links past a switch then go round, from each to one other where that is
            // enough, and nobody waits for a port that others share.
            let first = before.partition_point(|from| *from < to);
            for from in before[..first].iter().rev().chain(before[first..].iter().rev()) {
                let most = logical.capacity(*from, node).min(logical.capacity(node, to));
                if most > 0 {
                    let spare = spare(logical, members, copies, [*from, node, to], most);
                    if spare > 0 {
                        logical.bypass(*from, node, to, spare);
                    }
                }
            }
            assert_eq!(logical.capacity(node, to), 0, "what enters a node can always be split off");
        }
    }
    Ok(())
}

/// How much of `from → by → to` can pass `by`, `most` at most.
fn spare(
    logical: &Logical,
    members: &[u32],
    copies: u128,
    [from, by, to]: [u32; 3],
    most: u128,
) -> u128 {
    let needed = members.len() as u128 * copies;
    let links: Vec<([u32; 2], u128)> = logical.capacities().collect();
    let whole = links.iter().map(|(_, capacity)| capacity).sum::<u128>() + needed;
    let mut least = most;
    // The first of `inside` is the sink, and the others keep to its side; `outside` keeps to the source's.
    let mut with = |outside: &[u32], inside: [u32; 3]| {
        let sink = inside[0];
        let ties = inside.iter().filter(|node| **node != sink).map(|node| ([*node, sink], whole));
        let network = Network::of_capacities(logical.nodes, links.iter().copied().chain(ties));
        let mut flow = Flow::new(&network, vec![Supply::Limited(0); logical.nodes]);
        members.iter().for_each(|member| flow.give(*member, Supply::Limited(copies)));
        outside.iter().for_each(|node| flow.give(*node, Supply::Unlimited));
        least = least.min(flow.reach(sink, needed + least) - needed);
    };
    for member in members.iter().filter(|member| ![from, to].contains(member)) {
        with(&[from, to], [by, *member, *member]);
    }
    // Where a neighbour is a member, it is the one that is kept out.
    let kept_out: Vec<u32> =
        members.iter().copied().filter(|one| [from, to].contains(one)).collect();
    for member in if kept_out.is_empty() { members } else { &kept_out[..1] } {
        with(&[by], [from, to, *member]);
    }
    least
}
