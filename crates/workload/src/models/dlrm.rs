//! Deep learning recommendation: embedding tables, two MLPs and their interaction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sizes of a DLRM.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DlrmSpec {
    /// How many tables.
    pub tables: u64,
    /// Rows of each.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
    /// Rows read per table and sample.
    #[serde(default = "one")]
    pub lookups: u64,
    /// Widths of the bottom MLP, its input (dense features) first.
    pub bottom: Vec<u64>,
    /// Widths of the top MLP after the interaction.
    pub top: Vec<u64>,
    /// The width of the interaction's output; pairs of vectors and the bottom's output where absent.
    #[serde(default)]
    pub interaction: Option<u64>,
}

const fn one() -> u64 {
    1
}
