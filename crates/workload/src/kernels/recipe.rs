//! Recipes: in how many bits products with weights are computed, and what it costs to get there.
//!
//! | recipe | format | bytes moved for an element that is converted |
//! |---|---|---|
//! | `plain` | the workload's `precision` | 0 |
//! | `fp8_delayed` | fp8, scale of the steps before | read 2, write it in both orders 2 |
//! | `fp8_tensorwise` | fp8, scale of this tensor | the same, and 2 to find it |
//! | `fp8_rowwise` | fp8, a scale for each row | as much time as 28 of an input, 10 of a gradient, 8 of a weight |
//! | `mxfp8` | fp8, a scale for 32 elements | as much time as 8.2: each order for itself |
//! | `nvfp4` | fp4, a scale for 16 elements | read 2, write both orders 1, rotate 4 |
//!
//! A forward pass converts its input and its weights, a backward pass the gradient of its output. Delayed
//! and per-tensor scaling are those of Micikevicius et al. (2022) and NVIDIA's Transformer Engine; MXFP8 and
//! NVFP4 those of the OCP specification and of NVIDIA's Blackwell. Embedding, head, router and attention
//! stay in the workload's precision, as these libraries leave them. What a scale for each row costs is fitted
//! to single kernels: torchao's table of a linear layer's speed-up over bf16 by its shape (`float8/README.md`, an
//! H100 of 2.4 TB/s, PyTorch 2.8; 72 shapes of 16,384 rows and more, 9 % off). Its scales are those of rows and
//! of columns, and a compiler's kernels for the latter reach a fraction of the memory's bandwidth. MXFP8's are
//! torchao's on a B200, too (`prototype/mx_formats/README.md`): 6.3 TB/s along rows and 3.9 along columns, of 6.4
//! that a stream reaches there, for 3 bytes and their scales each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::spec::Precision;

/// How products with weights are computed.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a recipe"))]
pub enum Recipe {
    /// In the workload's precision.
    #[default]
    Plain,
    /// 8 bits, scales of the steps before.
    Fp8Delayed,
    /// 8 bits, one scale a tensor, found in this step.
    Fp8Tensorwise,
    /// 8 bits, a scale for each row.
    Fp8Rowwise,
    /// 8 bits, a scale for 32 elements.
    Mxfp8,
    /// 4 bits, a scale for 16 elements.
    Nvfp4,
}

/// What an element of a matrix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// 32 bits.
    Fp32,
    /// 16 bits, of either kind.
    Bf16,
    /// 8 bits.
    Fp8,
    /// 4 bits.
    Fp4,
}

impl Format {
    /// Bytes of an element.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "at most 32")]
    pub const fn bytes(self) -> f64 {
        self.bits() as f64 / 8.0
    }

    /// Bits of an element.
    #[must_use]
    pub const fn bits(self) -> u64 {
        match self {
            Self::Fp32 => 32,
            Self::Bf16 => 16,
            Self::Fp8 => 8,
            Self::Fp4 => 4,
        }
    }

    /// Of the workload's precision.
    #[must_use]
    pub const fn of(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 => Self::Fp32,
            Precision::Fp16 | Precision::Bf16 => Self::Bf16,
            Precision::Fp8 => Self::Fp8,
        }
    }
}

impl Recipe {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fp8Delayed => "fp8_delayed",
            Self::Fp8Tensorwise => "fp8_tensorwise",
            Self::Fp8Rowwise => "fp8_rowwise",
            Self::Mxfp8 => "mxfp8",
            Self::Nvfp4 => "nvfp4",
        }
    }

    /// In which format products with weights are computed; `None`: in the workload's precision.
    #[must_use]
    pub const fn format(self) -> Option<Format> {
        match self {
            Self::Plain => None,
            Self::Fp8Delayed | Self::Fp8Tensorwise | Self::Fp8Rowwise | Self::Mxfp8 => {
                Some(Format::Fp8)
            }
            Self::Nvfp4 => Some(Format::Fp4),
        }
    }

    /// In which format `sp` gathers the inputs of products; `None`: in the workload's precision. Transformer
    /// Engine (`gather_along_first_dim`) and torchao with one scale a tensor (`Float8ColwiseParallel`) gather what
    /// they have converted; scales for rows are found behind torchao's gather.
    #[must_use]
    pub const fn gathered(self) -> Option<Format> {
        match self {
            Self::Fp8Rowwise => None,
            other => other.format(),
        }
    }

    /// Bytes that are kept of so many bytes of inputs of products, for their gradients: those of the format,
    /// with a byte of scale for 32 elements (`mxfp8`) or 16 (`nvfp4`). Transformer Engine keeps them so.
    #[must_use]
    pub const fn kept(self, bytes: u64) -> u64 {
        match self {
            Self::Plain => bytes,
            Self::Fp8Delayed | Self::Fp8Tensorwise | Self::Fp8Rowwise => bytes / 2,
            Self::Mxfp8 => bytes / 64 * 33,
            Self::Nvfp4 => bytes / 64 * 18,
        }
    }

    /// Bytes moved for an element that is converted: of an input, a weight, a gradient.
    #[must_use]
    pub const fn converted(self) -> [f64; 3] {
        let each = match self {
            Self::Plain => 0.0,
            Self::Fp8Delayed => 4.0,
            Self::Fp8Tensorwise => 6.0,
            Self::Fp8Rowwise => return [28.0, 8.0, 10.0],
            Self::Mxfp8 => 8.2,
            Self::Nvfp4 => 7.0 + 2.0 / 16.0,
        };
        [each; 3]
    }
}
