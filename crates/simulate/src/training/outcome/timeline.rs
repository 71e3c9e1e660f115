//! What happened when, as a table.

use std::collections::BTreeSet;

use allrail_core::DimensionId;
use allrail_workload::{Group, Pass, StepGraph, Work};

use crate::training::communicator::{Ask, Span};
use crate::training::driver::Outcome;
use crate::training::outcome::result::SpanResult;
use crate::training::players::Players;

/// The dimension on which it ran, or those of its group: `dim1+dim2`.
fn track(span: &Span, group: &Group) -> String {
    if let Some(dimension) = span.dimension {
        return DimensionId(dimension).name();
    }
    let parts = group.parts.iter().filter(|part| part.size > 1);
    let spanned: BTreeSet<DimensionId> = parts.map(|part| part.dimension).collect();
    let names: Vec<String> = spanned.into_iter().map(DimensionId::name).collect();
    if names.is_empty() { "network".to_owned() } else { names.join("+") }
}

/// Every compute node and all communication, as they ran.
pub(super) fn timeline(
    graph: &StepGraph,
    players: &Players,
    outcome: &Outcome,
    carried: &[Span],
) -> Vec<SpanResult> {
    let name = |player: u32| graph.actors()[players.actors[player as usize].index()].name.clone();
    // Of an actor whose ranks are players of their own, the first stands for all.
    let shown = |player: u32| {
        let actor = players.actors[player as usize];
        players.actors.iter().position(|other| *other == actor) == Some(player as usize)
    };
    let shown: Vec<bool> = (0..).take(players.len()).map(shown).collect();
    let computed = outcome.spans.iter().filter(|(ran, ..)| shown[ran.player as usize]);
    let computed = computed.map(|(ran, start, end)| SpanResult {
        actor: name(ran.player),
        track: "compute".to_owned(),
        name: graph.name(ran.node).to_owned(),
        operation: None,
        bytes: None,
        group: None,
        group_size: None,
        communication: None,
        pass: match graph.node(ran.node).pass {
            Pass::Forward => Some("forward"),
            Pass::Backward => Some("backward"),
            Pass::Update => Some("update"),
            Pass::Unknown => None,
        },
        purpose: None,
        iteration: ran.iteration,
        start_us: start.as_us(),
        end_us: end.as_us(),
    });
    let carried = carried.iter().filter(|span| shown[span.player as usize]).map(|span| {
        let index = usize::try_from(span.tag).expect("a tag is an index");
        let (ran, ask) = outcome.asked[index];
        let (operation, bytes, process_group) = match ask {
            Ask::Collective { operation, bytes, process_group } => {
                (operation.to_string(), bytes, process_group)
            }
            Ask::Message { bytes, process_group, .. } => ("send".to_owned(), bytes, process_group),
        };
        let process_group = &players.process_groups[process_group as usize];
        let purpose = match graph.node(ran.node).work {
            Work::Collective { purpose, .. }
            | Work::Send { purpose, .. }
            | Work::Receive { purpose, .. } => Some(purpose),
            Work::Compute { .. } => None,
        };
        SpanResult {
            actor: name(span.player),
            track: track(span, &graph.groups()[process_group.group.index()]),
            name: graph.name(ran.node).to_owned(),
            operation: Some(operation),
            bytes: Some(bytes.count()),
            group: Some(graph.groups()[process_group.group.index()].name.clone()),
            group_size: Some(process_group.ranks.len() as u64),
            communication: Some(span.tag),
            pass: None,
            purpose,
            iteration: ran.iteration,
            start_us: span.start.as_us(),
            end_us: span.end.as_us(),
        }
    });
    computed.chain(carried).collect()
}
