//! Collectives that a scenario runs: the key `collective`.

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One collective.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collective {
    /// Its name in results; its kind if left out.
    #[serde(default)]
    pub name: String,
    /// What it does.
    pub kind: Operation,
    /// all_reduce, broadcast: each NPU's buffer; reduce_scatter: each NPU's input; all_gather: each
    /// NPU's output; all_to_all: what each NPU sends, to itself included.
    #[schemars(extend("x-positive" = true))]
    pub size: Bytes,
    /// When it starts.
    #[serde(default)]
    pub start: Time,
    /// The dimensions that it spans, from 0; all if left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub dimensions: Option<Vec<DimensionId>>,
}
