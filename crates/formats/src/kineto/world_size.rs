//! How many ranks a job has, by what its traces say.
//!
//! A trace says it itself (`distributedInfo`), or its groups show it: by their ranks, their sizes, the splits
//! of an all-to-all, how many times as large the result of a gather is. Several traces without a word of it
//! are of as many ranks. One that communicates and says nothing is asked about: `npus`.

use std::path::{Path, PathBuf};

use allrail_core::{FieldError, counted};

use super::events::Events;
use super::said::{MOST_RANKS, Said, Whom};
use super::trace::sizes;

/// How many ranks there are; `npus` is how many there are said to be.
///
/// # Errors
/// Traces contradict each other or `npus`, there are too many, or nothing says it.
pub(super) fn world_size(
    traces: &[(PathBuf, Events)],
    npus: Option<u32>,
) -> Result<u32, FieldError> {
    let mut told = traces.iter().filter_map(|(path, events)| Some((path, events.world_size?)));
    let first = told.next();
    if let Some((first, world_size)) = first
        && let Some((other, others)) = told.find(|(_, others)| *others != world_size)
    {
        let why = format!(
            "it is of {}, and {} of {world_size}",
            counted(others, "rank"),
            first.display()
        );
        return Err(super::wrong(other, why, "give one trace, or one of each rank of one job"));
    }
    let told = first.map(|(_, world_size)| world_size);
    let shown = traces.iter().map(|(_, events)| shown(events)).max().unwrap_or(1);
    let given = u32::try_from(traces.len()).unwrap_or(u32::MAX);
    let world_size = shown.max(told.unwrap_or(1));
    let wrong =
        |why: String| FieldError::new("file", given, why, "give one trace, or one of each rank");
    if world_size > MOST_RANKS {
        return Err(wrong(format!(
            "its groups name {world_size}",
            world_size = counted(world_size, "rank")
        )));
    }
    if let Some(npus) = npus {
        return said(npus, world_size, told, given);
    }
    if told.is_none() {
        if given > 1 && given >= world_size {
            return Ok(given.min(MOST_RANKS));
        }
        if let [(path, events)] = traces {
            check_told(path, events, world_size)?;
        }
    }
    if given > 1 && given != world_size {
        return Err(wrong(format!(
            "{given} traces are given, and the job has {}",
            counted(world_size, "rank")
        )));
    }
    Ok(world_size)
}

/// What `npus` says, if it contradicts nothing.
fn said(npus: u32, world_size: u32, told: Option<u32>, given: u32) -> Result<u32, FieldError> {
    let wrong = |why: String, hint: &str| Err(FieldError::new("npus", npus, why, hint));
    if npus == 0 || npus > MOST_RANKS {
        return wrong("no job has so many ranks".to_owned(), "say how many ranks it had");
    }
    match told {
        Some(told) if told != npus => wrong(
            format!("the trace is of {}", counted(told, "rank")),
            "leave it out; to repeat what was imported over more, import its `.0.et` with `--npus`",
        ),
        _ if npus < world_size => wrong(
            format!(
                "the trace's process groups have {world_size}",
                world_size = counted(world_size, "rank")
            ),
            "say how many ranks the job had",
        ),
        _ if given > 1 && given != npus => {
            wrong(format!("{given} traces are given"), "give one trace, or one of each rank")
        }
        _ => Ok(npus),
    }
}

/// Asks how many ranks the job of a lone trace had, where it communicates and nothing in it tells.
fn check_told(path: &Path, events: &Events, world_size: u32) -> Result<(), FieldError> {
    let communicates = |said: &&Said| said.kind().is_some() && said.members() != Some(1);
    let rank = events.rank.unwrap_or(0);
    if events.said().any(|said| communicates(&said)) && (world_size == 1 || rank >= world_size) {
        let why = "it communicates, and does not say among how many ranks";
        let hint = "say how many ranks the job had by `--npus N`";
        return Err(super::wrong(path, why.to_owned(), hint));
    }
    Ok(())
}

/// How many ranks the process groups of a trace have at least.
fn shown(events: &Events) -> u32 {
    let after = |rank: u32| rank.saturating_add(1);
    let mut least = 1;
    for ranks in events.groups.values().chain(events.said().map(|said| &said.ranks)) {
        least = least.max(ranks.iter().max().map_or(0, |rank| after(*rank)));
    }
    for said in events.said() {
        least = least.max(u32::try_from(said.members().unwrap_or(1)).unwrap_or(u32::MAX));
        if let (Some(Whom::Rank(peer)), true) = (said.peer, least > 1) {
            least = least.max(after(peer));
        }
    }
    let most = sizes(events).into_values().max().unwrap_or(1);
    least.max(u32::try_from(most).unwrap_or(u32::MAX))
}
