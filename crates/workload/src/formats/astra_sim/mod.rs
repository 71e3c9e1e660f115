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
//!   [`delay`](crate::StepGraph::is_delay) in the graph.
//! - The forward pass of a layer waits for that layer's gradient of the pass before.
//! - `compute_scale` and `comm_scale` multiply times and bytes, rounded down; not the update time.
//! - A collective without a dimension of two NPUs to span, or of no bytes, does not take place.
//! - Bytes are what each NPU puts in: an all-gather's result is as many times as large. In SimAI's files
//!   they are the result's (`MockNcclGroup::genAllGatherFlowModels` cuts them by the ranks).
//!
//! One file a family of loops: [`data`], [`model`] (MODEL, the HYBRID_ ones and inference),
//! [`recompute`], [`dlrm`]; [`groups`] says which dimensions, [`chain`] writes the nodes.
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
mod groups;
mod model;
mod recompute;

use allrail_collective::Operation;
use serde::Deserialize;

use crate::error::WorkloadError;
use crate::graph::StepGraph;
use chain::Chain;

/// A layer file, as Python's reader hands it over.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AstraSim {
    /// The training loop.
    #[serde(rename = "loop")]
    pub training_loop: Loop,
    /// What the loop's line says beside its name.
    #[serde(default)]
    pub options: Options,
    /// First to last of the forward pass.
    pub layers: Vec<Layer>,
}

/// A training loop by ASTRA-sim's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum Loop {
    Data,
    Model,
    HybridDataModel,
    HybridModelData,
    HybridTransformer,
    HybridTransformerFwdInBckwd,
    HybridDlrm,
    HybridDlrmEnhanced,
    HybridCustomized,
    DistributedInference,
    Micro,
}

impl Loop {
    /// As files have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "DATA",
            Self::Model => "MODEL",
            Self::HybridDataModel => "HYBRID_DATA_MODEL",
            Self::HybridModelData => "HYBRID_MODEL_DATA",
            Self::HybridTransformer => "HYBRID_TRANSFORMER",
            Self::HybridTransformerFwdInBckwd => "HYBRID_TRANSFORMER_FWD_IN_BCKWD",
            Self::HybridDlrm => "HYBRID_DLRM",
            Self::HybridDlrmEnhanced => "HYBRID_DLRM_ENHANCED",
            Self::HybridCustomized => "HYBRID_CUSTOMIZED",
            Self::DistributedInference => "DISTRIBUTED_INFERENCE",
            Self::Micro => "MICRO",
        }
    }
}

/// Options of a loop.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// Multiplies compute times.
    pub compute_scale: f64,
    /// Multiplies bytes.
    pub comm_scale: f64,
    /// How many NPUs hold one model together: `model_parallel_NPU_group`.
    pub model_parallel: u64,
    /// SimAI: how many share the experts.
    pub expert_parallel: u64,
    /// SimAI: how many pipeline stages.
    pub pipeline_parallel: u64,
    /// SimAI: an all-gather's bytes are those of the whole buffer, not of what each NPU puts in.
    pub gathered: bool,
    /// Layers whose activations are kept.
    pub checkpoints: Vec<usize>,
    /// Layers before whose gradient the forward pass is run again from the checkpoint below.
    pub checkpoint_initiates: Vec<usize>,
    /// DLRM: the layer after which the embeddings of layer 0 must have come.
    pub last_bottom_layer: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            compute_scale: 1.0,
            comm_scale: 1.0,
            model_parallel: 1,
            expert_parallel: 1,
            pipeline_parallel: 1,
            gathered: false,
            checkpoints: Vec::new(),
            checkpoint_initiates: Vec::new(),
            last_bottom_layer: 0,
        }
    }
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// The forward pass.
    pub forward: LayerPass,
    /// The gradient of its input.
    pub input_gradient: LayerPass,
    /// The gradient of its weights.
    pub weight_gradient: LayerPass,
    /// What passes after each of its collectives.
    pub update_ns: u64,
    /// `HYBRID_CUSTOMIZED`: the layer's own parallelism, by the name of a loop.
    #[serde(default)]
    pub parallelism: Option<Loop>,
}

/// What a layer does in one pass: it computes, then it communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerPass {
    /// Compute time before scaling.
    pub compute_ns: u64,
    /// The collective, if there is one.
    #[serde(default)]
    pub collective: Option<Operation>,
    /// Its bytes before scaling: what each NPU puts in.
    #[serde(default)]
    pub bytes: u64,
    /// SimAI: whom it spans, where that is not the pass's usual group.
    #[serde(default)]
    pub over: Option<Over>,
}

/// SimAI's groups of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// `_EP`: those who share the experts.
    Experts,
    /// `_DP_EP`: those who hold the same experts.
    ExpertReplicas,
}

/// Reads `workload.model.astra_sim`, the content of a layer file.
///
/// # Errors
/// It is none.
pub fn parse(value: &serde_json::Value) -> Result<AstraSim, WorkloadError> {
    AstraSim::deserialize(value).map_err(|error| {
        WorkloadError::new(
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
pub fn build(file: &AstraSim, sizes: &[u32]) -> Result<StepGraph, WorkloadError> {
    Ok(build_and_tell(file, sizes)?.0)
}

/// The step graph of a layer file, and what is said of collectives that its loop does not run.
///
/// # Errors
/// As [`build`].
pub fn build_and_tell(
    file: &AstraSim,
    sizes: &[u32],
) -> Result<(StepGraph, Option<String>), WorkloadError> {
    if file.layers.is_empty() {
        return Err(WorkloadError::new(
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
