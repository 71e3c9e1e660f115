//! Actors of their own for ranks that are slow.
//!
//! Ranks of one class stay alike if they are slow by one factor and exchange messages, at the same
//! positions, with ranks that are alike, too: the coarsest such division is found as that of a
//! colouring is (1-dimensional Weisfeiler and Leman), of the ranks alone that messages join to slow
//! ones, over whatever others. Each further class becomes an actor beside the first: it has the
//! same nodes, and every group of the class has it as a further member. Peers are positions within a
//! group, so they hold as they are. A rank that is slow in drawn iterations is like no other.

use std::collections::{BTreeMap, BTreeSet};

use allrail_core::{FieldError, Rank};

use crate::graph::{Actor, ActorId, Builder, Group, Node, NodeId, StepGraph, Work};
use crate::perturbation::SlowNowAndThen;
use crate::spec::Straggler;

/// What a rank is slow by, and its classes.
struct Classes {
    /// Of ranks that are always slow.
    factors: BTreeMap<Rank, f64>,
    /// Of ranks that are slow in some iterations.
    drawn: BTreeMap<Rank, Vec<SlowNowAndThen>>,
    /// Of ranks that are slow or that messages join to one. All others are alike.
    class: BTreeMap<Rank, usize>,
}

/// Of the message groups that a rank is in: which, its position, and the classes of all members.
type Neighbours = Vec<(usize, usize, Vec<usize>)>;

fn classes(graph: &StepGraph, stragglers: &[Straggler], sizes: &[u32]) -> Classes {
    let mut factors: BTreeMap<Rank, f64> = BTreeMap::new();
    let mut drawn: BTreeMap<Rank, Vec<SlowNowAndThen>> = BTreeMap::new();
    for (entry, straggler) in (0u32..).zip(stragglers) {
        let factor = straggler.factor;
        for rank in straggler.ranks.iter().copied() {
            match straggler.probability.filter(|_| factor != 1.0) {
                Some(probability) => {
                    let one = SlowNowAndThen { rank, entry, factor, probability };
                    let known = drawn.entry(rank).or_default();
                    // Named twice in one entry, a rank is drawn once.
                    if known.last().is_none_or(|last| last.entry != entry) {
                        known.push(one);
                    }
                }
                None => *factors.entry(rank).or_insert(1.0) *= factor,
            }
        }
    }
    factors.retain(|_, factor| *factor != 1.0);
    let slow: BTreeSet<Rank> = factors.keys().chain(drawn.keys()).copied().collect();
    let joined = joined(graph, &slow, sizes);
    // Classes are numbered in the order of what tells them apart, so that numbers say nothing of ranks.
    let factor = |rank: &Rank| {
        let own = drawn.get_key_value(rank).map(|(rank, _)| *rank);
        (factors.get(rank).copied().unwrap_or(1.0).to_bits(), own)
    };
    let mut class = numbered(joined.keys().map(|rank| (*rank, factor(rank))));
    let mut count = 0;
    loop {
        let found = class.values().collect::<BTreeSet<_>>().len();
        if found == count {
            return Classes { factors, drawn, class };
        }
        count = found;
        // A rank that runs nothing is in no class.
        let class_of = |rank: &Rank| class.get(rank).copied().unwrap_or(usize::MAX);
        let neighbours = |rank: &Rank| -> Neighbours {
            let of = |(group, members): &(usize, Vec<Rank>)| {
                let own = members.iter().position(|member| member == rank).unwrap_or(0);
                (*group, own, members.iter().map(class_of).collect())
            };
            joined[rank].iter().map(of).collect()
        };
        class = numbered(joined.keys().map(|rank| (*rank, (class_of(rank), neighbours(rank)))));
    }
}

