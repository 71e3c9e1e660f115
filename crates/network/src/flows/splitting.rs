//! Over which paths a message is split, and how.
//!
//! | splitting | paths | shares |
//! |---|---|---|
//! | `single` | one shortest path, by destination ([`Paths::single`]'s rule) | all |
//! | `ecmp` | all shortest paths | even over paths, parallel cables told apart |
//! | `minimal` | all shortest paths | those that load the most loaded link least |
//! | `ideal` | those that the topology's routing may take: shortest ones, and with `detours` also those by way of any one switch (dragonfly) | those that load the most loaded link least |
//!
//! `ecmp` is even over paths, so a node weights its next links by the paths that go on from them
//! (weighted ECMP). Even over the next links alone would overload cables where a tree's uplinks do not
//! divide evenly among spines, and miss the published figures there.
//!
//! The last two look at all messages that start together; see `balance.rs`.
//!
//! [`Paths::single`]: allrail_fabric::graph::paths::Paths::single

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a choice of paths"))]
pub enum Splitting {
    /// The best splitting over the paths that the topology's routing may take.
    Ideal,
    /// The best splitting over shortest paths.
    Minimal,
    /// Evenly over all shortest paths.
    Ecmp,
    /// One shortest path.
    Single,
}

impl Splitting {
    /// Those that take some of its paths by plainer rules.
    #[must_use]
    pub const fn plainer(self) -> &'static [Self] {
        match self {
            Self::Ideal => &[Self::Minimal, Self::Ecmp, Self::Single],
            Self::Minimal => &[Self::Ecmp, Self::Single],
            Self::Ecmp | Self::Single => &[],
        }
    }
}
