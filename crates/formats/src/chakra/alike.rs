//! A trace of one rank of each kind: `NAME.ranks.json` says whom each file stands for.
//!
//! ```json
//! {"0": [0, 1, 2, 3], "4": [4, 5, 6, 7]}
//! ```
//!
//! `NAME.0.et` is then the file of ranks 0 to 3. Ranks of an actor are alike in a trace if their peers are as
//! far away, too: around the end of a ring they are not. Other readers of Chakra's traces know no such file
//! and want one of every rank.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allrail_core::{counted, either};
use serde::Deserialize;

use super::error::TraceError;
use super::files::files;
use crate::bounds;

/// Whose files are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ranks {
    /// Every rank's.
    #[default]
    All,
    /// Of ranks that are alike the first one's.
    Representative,
}

/// The files of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// How many ranks they stand for.
    pub(super) ranks: u32,
    /// The ranks of each file, ascending.
    pub(super) each: Vec<(Vec<u32>, PathBuf)>,
}

/// Where the ranks of files stand.
pub(super) fn list(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.ranks.json"))
}

/// The files of the trace `DIR/NAME`.
///
/// # Errors
/// There is none; one is missing; their ranks are not all, or not once.
pub(super) fn of(prefix: &Path) -> Result<Files, TraceError> {
    let name = prefix.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let folder = prefix.parent().unwrap_or(Path::new(""));
    let path = list(folder, name);
    if !path.is_file() {
        let files = files(prefix)?;
        let ranks = u32::try_from(files.len()).expect("fewer than 2^32 files");
        let each = (0..ranks).map(|rank| vec![rank]).zip(files).collect();
        return Ok(Files { ranks, each });
    }
    let text = bounds::read_text(&path).map_err(|error| TraceError::unreadable(&path, &error))?;
    let wrong = |place: &str, why: String| {
        TraceError::new(&path, place, why, "write `{\"0\": [0, 1], \"2\": [2, 3]}`, each rank once")
    };
    let listed: BTreeMap<u32, Vec<u32>> = serde_json::from_str(&text)
        .map_err(|error| wrong("the file", format!("it is no object of ranks: {error}")))?;
    let ranks: usize = listed.values().map(Vec::len).sum();
    let mut seen = vec![false; ranks];
    let mut each = Vec::new();
    for (first, mut alike) in listed {
        let place = format!("`{first}`");
        alike.sort_unstable();
        if alike.first() != Some(&first) {
            return Err(wrong(&place, "it is not the first of its ranks".to_owned()));
        }
        for rank in &alike {
            match seen.get_mut(*rank as usize) {
                None => {
                    let why = format!(
                        "it has rank {rank}, and there {are} {ranks}",
                        ranks = counted(ranks, "rank"),
                        are = either(&ranks, "is", "are")
                    );
                    return Err(wrong(&place, why));
                }
                Some(seen) if *seen => {
                    return Err(wrong(&place, format!("rank {rank} is named twice")));
                }
                Some(seen) => *seen = true,
            }
        }
        let file = folder.join(format!("{name}.{first}.et"));
        if !file.is_file() {
            return Err(wrong(&place, format!("there is no file `{}`", file.display())));
        }
        each.push((alike, file));
    }
    if each.is_empty() {
        return Err(wrong("the file", "it has no ranks".to_owned()));
    }
    let ranks = u32::try_from(ranks).expect("fewer than 2^32 ranks");
    Ok(Files { ranks, each })
}
