//! A range of sizes of a buffer.

use allrail_core::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sizes of a buffer, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SizeRange {
    /// The smallest.
    pub from: Bytes,
    /// The largest.
    pub to: Bytes,
}

impl SizeRange {
    /// Whether `size` is among them.
    #[must_use]
    pub fn contains(self, size: Bytes) -> bool {
        (self.from..=self.to).contains(&size)
    }
}

impl std::fmt::Display for SizeRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.from == self.to {
            write!(f, "{}", self.from)
        } else if self.to == Bytes::new(u64::MAX) {
            write!(f, "{} to any size", self.from)
        } else {
            write!(f, "{} to {}", self.from, self.to)
        }
    }
}
