//! A training step that is about to run.

use allrail_workload::spec::Workload;
use allrail_workload::{Built, Memory, Perturbation, StepGraph, StepWork};

use crate::SimulateError;
use crate::scenario::field;

/// A step graph with all that says how it is run.
pub struct BuiltJob<'a> {
    /// What runs.
    pub graph: &'a StepGraph,
    /// What an NPU keeps, where known.
    pub memory: Option<Memory>,
    /// What was assumed.
    pub notes: Vec<String>,
    /// What disturbs compute times.
    pub perturbation: Perturbation,
    /// How many iterations.
    pub iterations: u32,
    /// What a step does, where it is said.
    pub work: Option<StepWork>,
}

/// The step graph of a workload, whoever wrote its model.
///
/// # Errors
/// The workload is wrong, or does not fit dimensions of these sizes.
pub fn graph_of(workload: &Workload, sizes: &[u32]) -> Result<Built, SimulateError> {
    Ok(match allrail_formats::build(workload, sizes)? {
        Some(foreign) => {
            let sparse = !workload.sparse.is_empty();
            if workload.compression.is_some() || workload.every > 1 || sparse {
                let key = match workload.every {
                    2.. => "every",
                    _ if sparse => "sparse",
                    _ => "compression",
                };
                return Err(field(
                    format!("workload.{key}"),
                    "given",
                    "the model says its own step graph, where the shapes of gradients are not known",
                    "leave it out, or give the model by layers or sizes",
                ));
            }
            foreign
        }
        None => allrail_workload::build(workload, sizes)?,
    })
}
