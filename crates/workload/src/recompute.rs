//! Activation recomputation: what a backward pass computes again instead of keeping it.
//!
//! | `recompute` | kept of a block | computed again, before its gradient |
//! |---|---|---|
//! | `none` | all that its gradient needs | – |
//! | `selective` | the same | attention's products of activations (scores, and their product with values) |
//! | `full` | its input | the whole block, with what `tp`, `ep` and `op` exchange in it |
//!
//! A block is a layer of a transformer (attention and feed-forward part), or a layer of a model by shape;
//! the ends of a transformer, embedding and head, are not repeated. `selective` is that of Korthikanti et al.
//! (2205.05198, §5): it saves the s² scores, which are kept where attention is unfused alone; with fused
//! attention it costs time and saves nothing. With ZeRO 3 a layer's
//! parameters are gathered once for both, as FSDP does. While a block is repeated all of its own activations
//! are held beside the inputs of the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::WorkloadError;
use crate::models::Layer;
use crate::parallelism::plan::Plan;

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
            Self::Full => "full",
        }
    }

    /// Whether a layer's whole forward pass is repeated.
    #[must_use]
    pub const fn repeats(self, layer: &Layer) -> bool {
        match self {
            Self::None | Self::Selective => false,
            Self::Full => layer.block,
        }
    }

    /// FLOPs of one sample through a layer that are computed again.
    #[must_use]
    pub const fn flops(self, layer: &Layer) -> u64 {
        self.within(layer) + if self.repeats(layer) { layer.flops.forward } else { 0 }
    }

    /// Whether two layers, one after the other, are repeated together.
    pub(crate) const fn joins(self, one: &Layer, next: &Layer) -> bool {
        one.unit == next.unit && self.repeats(one) && self.repeats(next)
    }

    /// Of these, FLOPs that are part of the backward pass itself.
    #[must_use]
    pub const fn within(self, layer: &Layer) -> u64 {
        match self {
            // What has no weights (`Flops::attention`).
            Self::Selective if layer.block => layer.flops.product,
            _ => 0,
        }
    }
}

impl Plan<'_> {
    /// FLOPs of one sample that the backward pass computes again.
    pub(crate) fn recomputed(&self) -> f64 {
        let recompute = self.workload.parallelism.recompute;
        self.model.layers.iter().map(|layer| recompute.flops(layer) as f64).sum()
    }

    /// Whether there is something of the kind.
    ///
    /// # Errors
    /// There is not.
    pub(crate) fn has_what_is_recomputed(&self) -> Result<(), WorkloadError> {
        let recompute = self.workload.parallelism.recompute;
        if recompute == Recompute::None || self.recomputed() > 0.0 {
            return Ok(());
        }
        let why = format!("`{}` has nothing of the kind to compute again", self.model.name);
        let hint =
            "`selective` repeats attention, `full` the layers of transformers and models by shape";
        Err(WorkloadError::new("workload.parallelism.recompute", recompute.tag(), why, hint))
    }
}
