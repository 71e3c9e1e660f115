//! Actors of their own for ranks that are slow.
//!
//! Ranks of one class stay alike if they are slow by one factor and exchange messages, at the same
//! positions, with ranks that are. Each further class becomes an actor beside the first: it has the
//! same nodes, and every group of the class has it as a further member. Peers are positions within a
//! group, so they hold as they are.

use std::collections::BTreeMap;

use allrail_core::Rank;

use crate::error::WorkloadError;
use crate::graph::{Actor, ActorId, Builder, Group, Node, NodeId, StepGraph, Work};
use crate::spec::Straggler;

/// (group, position in its instance, factor) of each slow rank that a rank exchanges messages with;
/// itself first.
type Likeness = Vec<(Option<usize>, u32, f64)>;

/// What tells ranks of one class apart. A rank that is not in it is as all others.
fn likenesses(
    graph: &StepGraph,
    stragglers: &[Straggler],
    sizes: &[u32],
) -> BTreeMap<Rank, Likeness> {
    let mut factors: BTreeMap<Rank, f64> = BTreeMap::new();
    for straggler in stragglers {
        for rank in &straggler.ranks {
            *factors.entry(*rank).or_insert(1.0) *= straggler.factor;
        }
    }
    factors.retain(|_, factor| *factor != 1.0);
    let mut messages = vec![false; graph.groups().len()];
    for id in graph.ids() {
        if let Work::Send { group, .. } | Work::Receive { group, .. } = graph.node(id).work {
            messages[group.index()] = true;
        }
    }
    let mut likenesses: BTreeMap<Rank, Likeness> =
        factors.iter().map(|(rank, factor)| (*rank, vec![(None, 0, *factor)])).collect();
    for (i, group) in graph.groups().iter().enumerate().filter(|(i, _)| messages[*i]) {
        for (rank, factor) in &factors {
            let of_group = |actor: &ActorId| graph.actors()[actor.index()].ranks.contains(rank);
            if !group.actors.iter().any(of_group) {
                continue;
            }
            let members = members(group, *rank, sizes);
            let position = members.iter().position(|member| member == rank).unwrap_or(0);
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            for member in members.into_iter().filter(|member| member != rank) {
                likenesses.entry(member).or_default().push((Some(i), position, *factor));
            }
        }
    }
    likenesses
}

/// The ranks of the instance of a group that a rank is in, by position.
fn members(group: &Group, rank: Rank, sizes: &[u32]) -> Vec<Rank> {
    if group.parts.is_empty() {
        return group.ranks.clone();
    }
    let mut members = vec![rank.0];
    for part in group.parts.iter().rev() {
        let below: u32 = sizes[..part.dimension.index()].iter().product();
        let step = below * part.stride;
        let origin = |member: u32| member - member / step % part.size * step;
        members = members
            .into_iter()
            .flat_map(|member| (0..part.size).map(move |k| (member, k)))
            .map(|(member, k)| origin(member) + k * step)
            .collect();
    }
    members.into_iter().map(Rank).collect()
}

/// A graph in which every straggler has its actor, and each actor's factor. `sizes` are those of
/// the fabric's dimensions.
///
/// # Errors
/// The new graph does not pass its checks: never, where the old one did.
pub fn stragglers(
    graph: StepGraph,
    stragglers: &[Straggler],
    sizes: &[u32],
) -> Result<(StepGraph, Vec<f64>), WorkloadError> {
    if stragglers.is_empty() {
        let slow = vec![1.0; graph.actors().len()];
        return Ok((graph, slow));
    }
    let likenesses = likenesses(&graph, stragglers, sizes);
    let alike = Likeness::new();
    let mut builder = Builder::default();
    let mut slow = Vec::new();
    // By old actor: its new ones.
    let mut copies: Vec<Vec<ActorId>> = Vec::new();
    for actor in graph.actors() {
        let mut classes: Vec<(&Likeness, Vec<Rank>)> = vec![(&alike, Vec::new())];
        for rank in &actor.ranks {
            let likeness = likenesses.get(rank).unwrap_or(&alike);
            match classes.iter_mut().find(|(other, _)| *other == likeness) {
                Some((_, ranks)) => ranks.push(*rank),
                None => classes.push((likeness, vec![*rank])),
            }
        }
        let mut ours = Vec::new();
        for (likeness, ranks) in classes.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            let own = likeness.iter().find(|(group, ..)| group.is_none());
            let name = match (own, ranks.as_slice()) {
                _ if likeness.is_empty() => actor.name.clone(),
                (_, [only]) => format!("{} ({only})", actor.name),
                (Some(_), many) => format!("{} ({} slow ranks)", actor.name, many.len()),
                (None, many) => format!("{} ({} beside slow ranks)", actor.name, many.len()),
            };
            ours.push(builder.actor(Actor { name, ranks }));
            slow.push(own.map_or(1.0, |(_, _, factor)| *factor));
        }
        copies.push(ours);
    }
    for group in graph.groups() {
        let mut actors: Vec<ActorId> =
            group.actors.iter().flat_map(|actor| copies[actor.index()].clone()).collect();
        actors.sort_unstable();
        builder.group(Group { actors, ..group.clone() });
    }
    // Copy k of old node n; those of an actor are consecutive in k.
    let mut ids: Vec<Vec<NodeId>> = Vec::with_capacity(graph.len());
    let mut total = 0u32;
    for id in graph.ids() {
        let count = u32::try_from(copies[graph.node(id).actor.index()].len()).unwrap_or(u32::MAX);
        ids.push((total..total + count).map(NodeId).collect());
        total += count;
    }
    // An actor's nodes wait for nodes of the same actor, copy for copy.
    let same = |before: NodeId, copy: usize| {
        let all = &ids[before.index()];
        all[copy.min(all.len() - 1)]
    };
    for id in graph.ids() {
        let node = graph.node(id);
        for (copy, actor) in copies[node.actor.index()].iter().enumerate() {
            let after: Vec<NodeId> =
                graph.after(id).iter().map(|before| same(*before, copy)).collect();
            let made = builder.node(graph.name(id), Node { actor: *actor, ..node }, &after);
            builder.mark_as(made, &graph, id);
        }
    }
    for (node, before) in graph.carried() {
        for (copy, id) in ids[node.index()].iter().enumerate() {
            builder.carry(*id, same(*before, copy));
        }
    }
    Ok((builder.finish()?, slow))
}
