//! PyTorch's profiler traces (Kineto's JSON) as step graphs.
//!
//! Kernels become compute nodes of their measured time, kernels of NCCL collectives, copies delays.
//! What a kernel waits for is read off the timeline, since a trace does not hold all the events that
//! streams wait for:
//!
//! - the kernel before it on its stream, and
//! - on every other stream, the last kernel that was over when it began, if that one ended while its
//!   own stream had nothing to do.
//!
//! What remains of a gap is the host's: a delay of that length, if it is a microsecond or more. A
//! collective's own time is not kept: it is what a simulation is for. One rank's trace stands for
//! all; several traces are one rank each.
//!
//! Read in Rust, since traces of a step have hundreds of megabytes of JSON, most of it to be skipped:
//! `serde_json` streams the events one at a time.
//!
//! Ignored: kernels that run at the same time on two streams (they take turns here), and the wait of
//! an NCCL kernel for its peers (a simulation has its own).

mod build;
mod events;
pub(super) mod format;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::error::WorkloadError;
use crate::graph::StepGraph;

/// What was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The graph, on one dimension of all ranks.
    pub graph: StepGraph,
    /// How many ranks the job has.
    pub world: u32,
    /// What was kept, by kind.
    pub kept: BTreeMap<&'static str, u64>,
    /// What was left out, by why.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// Reads one trace for all ranks, or one for each. `step` takes the kernels of one profiler step.
///
/// # Errors
/// A file that is no trace, of an unknown or repeated rank, without kernels or without that step;
/// ranks that are missing; groups that disagree.
pub fn read(files: &[PathBuf], step: Option<u32>) -> Result<Imported, WorkloadError> {
    let mut traces = Vec::new();
    for path in files {
        let mut events = events::read(path)?;
        let wrong = |why: String, hint: &str| WorkloadError::new("file", path.display(), why, hint);
        if let Some(step) = step {
            let found = events.steps.iter().find(|(number, ..)| *number == step).copied();
            let Some((_, start, end)) = found else {
                let known: Vec<String> =
                    events.steps.iter().map(|(number, ..)| number.to_string()).collect();
                return Err(wrong(
                    format!("it has no profiler step {step}"),
                    &format!("it has the steps {}", known.join(", ")),
                ));
            };
            let before = events.kernels.len();
            events.kernels.retain(|kernel| kernel.start >= start && kernel.start < end);
            let left = (before - events.kernels.len()) as u64;
            if left > 0 {
                events.dropped.insert("kernels of other profiler steps", left);
            }
        }
        if events.kernels.is_empty() {
            return Err(wrong(
                "it has no kernels".to_owned(),
                "profile with `activities=[ProfilerActivity.CUDA]`",
            ));
        }
        traces.push((path.clone(), events));
    }
    build::build(traces)
}
