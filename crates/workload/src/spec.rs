//! The `workload` of a scenario, resolved: what to train, on how many samples, cut how.
//!
//! Presets are already replaced by their content and a `config.json` by its object; quantities are
//! text with units. A sample is an image, a sentence, a row of clicks. `batch_per_replica` counts the
//! samples of one iteration of a *replica*: the NPUs that share one copy of the model (`tp`, `cp`, `pp`,
//! `op`) work on them together, those of `dp` and `ep` each have their own.
//!
//! `trace`, `astra_sim` and `steps` say the whole step graph themselves and are read elsewhere.

use allrail_core::{Bandwidth, Bytes, DimensionId, Rank, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map as Object, Value};

pub use crate::compression::CompressionSpec;
pub use crate::device::DeviceChoice;
pub use crate::kernels::{AttentionKind, Launch, Recipe};
pub use crate::models::{
    ConvolutionSpec, DenseSpec, DlrmSpec, EmbeddingSpec, LayerSpec, LstmSpec, TransformerSpec,
};
pub use crate::parallelism::rows::{RowExchange, SparseGradient};
pub use crate::parallelism::spec::{
    Axis, Context, Map, Parallelism, PipelineSchedule, Place, Reduce,
};
pub use crate::recompute::Recompute;
pub use crate::time_to_train::Target;

/// What is trained; see the module.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name in results; the model's if left out.
    #[serde(default)]
    pub name: String,
    /// A preset's name, a Hugging Face folder or its `config.json`, a preset's file, or a mapping with one form.
    pub model: Model,
    /// Samples per iteration of a replica: the NPUs of `tp`, `cp`, `pp` and `op` work on them together,
    /// those of `dp` and `ep` each have their own.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub batch_per_replica: Option<u32>,
    /// Samples per iteration of the whole job, instead of those of a replica.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub global_batch: Option<u32>,
    /// Samples of a microbatch, instead of `parallelism.microbatches`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub micro_batch: Option<u32>,
    /// Tokens per sample; the model's own if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub sequence_length: Option<u32>,
    /// Of parameters, activations and gradients.
    #[serde(default)]
    pub precision: Precision,
    /// Of the gradients that travel, where it is another.
    #[serde(default)]
    pub gradient_precision: Option<Precision>,
    /// How gradients are made smaller on their way; not at all if left out.
    #[serde(default)]
    pub compression: Option<CompressionSpec>,
    /// Embedding tables whose gradients may travel as rows; all other gradients are dense.
    /// `[{table: embedding, rows: 4000}]`.
    #[serde(default)]
    pub sparse: Vec<SparseGradient>,
    /// Whether parameter servers exchange its gradients, which a schedule says.
    #[serde(skip)]
    pub by_servers: bool,
    /// Replicas train apart, and average their parameters after every so many iterations (local SGD);
    /// 1 exchanges gradients in each.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub every: u32,
    /// How it is cut over the NPUs.
    #[serde(default)]
    pub parallelism: Parallelism,
    /// How fast an NPU computes.
    #[serde(default)]
    pub compute: Compute,
    /// What is kept beside parameters and gradients, and what an update costs.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// When an NPU updates its parameters: `together`, in one step once all its gradients are there
    /// (`optimizer.step()` in PyTorch, also under Horovod, DeepSpeed and Megatron-LM), or `each`, as soon as the
    /// parameter's own gradient is there (MXNet, TensorFlow graphs, ByteScheduler, P3). If left out: `each` where
    /// iterations have no barrier (`schedule.tensor`) or parameter servers update, else `together`.
    #[serde(default)]
    pub updates: Option<Updates>,
    /// How many are simulated; the first is warm-up where there are more.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
    pub iterations: u32,
    /// Ranks that compute more slowly.
    #[serde(default)]
    pub stragglers: Vec<Straggler>,
    /// Random variation of every compute time.
    #[serde(default)]
    pub jitter: Option<Jitter>,
    /// Links that carry less than they should.
    #[serde(default)]
    pub slow_links: Option<SlowLinks>,
    /// By how much longer computing takes while gradients of the NPU are exchanged: `0.2` is a fifth.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 0.2)]
    pub exchange_slowdown: f64,
    /// How many iterations later gradients are applied: with 1, an iteration waits for those of the one
    /// before the last, with `k` for those of the k-th before the last (bounded staleness).
    #[serde(default)]
    #[schemars(range(min = 0, max = 64))]
    pub lag: u32,
    /// How much is trained, and what an NPU takes meanwhile: results then say the time, cost and energy of all
    /// of it. `{tokens: 15e12, price_per_npu_hour: 2.5}`.
    #[serde(default)]
    pub target: Option<Target>,
}

impl Workload {
    /// Of how many iterations before the last one gradients may be under way.
    #[must_use]
    pub fn delay(&self) -> u32 {
        self.lag.max(u32::from(!self.parallelism.schedule.flushes()))
    }
}

const fn one() -> u32 {
    1
}

const fn two() -> u32 {
    2
}

