//! The content of a layer file.

use allrail_collective::Operation;
use serde::Deserialize;

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
