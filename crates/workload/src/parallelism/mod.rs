//! From a model and a layout to a step graph.

use crate::error::WorkloadError;
use crate::graph::StepGraph;
use crate::memory::Memory;
use crate::spec::Workload;

/// A workload made ready for a driver.
#[derive(Clone, Debug)]
pub struct Built {
    /// One iteration.
    pub graph: StepGraph,
    /// Of the NPU that needs most.
    pub memory: Memory,
    /// What was assumed, in words.
    pub notes: Vec<String>,
}

/// Lays a model out over the NPUs of a fabric with dimensions of these sizes, innermost first.
///
/// # Errors
/// The layout does not fit the NPUs or the model; a model that is read elsewhere.
pub fn build(workload: &Workload, sizes: &[u32]) -> Result<Built, WorkloadError> {
    let _ = (workload, sizes);
    Err(WorkloadError::new("workload.model", "", "it cannot be built yet", "wait"))
}
