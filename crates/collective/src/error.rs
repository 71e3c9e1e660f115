//! What can be wrong with a collective or a plan.

use allrail_core::{Bytes, DimensionId, FieldError, counted};

use crate::{Operation, SizeRange};

/// A mistake of the user's in a collective, an algorithm's choice or a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CollectiveError {
    /// An algorithm's name that is not known.
    #[error("`{name}` is not an algorithm")]
    UnknownAlgorithm {
        /// As given.
        name: String,
        /// The names that are known.
        known: Vec<String>,
    },
    /// An algorithm that does not do this operation.
    #[error("`{algorithm}` does not do `{operation}`; {valid} do")]
    Unsupported {
        /// Its name.
        algorithm: String,
        /// What was asked of it.
        operation: Operation,
        /// Those that do, as text.
        valid: String,
        /// What it does.
        does: &'static [Operation],
    },
    /// A program of one number of ranks, on a dimension of another.
    #[error(
        "`{algorithm}` is a program for {only}, and the dimension joins {ranks}",
        only = counted(*.only, "rank")
    )]
    Ranks {
        /// Its name.
        algorithm: String,
        /// Its ranks.
        only: u32,
        /// Those of the dimension.
        ranks: u32,
    },
    /// A program of a user's own that is not right, or not for what is asked of it.
    #[error("`{name}`: {why}")]
    Program {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// A combination whose time is not modelled.
    #[error("{dimension}: {why}")]
    NotModelled {
        /// Where.
        dimension: DimensionId,
        /// What, and what to use instead.
        why: String,
    },
    /// A field of the collective that is out of range.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A plan that does not hold together.
    #[error("the plan is not valid: {0}")]
    Plan(String),
    /// A plan that is used for a size which it does not hold for.
    #[error("the plan holds for {range}, not for {size}")]
    Size {
        /// The size of the buffer.
        size: Bytes,
        /// The plan's.
        range: SizeRange,
    },
    /// A size that no plan of a table holds for.
    #[error("no plan for `{operation}` of {size} on {dimensions}; there are plans for {known}")]
    NoPlan {
        /// What is to be done.
        operation: Operation,
        /// On how many bytes.
        size: Bytes,
        /// Over which dimensions, as text.
        dimensions: String,
        /// The sizes that there are plans for, as text.
        known: String,
    },
}
