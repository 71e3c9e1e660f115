//! Gradients of embedding tables that travel as rows.
//!
//! A batch reads some rows of a table, and the gradient of all others is zero. It travels dense, or as the rows
//! that a rank has touched with their places:
//!
//! | exchange of gradients | dense | rows |
//! |---|---|---|
//! | all-reduce | an all-reduce of V · c · w bytes | an all-gather of P · k · (i + c · w) bytes in all: everybody's rows, summed where they arrive |
//! | parameter servers | V · c · w bytes pushed and pulled | U(m) · (i + c · w) bytes pushed, and as many pulled |
//!
//! with a table of V rows and c columns, numbers of w bytes, places of i bytes, k touched rows of each of P ranks, m
//! NPUs of a machine. Of the rows of a rank a part `overlap` is touched by all, the rest by it alone, so n ranks
//! touch U(n) = min(V, k · overlap + n · k · (1 − overlap)). An update changes the U(P) rows of a step.
//!
//! Sources: Horovod gathers sparse gradients unless `sparse_as_dense` (`horovod/tensorflow/__init__.py`,
//! `_allreduce_cond` and `IndexedSlices`); Parallax sends sparse variables over servers and dense ones by
//! all-reduce, as bytes decide (Kim et al., `EuroSys`'19); MXNet's `row_sparse` push and pull carry rows
//! with their numbers. `allrail.torch` gathers the rows of `nn.Embedding(sparse=True)`.
//!
//! Ignored: the small exchange by which ranks tell how many rows they have; that a gather is padded to the longest
//! of them; on machines of several NPUs, that a sum of rows moves less than one of a dense tensor of U(m) rows.

use allrail_core::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An embedding table whose gradient may travel as rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparseGradient {
    /// Name of the model's layer: an embedding table that every replica has.
    pub table: String,
    /// How its gradient travels: as `rows`, `dense`, or as it makes the simulated step shorter (`auto`).
    #[serde(default)]
    pub exchange: RowExchange,
    /// Number of rows that the batch of a rank touches in an iteration; as many as it looks up, and at most the
    /// table's, if left out.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub rows: Option<u64>,
    /// The same as a part of the table, above 0 and up to 1, instead of `rows`.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[schemars(example = 0.02)]
    pub fraction: Option<f64>,
    /// Part of a rank's rows that all ranks touch, from 0 to 1; the others are its own.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    #[schemars(example = 0.3)]
    pub overlap: f64,
    /// Size of the place that travels with a row.
    #[serde(default = "place_of_a_row")]
    pub index: Bytes,
}

/// PyTorch's `int64`.
const fn place_of_a_row() -> Bytes {
    Bytes::new(8)
}

/// How the gradient of a table travels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "an exchange of a table's gradient"))]
pub enum RowExchange {
    /// The one that makes the simulated step shorter.
    #[default]
    Auto,
    /// As rows with their places.
    Rows,
    /// Whole, with its zeros.
    Dense,
}

/// A table whose gradient travels as rows, as one NPU has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// Rows of the table.
    pub(super) rows: u64,
    pub(super) columns: u64,
    /// Rows that the NPU's batch touches.
    pub(super) touched: u64,
    pub(super) overlap: f64,
    pub(super) index: u64,
}

impl Touched {
    /// Numbers of the whole table.
    pub(crate) fn parameters(&self) -> u64 {
        self.rows * self.columns
    }

    /// How many rows so many ranks touch together.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate")]
    #[expect(clippy::cast_sign_loss, reason = "it is positive")]
    pub(crate) fn union(&self, ranks: u64) -> u64 {
        let each = self.touched as f64;
        let all = each * self.overlap + ranks as f64 * each * (1.0 - self.overlap);
        // What is whole but for rounding is whole.
        self.rows.min((all * (1.0 - 1e-12)).ceil() as u64)
    }

    /// Numbers of the rows that so many ranks touch together.
    pub(crate) fn updated(&self, ranks: u64) -> u64 {
        self.union(ranks) * self.columns
    }

    /// Of a row and its place, with numbers of so many bytes.
    pub(super) fn row(&self, width: u64) -> u64 {
        self.index + self.columns * width
    }
}
