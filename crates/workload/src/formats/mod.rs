//! Workloads that say their nodes themselves, ours or in other tools' words, as step graphs.
//!
//! - [`astra_sim`]: the training loops of ASTRA-sim 1.0's layer files, and SimAI's superset of them.
//! - [`chakra`]: Chakra execution traces, read and written.
//! - [`ranks`]: which parts of dimensions a regular set of ranks is.

pub mod astra_sim;
pub mod chakra;
pub mod ranks;

use crate::error::WorkloadError;
use crate::graph::StepGraph;
use crate::parallelism::Built;
use crate::spec::{Model, Workload};
use crate::steps::Steps;

/// The step graph of a workload whose model says its nodes itself, on dimensions of these sizes;
/// `None` where the model is one of ours.
///
/// # Errors
/// The file is wrong, or does not fit the dimensions.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Option<Built>, WorkloadError> {
    let graph = match &workload.model {
        Model::AstraSim(value) => astra_sim::read(value, sizes)?,
        Model::Steps(value) => steps(value)?,
        _ => return Ok(None),
    };
    Ok(Some(Built::of_graph(graph)))
}

fn steps(value: &serde_json::Value) -> Result<StepGraph, WorkloadError> {
    let steps: Steps = serde_json::from_value(value.clone()).map_err(|error| {
        let why = error.to_string();
        let hint = "see the presets `hammingmesh_...` for examples";
        WorkloadError::new("workload.model.steps", "", why, hint)
    })?;
    steps.build()
}
