//! The critical path of a step: from what was over last back to what it waited for last, and so on,
//! to the end of the iteration before.

use allrail_core::Time;
use allrail_workload::{Purpose, StepGraph, Work};
use serde::Serialize;

use super::record::Ran;

/// A stretch of the critical path.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PathEntry {
    /// `compute`, `communication` or `waiting`.
    pub what: &'static str,
    /// The node's name; of several in a row, the first's and the last's.
    pub name: String,
    /// Whose.
    pub actor: String,
    /// What a communication is for.
    pub purpose: Option<Purpose>,
    /// The dimension that it keeps busy for longest.
    pub dimension: Option<String>,
    /// How long.
    pub time_us: f64,
    /// Of the step.
    pub share: f64,
}

/// One node of the path, latest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Which node.
    pub ran: Ran,
    /// From.
    pub start: Time,
    /// To.
    pub end: Time,
}

/// Walks back from `last` to `from`. `look` gives a node's start, end and cause.
pub fn walk(
    last: Ran,
    from: Time,
    look: impl Fn(Ran) -> Option<(Time, Time, Option<Ran>)>,
) -> Vec<Stretch> {
    let mut path = Vec::new();
    let mut at = Some(last);
    let mut until = None;
    while let Some(ran) = at {
        let Some((start, finish, cause)) = look(ran) else { break };
        let end = until.map_or(finish, |until: Time| finish.min(until));
        if end <= from {
            break;
        }
        path.push(Stretch { ran, start: start.max(from).min(end), end });
        until = Some(start.min(end));
        at = cause;
    }
    path
}

/// The stretches as a table, earliest first: nodes of one kind in a row are one entry.
#[must_use]
pub fn entries(
    path: &[Stretch],
    graph: &StepGraph,
    actor_of: impl Fn(u32) -> String,
    dimension_of: impl Fn(Ran) -> Option<String>,
    step: Time,
) -> Vec<PathEntry> {
    let mut entries: Vec<(PathEntry, Time, String, u32)> = Vec::new();
    let mut before: Option<Time> = None;
    for stretch in path.iter().rev() {
        if let Some(before) = before
            && before < stretch.start
        {
            push(
                &mut entries,
                "waiting",
                "",
                actor_of(stretch.ran.player),
                None,
                None,
                (before, stretch.start),
            );
        }
        before = Some(stretch.end);
        if stretch.start == stretch.end {
            continue;
        }
        let (what, purpose) = match graph.node(stretch.ran.node).work {
            Work::Compute { .. } => ("compute", None),
            Work::Collective { purpose, .. }
            | Work::Send { purpose, .. }
            | Work::Receive { purpose, .. } => ("communication", Some(purpose)),
        };
        let dimension = purpose.and_then(|_| dimension_of(stretch.ran));
        push(
            &mut entries,
            what,
            graph.name(stretch.ran.node),
            actor_of(stretch.ran.player),
            purpose,
            dimension,
            (stretch.start, stretch.end),
        );
    }
    entries
        .into_iter()
        .map(|(mut entry, time, last, nodes)| {
            if nodes > 1 {
                entry.name = format!("{} ... {last} ({nodes} nodes)", entry.name);
            }
            entry.time_us = time.as_us();
            entry.share = time.ratio(step);
            entry
        })
        .collect()
}

fn push(
    entries: &mut Vec<(PathEntry, Time, String, u32)>,
    what: &'static str,
    name: &str,
    actor: String,
    purpose: Option<Purpose>,
    dimension: Option<String>,
    (start, end): (Time, Time),
) {
    let length = end.saturating_sub(start);
    if let Some((entry, time, last, nodes)) = entries.last_mut()
        && entry.what == what
        && entry.actor == actor
        && entry.purpose == purpose
        && entry.dimension == dimension
    {
        *time += length;
        name.clone_into(last);
        *nodes += 1;
        return;
    }
    let entry = PathEntry {
        what,
        name: name.to_owned(),
        actor,
        purpose,
        dimension,
        time_us: 0.0,
        share: 0.0,
    };
    entries.push((entry, length, name.to_owned(), 1));
}

/// The path in words: `62 % of the step waits for dim3 (data, longest: layer41); 30 % computes`.
#[must_use]
pub fn in_words(entries: &[PathEntry]) -> String {
    let mut sums: Vec<(String, f64, f64, String)> = Vec::new();
    for entry in entries {
        let about = match (entry.what, &entry.dimension, entry.purpose) {
            ("compute", ..) => "computes".to_owned(),
            ("waiting", ..) => "waits for others".to_owned(),
            (_, Some(dimension), Some(purpose)) => {
                format!("waits for {dimension}, {}", purpose.words())
            }
            (_, None, Some(purpose)) => format!("waits for {}", purpose.words()),
            _ => "waits".to_owned(),
        };
        match sums.iter_mut().find(|sum| sum.0 == about) {
            Some((_, share, longest, name)) => {
                *share += entry.share;
                if entry.share > *longest {
                    *longest = entry.share;
                    name.clone_from(&entry.name);
                }
            }
            None => sums.push((about, entry.share, entry.share, entry.name.clone())),
        }
    }
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words: Vec<String> = sums
        .iter()
        .filter(|(_, share, ..)| *share >= 0.005)
        .map(|(about, share, longest, name)| {
            let all = format!("{:.0} % of the step {about}", share * 100.0);
            if about == "computes" || name.is_empty() {
                all
            } else if *longest >= share * 0.995 {
                format!("{all}: {name}")
            } else {
                format!("{all}, most of it {name}")
            }
        })
        .collect();
    words.join("; ")
}
