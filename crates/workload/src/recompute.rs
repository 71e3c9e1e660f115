//! Activation recomputation: what a backward pass computes again instead of keeping it.
//!
//! | `recompute` | kept of a block | computed again, before its gradient |
//! |---|---|---|
//! | `none` | all that its gradient needs | – |
//! | `selective` | the same | attention's products of activations (scores, and their product with values) |
//! | `alternate` | its input, what attention gives, and of its products with weights the first, third, … of each part | the rest, without what is exchanged |
//! | `full` | its input | the whole block, with what `tp`, `ep` and `op` exchange in it |
//!
//! A block is a layer of a transformer (attention and feed-forward part), or a layer of a model by shape;
//! the ends of a transformer, embedding and head, are not repeated. `selective` is that of Korthikanti et al.
//! (2205.05198, §5): it saves the s² scores, which are kept where attention is unfused alone; with fused
//! attention it costs time and saves nothing. `alternate` is torchtitan's selective checkpointing by operators
//! (`activation_checkpoint.mode: selective`, `option: op`). With ZeRO 3 a layer's
//! parameters are gathered once for both, as FSDP does. While a block is repeated all of its own activations
//! are held beside the inputs of the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::models::Layer;

/// What a backward pass computes again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a way to recompute activations"))]
pub enum Recompute {
    /// Nothing.
    #[default]
    None,
    /// Attention's products of activations.
    Selective,
    /// Of a block all but attention and every second product with weights.
    Alternate,
    /// All of a block.
    Full,
}

impl Recompute {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Alternate => "alternate",
            Self::Full => "full",
        }
    }

    /// Whether a layer's whole forward pass is repeated.
    #[must_use]
    pub const fn repeats(self, layer: &Layer) -> bool {
        match self {
            Self::None | Self::Selective | Self::Alternate => false,
            Self::Full => layer.block,
        }
    }

    /// Whether a layer keeps less than its gradient needs.
    #[must_use]
    pub const fn drops(self, layer: &Layer) -> bool {
        match self {
            Self::None | Self::Selective => false,
            Self::Alternate | Self::Full => layer.block,
        }
    }

    /// Whether what a layer's product gives is kept, of those that drop something; products count from 0.
    #[must_use]
    pub const fn keeps_product(self, index: usize) -> bool {
        matches!(self, Self::Alternate) && index.is_multiple_of(2)
    }

    /// Whether what attention gives is kept, of those that drop something.
    #[must_use]
    pub const fn keeps_attention(self) -> bool {
        matches!(self, Self::Alternate)
    }

    /// Whether attention's scores are computed again instead of being kept.
    #[must_use]
    pub const fn repeats_scores(self, layer: &Layer) -> bool {
        matches!(self, Self::Selective) && layer.block && layer.flops.product > 0
    }

    /// The part of a layer's forward pass that is part of its backward pass, too, where attention between
    /// tokens takes `attention` of it and elementwise work `streams`.
    #[must_use]
    pub fn again(self, layer: &Layer, attention: f64, streams: f64) -> f64 {
        match self {
            Self::Selective if self.repeats_scores(layer) => attention,
            Self::Alternate if layer.block => {
                streams + (1.0 - attention - streams).max(0.0) * dropped(layer)
            }
            _ => 0.0,
        }
    }

    /// FLOPs of one sample through a layer that are computed again.
    #[must_use]
    pub fn flops(self, layer: &Layer) -> u64 {
        self.within(layer) + if self.repeats(layer) { layer.flops.forward } else { 0 }
    }

    /// Whether two layers, one after the other, are repeated together.
    pub(crate) const fn joins(self, one: &Layer, next: &Layer) -> bool {
        one.unit == next.unit && self.drops(one) && self.drops(next)
    }

    /// Of these, FLOPs that are part of the backward pass itself.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn within(self, layer: &Layer) -> u64 {
        match self {
            // What has no weights (`Flops::attention`).
            Self::Selective if layer.block => layer.flops.product,
            Self::Alternate if layer.block => {
                ((layer.flops.forward - layer.flops.product) as f64 * dropped(layer)) as u64
            }
            _ => 0,
        }
    }
}

/// The part of a layer's products with weights that `alternate` computes again; all where they are not listed.
#[expect(clippy::cast_precision_loss, reason = "a part")]
fn dropped(layer: &Layer) -> f64 {
    let size = |[outputs, inputs]: &[u64; 2]| *outputs as f64 * *inputs as f64;
    let all: f64 = layer.matrices.iter().map(size).sum();
    let again: f64 = layer.matrices.iter().skip(1).step_by(2).map(size).sum();
    if all > 0.0 { again / all } else { 1.0 }
}
