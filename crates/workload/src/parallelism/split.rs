//! Actors of their own for ranks that are slow.
//!
//! Ranks of one class that are slow by one factor become an actor beside it: it has the class's
//! nodes, and every group of the class has it as a further member. Peers are positions within a
//! group, so they hold as they are.

use crate::error::WorkloadError;
use crate::graph::{Actor, ActorId, Builder, Group, Node, NodeId, StepGraph};
use crate::spec::Straggler;

/// A graph in which every straggler has its actor, and each actor's factor.
///
/// # Errors
/// The new graph does not pass its checks: never, where the old one did.
pub fn stragglers(
    graph: StepGraph,
    stragglers: &[Straggler],
) -> Result<(StepGraph, Vec<f64>), WorkloadError> {
    if stragglers.is_empty() {
        let slow = vec![1.0; graph.actors().len()];
        return Ok((graph, slow));
    }
    let factor_of = |rank| {
        let of = stragglers.iter().filter(|straggler| straggler.ranks.contains(&rank));
        of.map(|straggler| straggler.factor).fold(1.0, |product: f64, factor| product * factor)
    };
    let mut builder = Builder::default();
    let mut slow = Vec::new();
    // By old actor: its new ones.
    let mut copies: Vec<Vec<ActorId>> = Vec::new();
    for actor in graph.actors() {
        let mut classes: Vec<(f64, Vec<_>)> = vec![(1.0, Vec::new())];
        for rank in &actor.ranks {
            let factor = factor_of(*rank);
            match classes.iter_mut().find(|(other, _)| *other == factor) {
                Some((_, ranks)) => ranks.push(*rank),
                None => classes.push((factor, vec![*rank])),
            }
        }
        let mut ours = Vec::new();
        for (factor, ranks) in classes {
            if ranks.is_empty() {
                continue;
            }
            let name = match ranks.as_slice() {
                _ if factor == 1.0 => actor.name.clone(),
                [only] => format!("{} ({only})", actor.name),
                many => format!("{} ({} slow ranks)", actor.name, many.len()),
            };
            ours.push(builder.actor(Actor { name, ranks }));
            slow.push(factor);
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
            builder.node(graph.name(id), Node { actor: *actor, ..node }, &after);
        }
    }
    for (node, before) in graph.carried() {
        for (copy, id) in ids[node.index()].iter().enumerate() {
            builder.carry(*id, same(*before, copy));
        }
    }
    Ok((builder.finish()?, slow))
}