/// The places of keys among all of them.
fn numbered<K: Ord + Clone>(keys: impl Iterator<Item = (Rank, K)>) -> BTreeMap<Rank, usize> {
    let keys: BTreeMap<Rank, K> = keys.collect();
    let places: BTreeMap<K, usize> =
        keys.values().cloned().collect::<BTreeSet<_>>().into_iter().zip(0..).collect();
    keys.into_iter().map(|(rank, key)| (rank, places[&key])).collect()
}

/// The ranks that messages join to a slow one, over whatever others, with their message groups: which, and the
/// members of the rank's own.
fn joined(
    graph: &StepGraph,
    slow: &BTreeSet<Rank>,
    sizes: &[u32],
) -> BTreeMap<Rank, Vec<(usize, Vec<Rank>)>> {
    let mut messages = vec![false; graph.groups().len()];
    for id in graph.ids() {
        if let Work::Send { group, .. } | Work::Receive { group, .. } = graph.node(id).work {
            messages[group.index()] = true;
        }
    }
    let mut actors: BTreeMap<Rank, usize> = BTreeMap::new();
    for (i, actor) in graph.actors().iter().enumerate() {
        actors.extend(actor.ranks.iter().map(|rank| (*rank, i)));
    }
    let mut joined = BTreeMap::new();
    let mut left: Vec<Rank> = slow.iter().copied().collect();
    while let Some(rank) = left.pop() {
        let Some(actor) = actors.get(&rank).filter(|_| !joined.contains_key(&rank)) else {
            continue;
        };
        let groups = graph.groups().iter().enumerate().filter(|(i, group)| {
            messages[*i] && group.actors.iter().any(|member| member.index() == *actor)
        });
        let own: Vec<(usize, Vec<Rank>)> =
            groups.map(|(i, group)| (i, members(group, rank, sizes))).collect();
        left.extend(own.iter().flat_map(|(_, members)| members).copied());
        joined.insert(rank, own);
    }
    joined
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

/// Of every actor, its factor and what is drawn of it.
pub type Slow = (Vec<f64>, Vec<Vec<SlowNowAndThen>>);

/// A graph in which every straggler has its actor, and how slow each actor is. `sizes` are those of
/// the fabric's dimensions.
///
/// # Errors
/// The new graph does not pass its checks: never, where the old one did.
pub fn stragglers(
    graph: StepGraph,
    stragglers: &[Straggler],
    sizes: &[u32],
) -> Result<(StepGraph, Slow), FieldError> {
    if stragglers.is_empty() {
        let slow = (vec![1.0; graph.actors().len()], Vec::new());
        return Ok((graph, slow));
    }
    let found = classes(&graph, stragglers, sizes);
    let mut builder = Builder::default();
    let mut slow: Slow = (Vec::new(), Vec::new());
    // By old actor: its new ones.
    let mut copies: Vec<Vec<ActorId>> = Vec::new();
    for actor in graph.actors() {
        let mut classes: Vec<(Option<usize>, Vec<Rank>)> = vec![(None, Vec::new())];
        for rank in &actor.ranks {
            let class = found.class.get(rank).copied();
            match classes.iter_mut().find(|(other, _)| *other == class) {
                Some((_, ranks)) => ranks.push(*rank),
                None => classes.push((class, vec![*rank])),
            }
        }
        let mut ours = Vec::new();
        for (class, ranks) in classes.into_iter().filter(|(_, ranks)| !ranks.is_empty()) {
            let first = ranks[0];
            let own = found.factors.get(&first).copied();
            let name = match (own, ranks.as_slice()) {
                _ if class.is_none() => actor.name.clone(),
                (_, [only]) => format!("{} ({only})", actor.name),
                (Some(_), many) => format!("{} ({} slow ranks)", actor.name, many.len()),
                (None, many) => format!("{} ({} beside slow ranks)", actor.name, many.len()),
            };
            ours.push(builder.actor(Actor { name, ranks }));
            slow.0.push(own.unwrap_or(1.0));
            slow.1.push(found.drawn.get(&first).cloned().unwrap_or_default());
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
