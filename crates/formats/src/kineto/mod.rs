//! PyTorch's profiler traces (Kineto's JSON) as step graphs.
//!
//! Kernels become compute nodes of their measured time, kernels of NCCL collectives and messages, copies
//! delays. What a kernel of NCCL does is asked of its arguments, of the host's call that launched it
//! (`calls`), and never guessed: where it remains unknown, the kernel keeps its measured time as
//! communication. So every event on the accelerator is accounted for, and the times add up to the
//! trace's (`account`). A trace without an accelerator is that of a host that trains: its operators
//! compute, and what gloo or MPI does communicates (`host`). Of an execution trace, which has no times, there
//! is the communication alone (`execution`).
//!
//! What a kernel waits for is read off the timeline, since a trace does not hold all the events that
//! streams wait for:
//!
//! - the kernel before it on its stream, and
//! - on every other stream, the last kernel that was over when it began, if that one ended while its
//!   own stream had nothing to do.
//!
//! What remains of a gap is the host's: a delay of that length, if it is a microsecond or more. The
//! time of a collective that is understood is not kept: it is what a simulation is for. One rank's
//! trace stands for all; several traces are one rank each, and `meet` says who meets whom.
//!
//! Read in Rust, since traces of a step have hundreds of megabytes of JSON, most of it to be skipped:
//! `serde_json` streams the events one at a time.
//!
//! Ignored: kernels that run at the same time on two streams (they take turns here), and the wait of
//! an NCCL kernel for its peers (a simulation has its own).

mod account;
mod build;
mod calls;
mod events;
mod exchange;
mod execution;
pub(crate) mod format;
mod host;
mod meet;
mod said;
mod stream;
mod timed;
mod trace;
mod words;
mod world_size;

use allrail_core::{FieldError, counted, either};
use allrail_workload::graph::StepGraph;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use self::account::{Account, Amount};
use self::events::Events;
pub use self::timed::{Measured, Timed};
use crate::bounds::Bounds;

/// What was imported.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The graph, on one dimension of all ranks.
    pub graph: StepGraph,
    /// How many ranks the job has.
    pub world_size: u32,
    /// What the trace's events became.
    pub account: Account,
    /// How long all of it and each collective took; `None` of an execution trace, which holds no times.
    pub timed: Option<Timed>,
    /// What was left out, by why.
    pub dropped: BTreeMap<&'static str, u64>,
    /// What was assumed.
    pub notes: Vec<String>,
    /// What makes the result less than it seems.
    pub warnings: Vec<String>,
}

/// Reads one trace for all ranks, or one for each. `step` takes the kernels of one profiler step; `npus` is how
/// many ranks the job had, where no trace says it.
///
/// # Errors
/// A file that is no trace, of an unknown or repeated rank, without kernels or without that step, or
/// without most kernels of its communication; ranks that are missing; groups that disagree; nothing that
/// says how many ranks there are.
pub fn read(
    files: &[PathBuf],
    step: Option<u32>,
    npus: Option<u32>,
) -> Result<Imported, FieldError> {
    let mut traces = Vec::new();
    let bounds = Bounds::of_environment()?;
    let mut kept = 0;
    for path in files {
        let mut events = stream::read(path, bounds, kept)?;
        kept += events.kept();
        whole(path, &mut events)?;
        if let Some(step) = step {
            cut(path, &mut events, step)?;
        }
        if events.execution && events.own.is_empty() {
            return Err(wrong(
                path,
                "it is an execution trace, which holds no times, and there is no communication in it"
                    .to_owned(),
                "import the profiler's trace of the same run: \
                 `prof.export_chrome_trace(\"rank0.json.gz\")`",
            ));
        }
        if events.kernels.is_empty() && events.work.is_empty() && events.own.is_empty() {
            if events.xla {
                return Err(wrong(
                    path,
                    "it is a trace of XLA's profiler (JAX, TensorFlow), which holds no sizes of communication"
                        .to_owned(),
                    "traces of PyTorch are read; of a JAX job, describe the model in a scenario \
                     (`allrail schema` lists its keys)",
                ));
            }
            return Err(wrong(
                path,
                "it has neither kernels nor operators".to_owned(),
                "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`",
            ));
        }
        traces.push((path.clone(), events));
    }
    build::build(traces, npus)
}

fn wrong(path: &Path, why: String, hint: &str) -> FieldError {
    FieldError::new("file", path.display(), why, hint)
}

/// Why a communication is left out that has no kernel.
const LOST: &str = "communications that the host called for and whose kernels are not in the trace";

/// Refuses a trace whose communication, or whose kernels, are mostly not in it.
fn whole(path: &Path, events: &mut Events) -> Result<(), FieldError> {
    if events.kernels.is_empty() && events.launched() {
        return Err(wrong(
            path,
            "its host launched work on an accelerator, and none of that is in it".to_owned(),
            "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`; of accelerators, \
             `kernel` events of CUDA and ROCm are read",
        ));
    }
    if events.world_size == Some(1) {
        return Ok(());
    }
    let origins = calls::Origins::new(events);
    let (asked, lost) = (origins.asked, origins.lost);
    if 2 * lost > asked {
        return Err(wrong(
            path,
            format!(
                "most of its communication is lost: its host called for {} on the accelerator, and {} of \
                 their kernels {} in it",
                counted(asked, "communication"),
                asked - lost,
                either(&(asked - lost), "is", "are")
            ),
            "profile with `activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]`, and fewer steps \
             if the profiler's buffer was full",
        ));
    }
    if lost > 0 {
        events.dropped.insert(LOST, lost as u64);
    }
    Ok(())
}

/// Leaves only what began within one profiler step.
fn cut(path: &Path, events: &mut Events, step: u32) -> Result<(), FieldError> {
    let found = events.steps.iter().find(|(number, ..)| *number == step).copied();
    let Some((_, start, end)) = found else {
        let known: Vec<String> =
            events.steps.iter().map(|(number, ..)| number.to_string()).collect();
        let hint = if known.is_empty() {
            "it has none: leave `--step` out".to_owned()
        } else {
            format!("it has the steps {}", known.join(", "))
        };
        return Err(wrong(path, format!("it has no profiler step {step}"), &hint));
    };
    let within = |at: f64| at >= start && at < end;
    let before = events.kernels.len() + events.work.len() + events.own.len();
    events.kernels.retain(|kernel| within(kernel.start));
    events.work.retain(|work| within(work.start));
    events.own.retain(|(work, _)| within(work.start));
    let left = before - events.kernels.len() - events.work.len() - events.own.len();
    if left > 0 {
        events.dropped.insert("events of other profiler steps", left as u64);
    }
    Ok(())
}
