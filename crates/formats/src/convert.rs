//! Other tools' traces as Chakra traces that scenarios can point to: what `allrail import` does.
//!
//! The ranks lie on one dimension here: groups are ranks in `comm_group.json`, and become parts of a
//! fabric's dimensions when a scenario reads them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use allrail_core::FieldError;
use serde::{Deserialize, Serialize};

use super::chakra::{self, Ranks};
use super::kineto::Timed;
use super::{Files, Read, named};

/// What to import.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// From which format: a tag of [`super::ALL`].
    pub format: String,
    /// Its files, and how they are read.
    pub source: Files,
    /// The folder that the trace is written into.
    pub folder: PathBuf,
    /// Its name: files are `NAME.<rank>.et`.
    pub name: String,
}

/// What was read, what was left out, and what was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Ranks of the job.
    pub npus: u32,
    /// Actors: classes of ranks that do the same.
    pub actors: u64,
    /// Nodes that were kept, by kind; of ranks that do the same, once.
    pub kept: BTreeMap<String, u64>,
    /// Communication of which only the measured time was kept, by why.
    pub measured: BTreeMap<String, u64>,
    /// Microseconds that the trace measured, by what was kept and what is only measured.
    pub measured_us: BTreeMap<String, f64>,
    /// How long all of it and each collective took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<Timed>,
    /// What was left out, by why.
    pub dropped: BTreeMap<String, u64>,
    /// What was taken otherwise than written, or assumed.
    pub notes: Vec<String>,
    /// What makes the result less than it seems.
    pub warnings: Vec<String>,
    /// Files written.
    pub files: u64,
    /// Nodes in them.
    pub nodes: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Process groups.
    pub groups: u64,
}

/// Imports.
///
/// # Errors
/// There is no such format, the source is wrong, or the folder cannot be written.
pub fn import(request: &Import) -> Result<Report, FieldError> {
    let Read { graph, npus, kept, measured, measured_us, timed, dropped, notes, warnings } =
        named(&request.format)?.read(&request.source)?;
    let written = chakra::write(&graph, &[npus], (&request.folder, &request.name), Ranks::All)?;
    Ok(Report {
        npus,
        actors: graph.actors().len() as u64,
        kept,
        measured,
        measured_us,
        timed,
        dropped,
        notes,
        warnings,
        files: written.files,
        nodes: written.nodes,
        bytes: written.bytes,
        groups: written.groups,
    })
}
