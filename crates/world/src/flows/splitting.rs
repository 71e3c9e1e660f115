//! Over which paths a message is split, and how.
//!
//! | splitting | paths | shares |
//! |---|---|---|
//! | `single` | one shortest path, by destination ([`Paths::single`]'s rule) | all |
//! | `ecmp` | all shortest paths | even over the next links of every node |
//! | `minimal` | all shortest paths | those that load the most loaded link least |
//! | `ideal` | those that the topology's routing may take: shortest ones, and with `detours` also those by way of any one switch (dragonfly) | those that load the most loaded link least |
//!
//! The last two look at all messages that start together; see `balance.rs`.
//!
//! [`Paths::single`]: super::paths::Paths::single

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Splitting {
    /// The best splitting over the paths that the topology's routing may take.
    Ideal,
    /// The best splitting over shortest paths.
    Minimal,
    /// Evenly over all next links, at every node.
    Ecmp,
    /// One shortest path.
    Single,
}
