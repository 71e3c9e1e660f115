//! Other tools' traces as Chakra traces that scenarios can point to: what `allrail import` does.
//!
//! The ranks lie on one dimension here: groups are ranks in `comm_group.json`, and become parts of a
//! fabric's dimensions when a scenario reads them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::chakra::{self, Scale};
use super::kineto;
use crate::error::WorkloadError;
use crate::graph::{StepGraph, Work};

/// What to import.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    /// From which format, and its files.
    pub source: Source,
    /// The folder that the trace is written into.
    pub folder: PathBuf,
    /// Its name: files are `NAME.<rank>.et`.
    pub name: String,
}

/// A format and its files.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// PyTorch's profiler traces.
    Kineto {
        /// One for all ranks, or one of each.
        files: Vec<PathBuf>,
        /// Only this profiler step.
        step: Option<u32>,
    },
    /// A Chakra trace, to be scaled.
    Chakra {
        /// Without `.<rank>.et`.
        path: PathBuf,
        /// `comm_group.json`, where it is not beside the trace.
        groups: Option<PathBuf>,
        /// How many NPUs; as many as it has ranks where absent.
        npus: Option<u32>,
        /// How it is repeated.
        scale: Option<Scale>,
    },
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
    /// What was left out, by why.
    pub dropped: BTreeMap<String, u64>,
    /// What was taken otherwise than written, or assumed.
    pub notes: Vec<String>,
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
/// The source is wrong, or the folder cannot be written.
pub fn import(request: &Import) -> Result<Report, WorkloadError> {
    let (graph, npus, kept, dropped, notes) = match &request.source {
        Source::Kineto { files, step } => {
            let read = kineto::read(files, *step)?;
            (read.graph, read.world, owned(&read.kept), owned(&read.dropped), read.notes)
        }
        Source::Chakra { path, groups, npus, scale } => {
            let ranks = chakra::files(path)?.len();
            let npus = npus.unwrap_or(u32::try_from(ranks).unwrap_or(u32::MAX));
            let options = chakra::Options {
                sizes: vec![npus],
                device: None,
                groups: groups.clone(),
                scale: scale.clone(),
            };
            let read = chakra::read(path, &options)?;
            let notes =
                read.notes.iter().map(|(what, count)| format!("{what} ({count} nodes)")).collect();
            let kept = kinds(&read.graph);
            (read.graph, npus, kept, BTreeMap::new(), notes)
        }
    };
    let written = chakra::write(&graph, &[npus], &request.folder, &request.name)?;
    Ok(Report {
        npus,
        actors: graph.actors().len() as u64,
        kept,
        dropped,
        notes,
        files: written.files,
        nodes: written.nodes,
        bytes: written.bytes,
        groups: written.groups,
    })
}

fn owned(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}

/// How many nodes of each kind a graph has.
fn kinds(graph: &StepGraph) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for id in graph.ids() {
        let kind = match graph.node(id).work {
            Work::Compute { .. } if graph.is_delay(id) => "delays".to_owned(),
            Work::Compute { .. } => "computes".to_owned(),
            Work::Collective { operation, .. } => operation.to_string(),
            Work::Send { .. } => "sends".to_owned(),
            Work::Receive { .. } => "receives".to_owned(),
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}
