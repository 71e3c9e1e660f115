//! Puts ranks and the groups that they name together: who meets whom.
//!
//! A group of the graph stands for all its disjoint instances, so all ranks that meet in alike
//! instances share one. Ranks of different classes that meet in one instance are its actors; the
//! same parts with other actors are another group.

use std::collections::BTreeMap;

use allrail_core::{FieldError, Rank, counted};
use allrail_workload::graph::{Actor, ActorId, Group, GroupId};

use super::groups::{Shape, everyone};
use super::scale::Scaling;

/// What ranks of one class use a placeholder for.
#[derive(Clone, Debug)]
pub(super) enum Use {
    /// Collectives over a shape.
    Collective {
        /// The process group's name; empty where it has none.
        label: String,
        /// Whom it spans, seen from a rank.
        shape: Shape,
        /// Of the shape.
        hash: u64,
    },
    /// Messages between ranks.
    Messages,
}

/// Ranks of the trace that run the same nodes.
pub(super) struct Class {
    pub(super) actor: ActorId,
    /// Of the trace, ascending.
    pub(super) ranks: Vec<u32>,
    pub(super) shapes: Vec<(GroupId, Use)>,
}

/// The groups, and what each placeholder is.
pub(super) struct Groups {
    pub(super) groups: Vec<Group>,
    pub(super) now: Vec<GroupId>,
}

/// Gives an actor all its ranks and a name.
pub(super) fn name(actor: &mut Actor, ranks: &[u32], scaling: &Scaling) {
    let mut all: Vec<Rank> = ranks.iter().flat_map(|rank| scaling.homes(*rank)).map(Rank).collect();
    all.sort_unstable();
    actor.name = match all.len() {
        1 => format!("rank {}", all[0].0),
        many => format!("ranks {}, … ({many})", all[0].0),
    };
    actor.ranks = all;
}

/// Who meets whom; `None` where ranks of one class meet different classes, so that they are not
/// alike after all.
pub(super) fn groups(
    classes: &[Class],
    scaling: &Scaling,
    sizes: &[u32],
) -> Result<Option<Groups>, FieldError> {
    let npus = scaling.ranks as usize * scaling.factor as usize;
    let mut class_of = vec![0u32; npus];
    for (i, class) in (0u32..).zip(classes) {
        for home in class.ranks.iter().flat_map(|rank| scaling.homes(*rank)) {
            class_of[home as usize] = i;
        }
    }
    let placeholders =
        classes.iter().flat_map(|class| &class.shapes).map(|(id, _)| id.index() + 1).max();
    let mut now = vec![GroupId(0); placeholders.unwrap_or(0)];
    let mut known: BTreeMap<(bool, Shape, Vec<ActorId>), GroupId> = BTreeMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let talking: Vec<ActorId> = classes
        .iter()
        .filter(|class| class.shapes.iter().any(|(_, used)| matches!(used, Use::Messages)))
        .map(|class| class.actor)
        .collect();
    for (i, class) in (0u32..).zip(classes) {
        for (placeholder, used) in &class.shapes {
            let (key, name) = match used {
                Use::Messages => {
                    let all = Shape::Parts(everyone(sizes));
                    ((true, all, talking.clone()), "messages".to_owned())
                }
                Use::Collective { label, shape, .. } => {
                    let Some(met) = met(class, shape, scaling, sizes, &class_of) else {
                        return Ok(None);
                    };
                    if !met.contains(&i) {
                        return Err(stranger(label, shape, class));
                    }
                    let actors = met.iter().map(|met| classes[*met as usize].actor).collect();
                    ((false, shape.clone(), actors), title(label, shape))
                }
            };
            let id = *known.entry(key).or_insert_with_key(|(_, shape, actors)| {
                let (parts, ranks) = match shape {
                    Shape::Parts(parts) => (parts.clone(), Vec::new()),
                    Shape::Ranks(ranks) => (Vec::new(), ranks.iter().copied().map(Rank).collect()),
                };
                groups.push(Group { name, parts, ranks, actors: actors.clone() });
                GroupId(u32::try_from(groups.len() - 1).expect("fewer than 2^32 groups"))
            });
            now[placeholder.index()] = id;
        }
    }
    Ok(Some(Groups { groups, now }))
}

/// The classes that each rank of a class meets; `None` where they differ.
fn met(
    class: &Class,
    shape: &Shape,
    scaling: &Scaling,
    sizes: &[u32],
    class_of: &[u32],
) -> Option<Vec<u32>> {
    let mut found: Option<Vec<u32>> = None;
    for home in class.ranks.iter().flat_map(|rank| scaling.homes(*rank)) {
        let mut met: Vec<u32> =
            shape.around(Rank(home), sizes).iter().map(|rank| class_of[*rank as usize]).collect();
        met.sort_unstable();
        met.dedup();
        match &found {
            None => found = Some(met),
            Some(before) if *before == met => {}
            Some(_) => return None,
        }
    }
    found
}

fn title(label: &str, shape: &Shape) -> String {
    let label = if label.is_empty() { String::new() } else { format!("`{label}`, ") };
    match shape {
        Shape::Parts(parts) if parts.is_empty() => format!("{label}one rank"),
        Shape::Parts(parts) => {
            let names: Vec<String> = parts.iter().map(|part| part.dimension.name()).collect();
            format!("{label}{} on {}", counted(shape.members(), "rank"), names.join(", "))
        }
        Shape::Ranks(ranks) => format!("{label}{}", counted(ranks.len(), "rank")),
    }
}

fn stranger(label: &str, shape: &Shape, class: &Class) -> FieldError {
    FieldError::new(
        "workload.model.trace",
        title(label, shape),
        format!("rank {} runs a collective in it and is not one of its ranks", class.ranks[0]),
        "check comm_group.json",
    )
}
