//! The training loops of ASTRA-sim 1.0's layer files (and SimAI's superset) as step graphs.
//!
//! A file is a loop and a list of layers. A layer has a compute time and at most one collective for
//! each of the forward pass, the input gradient and the weight gradient, and one update time. The
//! loop says in which order these run, which collectives block, and which dimensions they span.
//! Each NPU does the same, one thing at a time, so the graph has one actor and its compute nodes are
//! a chain; read from the code of the version that ASPLOS'23's tutorial used.
//!
//! What all loops share:
//!
//! - A collective is over when the layer's *update time* has passed after its last chunk. It does so
//!   for all three collectives of a layer, not for the gradient's alone; the NPU may compute
//!   meanwhile, and it counts as exposed communication, not as compute. It is a
//!   [`delay`](allrail_workload::StepGraph::is_delay) in the graph.
//! - The forward pass of a layer waits for that layer's gradient of the pass before.
//! - `compute_scale` and `comm_scale` multiply times and bytes, rounded down; not the update time.
//! - A collective without a dimension of two NPUs to span, or of no bytes, does not take place.
//! - Bytes are what each NPU puts in: an all-gather's result is as many times as large. In SimAI's files
//!   they are the result's (`MockNcclGroup::genAllGatherFlowModels` cuts them by the ranks).
//!
//! One file a family of loops: `data`, `model` (MODEL, the HYBRID_ ones and inference),
//! `recompute`, `dlrm`; `file` is the content, `groups` says which dimensions, `chain` writes the nodes.
//!
//! SimAI's pipeline: the layers are those of one stage, all microbatches one after the other. SimAI's
//! simulators read `pp`, `vpp`, `ga` and `pp_comm` and run the layers as they are, with data-parallel groups
//! of `all_gpus / (tensor · pipeline)` (`Workload.cc`); so it is done here. Only the report of its analytical
//! mode adds a bubble and messages, in closed form (`Layer.cc`), to a time without simulation.
//!
//! Not modelled: the nanosecond that each step of a loop takes, and one more small chunk where a size is
//! not a multiple of the number of chunks.

mod chain;
mod data;
mod dlrm;
mod file;
mod groups;
mod model;
mod recompute;

use allrail_core::FieldError;
use allrail_workload::graph::StepGraph;
use serde::Deserialize;

use chain::Chain;

pub use file::{AstraSim, Layer, LayerPass, Loop, Options, Over};

/// Reads `workload.model.astra_sim`, the content of a layer file.
///
/// # Errors
/// It is none.
pub fn parse(value: &serde_json::Value) -> Result<AstraSim, FieldError> {
    AstraSim::deserialize(value).map_err(|error| {
        FieldError::new(
            "workload.model.astra_sim",
            "",
            error.to_string(),
            "it is the content of a layer file: loop, options and layers",
        )
    })
}

/// The step graph of a layer file on dimensions of these sizes, innermost first.
///
/// # Errors
/// A group of NPUs that cuts the dimensions unevenly, a checkpoint that does not exist or is missing
/// below a layer that needs it, a layer whose parallelism has no meaning of its own, a time or size
/// out of range.
pub fn build(file: &AstraSim, sizes: &[u32]) -> Result<StepGraph, FieldError> {
    Ok(build_and_tell(file, sizes)?.0)
}

/// The step graph of a layer file, and what is said of collectives that its loop does not run.
///
/// # Errors
/// As [`build`].
pub fn build_and_tell(
    file: &AstraSim,
    sizes: &[u32],
) -> Result<(StepGraph, Option<String>), FieldError> {
    if file.layers.is_empty() {
        return Err(FieldError::new(
            "workload.model.astra_sim.layers",
            0,
            "a training loop needs a layer",
            "give it one at least",
        ));
    }
    let mut chain = Chain::new(file, sizes)?;
    match file.training_loop {
        Loop::Data => data::run(&mut chain)?,
        Loop::Micro => data::micro(&mut chain)?,
        Loop::Model
        | Loop::HybridDataModel
        | Loop::HybridModelData
        | Loop::HybridCustomized
        | Loop::HybridTransformer => model::run(&mut chain, file.training_loop)?,
        Loop::DistributedInference => model::inference(&mut chain)?,
        Loop::HybridTransformerFwdInBckwd => recompute::run(&mut chain, &file.options)?,
        Loop::HybridDlrm | Loop::HybridDlrmEnhanced => dlrm::run(
            &mut chain,
            file.options.last_bottom_layer,
            file.training_loop == Loop::HybridDlrm,
        )?,
    }
    let left = chain.left();
    Ok((chain.finish()?, left))
}
