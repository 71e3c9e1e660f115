//! Workloads that list their nodes themselves, ours or other tools', as step graphs.
//!
//! - [`astra_sim`]: the training loops of ASTRA-sim 1.0's layer files, and SimAI's superset of them.
//! - [`chakra`]: Chakra execution traces, read and written.
//! - [`kineto`]: PyTorch's profiler traces.
//! - [`convert`]: traces into Chakra traces, as `allrail import` does, of any format of the list [`ALL`].
//! - [`ranks`]: which parts of dimensions a regular set of ranks is.

pub mod astra_sim;
mod bounds;
pub mod chakra;
pub mod convert;
pub mod kineto;
pub mod ranks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allrail_core::{FieldError, counted};
use allrail_workload::device::Device;
use allrail_workload::graph::{StepGraph, Work};
use allrail_workload::parallelism::Built;
use allrail_workload::slow_links;
use allrail_workload::spec::{Model, Workload};
use allrail_workload::steps::Steps;
use serde::Deserialize;

/// A format of traces, which `allrail import` reads. One file a format, one line in [`ALL`].
pub trait Format: Sync {
    /// The tag: `format` in a report.
    fn tag(&self) -> &'static str;

    /// What it is and how its files are called, for help pages.
    fn about(&self) -> &'static str;

    /// Whether a file is of this format, by its name.
    fn recognises(&self, path: &Path) -> bool;

    /// The options of `allrail import` that it reads.
    fn options(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads files that it recognises.
    ///
    /// # Errors
    /// One of them is missing or wrong: which, why, and what to do.
    fn read(&self, asked: &Files) -> Result<Read, FieldError>;
}

/// Every format, in the order in which they are asked.
pub static ALL: &[&dyn Format] = &[&chakra::format::Chakra, &kineto::format::Kineto];

/// The format with this tag.
///
/// # Errors
/// There is none; with those that there are.
pub fn named(name: &str) -> Result<&'static dyn Format, FieldError> {
    ALL.iter().copied().find(|format| format.tag() == name).ok_or_else(|| {
        let known: Vec<String> = ALL.iter().map(|format| format!("`{}`", format.tag())).collect();
        let hint = format!("use one of {}", known.join(", "));
        FieldError::new("format", name, "it is not a format", &hint)
    })
}

/// The format that recognises a file; `None` if none does.
#[must_use]
pub fn recognise(path: &Path) -> Option<&'static dyn Format> {
    ALL.iter().copied().find(|format| format.recognises(path))
}

/// The files of a trace, and the options with which they are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Files {
    /// One for all ranks, or one of each.
    pub files: Vec<PathBuf>,
    /// `step`: only this step of a profiler.
    pub step: Option<u32>,
    /// `groups`: the process groups, where they are not beside the trace.
    pub groups: Option<PathBuf>,
    /// `npus`: how many NPUs; as many as it has ranks where absent.
    pub npus: Option<u32>,
    /// `at`, `grow`: how it is repeated over them.
    pub scale: Option<chakra::Scale>,
}

impl Files {
    /// The first file.
    ///
    /// # Errors
    /// There is none.
    pub fn first(&self) -> Result<&Path, FieldError> {
        let none = || FieldError::new("files", "[]", "there is no file", "name one");
        self.files.first().map(PathBuf::as_path).ok_or_else(none)
    }
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The graph, on one dimension of all ranks.
    pub graph: StepGraph,
    /// Ranks of the job.
    pub npus: u32,
    /// What was kept, by kind.
    pub kept: BTreeMap<String, u64>,
    /// Communication of which only the measured time was kept, by why.
    pub measured: BTreeMap<String, u64>,
    /// Microseconds that the trace measured, of what was kept and of what is only measured; empty where
    /// a trace measures nothing.
    pub measured_us: BTreeMap<String, f64>,
    /// How long all of it and each collective took; `None` where a trace does not say.
    pub timed: Option<kineto::Timed>,
    /// What was left out, by why.
    pub dropped: BTreeMap<String, u64>,
    /// What was taken otherwise than written, or assumed.
    pub notes: Vec<String>,
    /// What makes the result less than it seems.
    pub warnings: Vec<String>,
}

/// How many nodes of each kind a graph has.
#[must_use]
pub fn kinds(graph: &StepGraph) -> BTreeMap<String, u64> {
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

/// `workload.model.trace`: where it is, and how it is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// `DIR/NAME`, for the files `DIR/NAME.<rank>.et`.
    pub path: std::path::PathBuf,
    /// The process groups; `comm_group.json` beside the trace where absent.
    #[serde(default)]
    pub groups: Option<std::path::PathBuf>,
    /// Repeats it over as many NPUs as the fabric has.
    #[serde(default)]
    pub scale: Option<chakra::Scale>,
    /// Collectives that are traces of their own.
    #[serde(default)]
    pub collectives: Option<chakra::Customs>,
}

/// The step graph of a workload whose model another tool wrote, or that is written out, on dimensions of these sizes;
/// `None` where the model is one of ours.
///
/// # Errors
/// The file is wrong, or does not fit the dimensions.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Option<Built>, FieldError> {
    slow_links::check(workload, sizes)?;
    let built = match &workload.model {
        Model::AstraSim(value) => {
            let mut file = astra_sim::parse(value)?;
            file.options.compute_scale *= workload.compute.scale;
            let (graph, left) = astra_sim::build_and_tell(&file, sizes)?;
            let mut built = Built::of_graph(graph);
            built.notes.extend(left);
            built
        }
        Model::Trace(value) => {
            let trace = trace(value, workload, sizes)?;
            let mut built = Built::of_graph(trace.graph);
            let notes = trace.notes.into_iter();
            let notes = notes.map(|(what, count)| format!("{what} ({})", counted(count, "node")));
            let warnings = trace.warnings.into_iter().map(|why| format!("warning: {why}"));
            built.notes = warnings.chain(notes).collect();
            built
        }
        Model::Steps(value) => Built::of_graph(steps(value)?),
        _ => return Ok(None),
    };
    built.with_stragglers(workload, sizes).map(Some)
}

/// Reads `workload.model.steps`.
fn steps(value: &serde_json::Value) -> Result<StepGraph, FieldError> {
    let steps = Steps::deserialize(value).map_err(|error| {
        let why = error.to_string();
        let hint = "see the presets `hammingmesh_...` for examples";
        FieldError::new("workload.model.steps", "", why, hint)
    })?;
    steps.build()
}

/// Reads `workload.model.trace`, a path or an object.
///
/// # Errors
/// As [`chakra::read()`]; or it is neither.
pub fn trace(
    value: &serde_json::Value,
    workload: &Workload,
    sizes: &[u32],
) -> Result<chakra::Trace, FieldError> {
    let spec = match value.as_str() {
        Some(path) => TraceSpec { path: path.into(), groups: None, scale: None, collectives: None },
        None => TraceSpec::deserialize(value).map_err(|error| {
            FieldError::new(
                "workload.model.trace",
                "",
                error.to_string(),
                "write `DIR/NAME`, or `{path: DIR/NAME, groups: FILE, scale: {}}`",
            )
        })?,
    };
    let options = chakra::Options {
        sizes: sizes.to_vec(),
        device: Some(Device::new(&workload.compute, workload.precision)?),
        groups: spec.groups,
        scale: spec.scale,
        collectives: spec.collectives,
    };
    chakra::read(&spec.path, &options)
}
