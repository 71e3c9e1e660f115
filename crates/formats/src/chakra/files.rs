//! The files of a trace, and the records of one.

use std::path::{Path, PathBuf};

use super::decode;
use super::error::TraceError;
use super::record::{self, Schema};
use super::wire::Messages;

/// The files of a trace `DIR/NAME`: `NAME.<rank>.et` for the ranks from 0.
///
/// # Errors
/// There is none, or one in between is missing.
pub fn files(prefix: &Path) -> Result<Vec<PathBuf>, TraceError> {
    let wrong = |why: String, hint: &str| TraceError::new(prefix, "the trace", why, hint);
    let named = "give the files' path without `.<rank>.et`";
    let Some(name) = prefix.file_name().and_then(|name| name.to_str()) else {
        return Err(wrong("it has no name".to_owned(), named));
    };
    let folder = prefix.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    let entries =
        std::fs::read_dir(folder).map_err(|error| TraceError::unreadable(folder, &error))?;
    let mut ranks = Vec::new();
    for entry in entries.flatten() {
        let file = entry.file_name();
        let rank = file
            .to_str()
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('.')?.strip_suffix(".et"))
            .and_then(|rank| rank.parse::<u32>().ok());
        ranks.extend(rank);
    }
    ranks.sort_unstable();
    if ranks.is_empty() {
        return Err(wrong(format!("there is no file `{name}.0.et`"), named));
    }
    if let Some(missing) = (0u32..).zip(&ranks).find(|(i, rank)| i != *rank) {
        return Err(wrong(
            format!(
                "the file of rank {} is missing, that of rank {} is there",
                missing.0, missing.1
            ),
            "a trace has one file for every rank from 0",
        ));
    }
    Ok(ranks.iter().map(|rank| folder.join(format!("{name}.{rank}.et"))).collect())
}

/// Hands every node of a file and what it waits for to `take`.
pub(super) fn records(
    file: &Path,
    mut take: impl FnMut(&record::Record<'_>, &[u64]) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut messages = Messages::open(file)?;
    let (schema, recorded) = first(&mut messages)?;
    if schema == Schema::Fields {
        // Its first message is a node already.
        messages = Messages::open(file)?;
    }
    let mut after = Vec::new();
    loop {
        let offset = messages.offset();
        let Some(message) = messages.next_message()? else { return Ok(()) };
        let node = decode::read(schema, recorded, message, &mut after)
            .map_err(|why| corrupt(file, offset, &why))?;
        take(&node, &after)?;
    }
}

/// Every id of a file with its place, ascending.
pub(super) fn ids_of(file: &Path) -> Result<Vec<(u64, u32)>, TraceError> {
    let mut ids = Vec::new();
    records(file, |node, _| {
        let place = u32::try_from(ids.len()).expect("fewer than 2^32 nodes");
        ids.push((node.id.unwrap_or_default(), place));
        Ok(())
    })?;
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(TraceError::new(
            file,
            format!("node {}", pair[0].0),
            "two nodes have this id",
            "give every node of a rank its own",
        ));
    }
    Ok(ids)
}

/// The schema, and whether the trace was recorded from a process and converted.
pub(super) fn first(messages: &mut Messages) -> Result<(Schema, bool), TraceError> {
    let path = messages.path().to_owned();
    match messages.next_message()? {
        Some(message) => match record::schema(message) {
            Ok(schema) => Ok((schema, record::of_a_process(message))),
            Err(why) => Err(corrupt(&path, 0, &why)),
        },
        None => Err(TraceError::new(&path, "the file", "it is empty", "is it the right file?")),
    }
}

pub(super) fn corrupt(file: &Path, offset: u64, why: &str) -> TraceError {
    TraceError::new(
        file,
        format!("byte {offset}"),
        format!("the message is corrupt: {why}"),
        "write the trace again",
    )
}