/// Where the model comes from.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Model {
    /// Layers by shape or by number.
    Layers(Vec<LayerSpec>),
    /// A transformer by its sizes.
    Transformer(Box<TransformerSpec>),
    /// Embedding tables and two MLPs.
    Dlrm(DlrmSpec),
    /// A Hugging Face `config.json`: its content, its path or that of its folder.
    HuggingFace(Object<String, Value>),
    /// A Chakra trace, `DIR/NAME`; read elsewhere.
    Trace(Value),
    /// An ASTRA-sim layer file; read elsewhere.
    AstraSim(Value),
    /// Nodes written out; read elsewhere.
    Steps(Value),
}

impl Model {
    /// Whether degrees of parallelism lay it over ranks, and it brings no ranks of its own.
    #[must_use]
    pub const fn is_laid_out(&self) -> bool {
        !matches!(self, Self::Trace(_) | Self::AstraSim(_) | Self::Steps(_))
    }
}

/// The format of a number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a precision"))]
pub enum Precision {
    /// 4 bytes.
    Fp32,
    /// 2 bytes.
    #[default]
    Fp16,
    /// 2 bytes.
    Bf16,
    /// 1 byte.
    Fp8,
}

impl Precision {
    /// Of one number.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Fp32 => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Fp8 => 1,
        }
    }

    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }
}

/// How long compute takes: from a device's kernels, from a roofline, or measured.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Compute {
    /// A preset, such as `h100`, or the path of a device's file.
    pub device: Option<DeviceChoice>,
    /// Such as `312 TFLOP/s`; the device's at the precision if left out.
    pub peak: Option<String>,
    /// The device's if left out.
    pub memory_bandwidth: Option<Bandwidth>,
    /// How much of it there is; the device's if left out.
    #[schemars(extend("x-positive" = true))]
    pub memory: Option<Bytes>,
    /// The part of the peak that is reached, one number for all: of a device whose kernels are known, in their
    /// place. Of others 0.5 if left out.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.5)]
    pub efficiency: Option<f64>,
    /// In how many bits products with weights are computed; `plain`: in `precision`.
    pub recipe: Recipe,
    /// How attention is computed; the fastest that the device is known for if left out.
    pub attention: Option<AttentionKind>,
    /// How kernels get to the device.
    pub launch: Launch,
    /// How the loss treats the head's words, in memory; `fused` where `launch` fuses elementwise work, if left
    /// out.
    pub loss: Option<Loss>,
    /// Every compute time is multiplied by it.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 1.2)]
    pub scale: f64,
    /// Measured: the forward pass of a replica's batch on one NPU; the roofline shares it out over
    /// layers.
    pub forward: Option<Time>,
    /// Measured: its backward pass.
    pub backward: Option<Time>,
    /// Refuse a layout that does not fit the memory; otherwise it is only said.
    pub must_fit: bool,
}

impl Default for Compute {
    fn default() -> Self {
        Self {
            device: None,
            peak: None,
            memory_bandwidth: None,
            memory: None,
            efficiency: None,
            recipe: Recipe::Plain,
            attention: None,
            launch: Launch::Eager,
            loss: None,
            scale: 1.0,
            forward: None,
            backward: None,
            must_fit: false,
        }
    }
}

impl Compute {
    /// Whether the loss makes no copies of words in 32 bits.
    #[must_use]
    pub fn fuses_loss(&self) -> bool {
        let usual = if self.launch.fuses() { Loss::Fused } else { Loss::Unfused };
        self.loss.unwrap_or(usual) == Loss::Fused
    }
}

/// How the loss treats the head's words.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a way to compute the loss"))]
pub enum Loss {
    /// In one kernel, in the precision of the workload.
    Fused,
    /// Operator by operator, in copies of 32 bits.
    Unfused,
}

/// What an optimizer keeps beside parameters and gradients.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "an optimizer"))]
pub enum Optimizer {
    /// Two moments in fp32, and an fp32 copy of parameters of lower precision.
    #[default]
    Adam,
    /// One momentum in fp32, and an fp32 copy of parameters of lower precision.
    Momentum,
    /// An fp32 copy of parameters of lower precision.
    Sgd,
    /// Nothing, and an update takes no time.
    None,
}

/// When an NPU updates its parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a time of updates"))]
pub enum Updates {
    /// In one step, once all its gradients are there.
    #[default]
    Together,
    /// Each parameter as soon as its own gradient is there.
    Each,
}

/// Ranks whose compute takes longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Straggler {
    /// Which.
    #[schemars(length(min = 1))]
    pub ranks: Vec<Rank>,
    /// Their compute times are multiplied by it.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 1.5)]
    pub factor: f64,
    /// How likely each of them is slow in an iteration, drawn by the seed for every rank and iteration; in all
    /// iterations if left out.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.05)]
    pub probability: Option<f64>,
}

/// Links that carry less than they should, drawn by the seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlowLinks {
    /// The part of all links that is slow: `0.01` is one in a hundred.
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 0.01)]
    pub share: f64,
    /// A slow link has this part of its bandwidth, 0.001 to 1.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.5)]
    pub factor: f64,
    /// On which dimensions, from 0; on all if left out. Not in `flows` and `packets`, where a
    /// topology's cables are slow.
    #[serde(default)]
    pub dimensions: Option<Vec<DimensionId>>,
}

/// Seeded variation of compute times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// The standard deviation of the factor around 1: `0.05` is 5 %.
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 0.05)]
    pub deviation: f64,
}
