//! The operations: whole collectives, and what a stage of one does on a dimension.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a collective, or one stage of it on one dimension, does.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a collective"))]
pub enum Operation {
    /// Everyone ends with the sum of everyone's buffer.
    AllReduce,
    /// Rank `i` ends with shard `i` of the sum.
    ReduceScatter,
    /// Everyone ends with everyone's shard.
    AllGather,
    /// Rank `i` ends with shard `i` of everyone's buffer.
    AllToAll,
    /// Everyone ends with rank 0's buffer.
    Broadcast,
}

impl Operation {
    /// All of them, in the order of the docs.
    pub const ALL: [Self; 5] =
        [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::AllToAll, Self::Broadcast];

    /// The tag in scenario files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
        }
    }

    /// Whether the buffer is divided into a shard for every rank, so that a part of it is no smaller
    /// collective of the same kind.
    #[must_use]
    pub const fn is_sharded(self) -> bool {
        matches!(self, Self::ReduceScatter | Self::AllGather | Self::AllToAll)
    }

    /// Whether it starts from one rank's buffer, whichever is named.
    #[must_use]
    pub(crate) const fn has_root(self) -> bool {
        matches!(self, Self::Broadcast)
    }

    /// The field's abbreviation.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::AllReduce => "AR",
            Self::ReduceScatter => "RS",
            Self::AllGather => "AG",
            Self::AllToAll => "A2A",
            Self::Broadcast => "BC",
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.tag())
    }
}
