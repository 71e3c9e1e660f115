//! Workloads that say their nodes themselves, ours or in other tools' words, as step graphs.
//!
//! - [`astra_sim`]: the training loops of ASTRA-sim 1.0's layer files, and SimAI's superset of them.
//! - [`chakra`]: Chakra execution traces, read and written.
//! - [`kineto`]: PyTorch's profiler traces.
//! - [`convert`]: traces into Chakra traces, as `allrail import` does.
//! - [`ranks`]: which parts of dimensions a regular set of ranks is.

pub mod astra_sim;
pub mod chakra;
pub mod convert;
pub mod kineto;
pub mod ranks;

use serde::Deserialize;

use crate::compute::Device;
use crate::error::WorkloadError;
use crate::graph::StepGraph;
use crate::parallelism::Built;
use crate::spec::{Model, Workload};
use crate::steps::Steps;

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
}

/// The step graph of a workload whose model another tool wrote, or that is written out, on dimensions of these sizes;
/// `None` where the model is one of ours.
///
/// # Errors
/// The file is wrong, or does not fit the dimensions.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Option<Built>, WorkloadError> {
    crate::slow_links::check(workload, sizes)?;
    let built = match &workload.model {
        Model::AstraSim(value) => {
            let mut file = astra_sim::parse(value)?;
            file.options.compute_scale *= workload.compute.scale;
            Built::of_graph(astra_sim::build(&file, sizes)?)
        }
        Model::Trace(value) => {
            let trace = trace(value, workload, sizes)?;
            let mut built = Built::of_graph(trace.graph);
            built.notes = trace
                .notes
                .into_iter()
                .map(|(what, count)| format!("{what} ({count} nodes)"))
                .collect();
            built
        }
        Model::Steps(value) => Built::of_graph(steps(value)?),
        _ => return Ok(None),
    };
    built.with_stragglers(workload, sizes).map(Some)
}

/// Reads `workload.model.steps`.
fn steps(value: &serde_json::Value) -> Result<StepGraph, WorkloadError> {
    let steps = Steps::deserialize(value).map_err(|error| {
        let why = error.to_string();
        let hint = "see the presets `hammingmesh_...` for examples";
        WorkloadError::new("workload.model.steps", "", why, hint)
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
) -> Result<chakra::Trace, WorkloadError> {
    let spec = match value.as_str() {
        Some(path) => TraceSpec { path: path.into(), groups: None, scale: None },
        None => TraceSpec::deserialize(value).map_err(|error| {
            WorkloadError::new(
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
    };
    chakra::read(&spec.path, &options)
}
