//! Workloads in other tools' words, as step graphs.
//!
//! - [`astra_sim`]: the training loops of ASTRA-sim 1.0's layer files, and SimAI's superset of them.
//! - [`chakra`]: Chakra execution traces, read and written.
//! - [`ranks`]: which parts of dimensions a regular set of ranks is.

pub mod astra_sim;
pub mod chakra;
pub mod ranks;

use crate::error::WorkloadError;
use crate::parallelism::Built;
use crate::spec::{Model, Workload};

/// The step graph of a workload whose model another tool wrote, on dimensions of these sizes;
/// `None` where the model is one of ours.
///
/// # Errors
/// The file is wrong, or does not fit the dimensions.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Option<Built>, WorkloadError> {
    let graph = match &workload.model {
        Model::AstraSim(value) => astra_sim::read(value, sizes)?,
        _ => return Ok(None),
    };
    Ok(Some(Built { graph, memory: crate::Memory::default(), notes: Vec::new() }))
}
