//! Layers by shape: a file gives kernels, channels and sizes, and the numbers follow.
//!
//! | shape | parameters | forward FLOPs of a sample | output |
//! |---|---|---|---|
//! | convolution | (∏kernel · in/groups + bias) · out (+ 2 · out, normalised) | 2 · ∏kernel · in/groups · out · ∏output | out · ∏output |
//! | dense | (inputs + bias) · outputs | 2 · inputs · outputs · positions | outputs · positions |
//! | lstm | 4 · hidden · (inputs + hidden + bias) per direction | 2 · 4 · hidden · (inputs + hidden) · steps | directions · hidden · steps |
//! | embedding | rows · width | none (reads rows) | width · lookups |
//!
//! A layer may give numbers instead (`flops`, `parameters`, `output`), and measured times. A
//! normalisation reads and writes its output once more. Element-wise functions are taken as fused.

use allrail_core::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A layer of a file, or several that repeat.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LayerSpec {
    /// For tables and traces.
    pub name: String,
    /// How often it comes, one after the other; 1 where absent.
    pub repeat: Option<u32>,
    /// Several layers instead of one: for `repeat`.
    pub layers: Vec<LayerSpec>,
    /// A convolution.
    pub convolution: Option<ConvolutionSpec>,
    /// A fully connected layer.
    pub dense: Option<DenseSpec>,
    /// A recurrent layer.
    pub lstm: Option<LstmSpec>,
    /// A table.
    pub embedding: Option<EmbeddingSpec>,
    /// By number: forward FLOPs of a sample.
    pub flops: Option<u64>,
    /// By number: parameters.
    pub parameters: Option<u64>,
    /// By number: elements of a sample that are handed on.
    pub output: Option<u64>,
    /// FLOPs of the backward pass over those of the forward pass, of a layer by number; 2 where
    /// absent.
    pub backward_factor: Option<f64>,
    /// Measured: the forward pass of a whole batch on one NPU.
    pub forward: Option<Time>,
    /// Measured: its backward pass.
    pub backward: Option<Time>,
    /// With `op`: elements of a sample that go to each neighbour.
    pub halo: Option<u64>,
    /// With `op`: elements of a sample's input that are gathered.
    pub gathered: Option<u64>,
}

/// A convolution in any number of dimensions.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConvolutionSpec {
    /// Its sizes.
    pub kernel: Vec<u64>,
    /// Channels in and out.
    pub channels: [u64; 2],
    /// The size of the output.
    pub output: Vec<u64>,
    /// Channels are in so many groups that do not see one another.
    #[serde(default = "one")]
    pub groups: u64,
    /// One more parameter per output channel.
    #[serde(default)]
    pub bias: bool,
    /// A batch normalisation follows: two more per output channel.
    #[serde(default)]
    pub normalised: bool,
    /// How many channels the normalisation has, where it comes before the convolution.
    #[serde(default)]
    pub normalised_channels: Option<u64>,
    /// The convolution is transposed: FLOPs by the size of the input.
    #[serde(default)]
    pub input: Option<Vec<u64>>,
}

const fn one() -> u64 {
    1
}

/// A fully connected layer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DenseSpec {
    /// Its width before.
    pub inputs: u64,
    /// Its width after.
    pub outputs: u64,
    /// At how many positions of a sample it is applied.
    #[serde(default = "one")]
    pub positions: u64,
    /// Whether it adds one parameter per output.
    #[serde(default = "yes")]
    pub bias: bool,
}

const fn yes() -> bool {
    true
}

/// A layer of long short-term memory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LstmSpec {
    /// The width of its input.
    pub inputs: u64,
    /// The width of its state.
    pub hidden: u64,
    /// Steps of a sample.
    pub steps: u64,
    /// 2 where it runs both ways.
    #[serde(default = "one")]
    pub directions: u64,
    /// Biases of each gate: frameworks have one or two.
    #[serde(default = "one")]
    pub biases: u64,
}

/// A table that is read.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSpec {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows read per sample.
    #[serde(default = "one")]
    pub lookups: u64,
}
