//! Identifiers. A rank is one NPU's process; a dimension is a position in a fabric's list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $label:literal) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash,
            Serialize, Deserialize, JsonSchema,
        )]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The identifier as an index into a `Vec`.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($label, "{}"), self.0)
            }
        }
    };
}

id!(
    /// One process of the job, on one NPU.
    Rank,
    "rank "
);
id!(
    /// A dimension of the fabric, counted from 0 (innermost). Shown counted from 1, as papers do.
    DimensionId,
    "dimension "
);

impl DimensionId {
    /// The name used in tables and pictures: `dim1` is the innermost dimension.
    #[must_use]
    pub fn name(self) -> String {
        format!("dim{}", self.0 + 1)
    }
}
