//! What every step graph must satisfy, whoever made it.

use std::collections::BTreeMap;

use allrail_core::{FieldError, counted};

use crate::graph::{ActorId, GroupId, NodeId, StepGraph, Work};

/// Refuses a graph that no driver could run to its end.
pub(crate) fn check(graph: &StepGraph) -> Result<(), FieldError> {
    known(graph)?;
    acyclic(graph)?;
    agreed(graph)
}

fn title(graph: &StepGraph, id: NodeId) -> String {
    let name = graph.name(id);
    if name.is_empty() { format!("node {}", id.0) } else { format!("`{name}` (node {})", id.0) }
}

/// Everything that a node names exists.
fn known(graph: &StepGraph) -> Result<(), FieldError> {
    let missing = |at: NodeId, before: NodeId| {
        FieldError::new(
            "workload",
            title(graph, at),
            format!("it waits for node {}, which does not exist", before.0),
            format!("the graph has the nodes 0 to {}", graph.len().saturating_sub(1)),
        )
    };
    let exists = |id: NodeId| id.index() < graph.len();
    for (group, i) in graph.groups().iter().zip(0u32..) {
        let wrong = |why: &str| {
            FieldError::new(
                format!("workload.groups[{i}]"),
                &group.name,
                why,
                "name the actors whose ranks meet in it",
            )
        };
        if group.actors.is_empty() {
            return Err(wrong("no actor takes part in it"));
        }
        if group.actors.iter().any(|actor| actor.index() >= graph.actors().len()) {
            return Err(wrong("an actor of it does not exist"));
        }
    }
    for id in graph.ids() {
        if let Some(before) = graph.after(id).iter().find(|before| !exists(**before)) {
            return Err(missing(id, *before));
        }
        let node = graph.node(id);
        if let Some(before) =
            graph.after(id).iter().find(|before| graph.node(**before).actor != node.actor)
        {
            return Err(across(graph, id, *before));
        }
        let wrong = |why: String| {
            FieldError::new(
                "workload",
                title(graph, id),
                why,
                "a node belongs to an actor, and a communication to a group of that actor",
            )
        };
        if node.actor.index() >= graph.actors().len() {
            return Err(wrong(format!("its actor {} does not exist", node.actor.0)));
        }
        if let Work::Collective { group, .. }
        | Work::Send { group, .. }
        | Work::Receive { group, .. } = node.work
        {
            let Some(found) = graph.groups().get(group.index()) else {
                return Err(wrong(format!("its group {} does not exist", group.0)));
            };
            if !found.actors.contains(&node.actor) {
                let actor = &graph.actors()[node.actor.index()].name;
                return Err(wrong(format!("{actor} is not in its group `{}`", found.name)));
            }
        }
    }
    for (node, before) in graph.carried() {
        if !exists(*node) {
            return Err(missing(*before, *node));
        }
        if !exists(*before) {
            return Err(missing(*node, *before));
        }
        if graph.node(*node).actor != graph.node(*before).actor {
            return Err(across(graph, *node, *before));
        }
    }
    Ok(())
}

fn across(graph: &StepGraph, id: NodeId, before: NodeId) -> FieldError {
    FieldError::new(
        "workload",
        title(graph, id),
        format!("it waits for {} of another actor", title(graph, before)),
        "actors wait for one another through collectives, or a send and a receive",
    )
}

/// Kahn's algorithm; what is left over holds a cycle, which is walked and printed.
fn acyclic(graph: &StepGraph) -> Result<(), FieldError> {
    // Builders mostly add nodes after what they wait for: then nothing is left to do.
    if graph.ids().all(|id| graph.after(id).iter().all(|before| *before < id)) {
        return Ok(());
    }
    let (starts, successors) = graph.successors();
    let mut missing: Vec<u32> =
        graph.ids().map(|id| u32::try_from(graph.after(id).len()).expect("few")).collect();
    let mut free: Vec<NodeId> = graph.ids().filter(|id| missing[id.index()] == 0).collect();
    let mut done = 0;
    while let Some(id) = free.pop() {
        done += 1;
        let range = starts[id.index()] as usize..starts[id.index() + 1] as usize;
        for next in &successors[range] {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                free.push(*next);
            }
        }
    }
    if done == graph.len() {
        return Ok(());
    }
    let blocked = |id: &NodeId| missing[id.index()] > 0;
    let mut walk = vec![graph.ids().find(blocked).expect("a node is left over")];
    let cycle = loop {
        let last = walk[walk.len() - 1];
        let before = *graph.after(last).iter().find(|id| blocked(id)).expect("it is blocked");
        if let Some(at) = walk.iter().position(|id| *id == before) {
            break walk.split_off(at);
        }
        walk.push(before);
    };
    let mut shown: Vec<String> = cycle.iter().map(|id| title(graph, *id)).collect();
    shown.push(shown[0].clone());
    if shown.len() > 12 {
        let left_out = shown.len() - 10;
        shown.splice(5..shown.len() - 5, [format!("({left_out} more)")]);
    }
    Err(FieldError::new(
        "workload",
        shown[0].clone(),
        format!("its dependencies form a cycle: {}", shown.join(" waits for ")),
        "take one of these dependencies away",
    ))
}

/// The actors of a group agree on what they do in it.
fn agreed(graph: &StepGraph) -> Result<(), FieldError> {
    // Only groups in which several actors meet can disagree.
    let mut collectives: BTreeMap<(GroupId, ActorId), Vec<NodeId>> = BTreeMap::new();
    for id in graph.ids() {
        let node = graph.node(id);
        if let Work::Collective { group, .. } = node.work
            && graph.groups()[group.index()].actors.len() > 1
        {
            collectives.entry((group, node.actor)).or_default().push(id);
        }
    }
    for (i, group) in (0u32..).zip(graph.groups()) {
        if group.actors.len() < 2 {
            continue;
        }
        let of = |actor: ActorId| collectives.get(&(GroupId(i), actor)).map_or(&[][..], |v| v);
        let first = group.actors[0];
        for actor in &group.actors[1..] {
            let (ours, theirs) = (of(first), of(*actor));
            let names = |a: ActorId| &graph.actors()[a.index()].name;
            let wrong = |value: String, why: String| {
                FieldError::new(
                    "workload",
                    value,
                    why,
                    format!(
                        "every member of `{}` runs the same collectives in one order",
                        group.name
                    ),
                )
            };
            for (k, (a, b)) in ours.iter().zip(theirs).enumerate() {
                let (left, right) = (graph.node(*a).work, graph.node(*b).work);
                if left != right {
                    return Err(wrong(
                        title(graph, *a),
                        format!(
                            "collective {k} of group `{}` differs: {} runs {}, {} runs {} in {}",
                            group.name,
                            names(first),
                            said(left),
                            names(*actor),
                            said(right),
                            title(graph, *b),
                        ),
                    ));
                }
            }
            if ours.len() != theirs.len() {
                return Err(wrong(
                    group.name.clone(),
                    format!(
                        "{} runs {} in it, {} runs {}",
                        names(first),
                        counted(ours.len(), "collective"),
                        names(*actor),
                        theirs.len()
                    ),
                ));
            }
        }
    }
    Ok(())
}

fn said(work: Work) -> String {
    match work {
        Work::Collective { operation, bytes, .. } => format!("{operation} of {bytes}"),
        other => format!("{other:?}"),
    }
}
