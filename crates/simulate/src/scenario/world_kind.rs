//! The network models: the key `world`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The worlds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorldKind {
    /// Each dimension is one server.
    #[default]
    Dims,
    /// Each link is a server of whole messages.
    Links,
    /// Messages share links max-min fairly.
    Flows,
    /// Switches with buffers, virtual channels and credits.
    Packets,
}

/// Every world: tag and one line for the docs.
pub const WORLDS: &[(WorldKind, &str, &str)] = &[
    (
        WorldKind::Dims,
        "dims",
        "each dimension is one server; the cost does not depend on the number of NPUs",
    ),
    (
        WorldKind::Links,
        "links",
        "every link serves whole messages first come, first served, store and forward",
    ),
    (
        WorldKind::Flows,
        "flows",
        "messages share the links of a graph max-min fairly, over one path or several",
    ),
    (
        WorldKind::Packets,
        "packets",
        "input-queued switches with virtual channels, credits and adaptive routing",
    ),
];

impl WorldKind {
    /// The tag in scenario files.
    #[must_use]
    pub fn tag(self) -> &'static str {
        WORLDS.iter().find(|(kind, ..)| *kind == self).expect("every world is listed").1
    }

    /// Whether it carries messages between ranks, and not stages of classes of ranks.
    #[must_use]
    pub fn carries_messages(self) -> bool {
        self != Self::Dims
    }

    /// Whether it has every link of a graph as it is, and not one width for all of a dimension.
    #[must_use]
    pub fn has_every_link(self) -> bool {
        matches!(self, Self::Flows | Self::Packets)
    }

    /// Whether what a rank hands to a link is sent in that order, and does not share it.
    #[must_use]
    pub fn sends_in_order(self) -> bool {
        matches!(self, Self::Dims | Self::Links)
    }
}
