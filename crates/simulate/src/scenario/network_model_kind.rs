//! The network models: the key `network_model`.
//!
//! A new one is a variant and its row in [`NETWORK_MODELS`]; on a graph, also a file in `on_graph`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::on_graph::{GraphModel, flows, packets};

/// The network models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NetworkModelKind {
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

/// What a network model is made of.
#[derive(Clone, Copy)]
pub(crate) enum Network {
    /// One server for each dimension of each class of ranks.
    Dimensions,
    /// The links of every dimension, each a server.
    Links,
    /// Cables and switches of a graph.
    Graph(&'static dyn GraphModel),
}

/// What there is to say of a network model.
pub struct NetworkModelEntry {
    /// Which.
    pub kind: NetworkModelKind,
    /// Its name in scenario files.
    pub tag: &'static str,
    /// One line for the docs.
    pub about: &'static str,
    /// What it is made of.
    network: Network,
}

/// Every network model.
pub const NETWORK_MODELS: &[NetworkModelEntry] = &[
    NetworkModelEntry {
        kind: NetworkModelKind::Dims,
        tag: "dims",
        about: "each dimension is one server; the cost does not depend on the number of NPUs",
        network: Network::Dimensions,
    },
    NetworkModelEntry {
        kind: NetworkModelKind::Links,
        tag: "links",
        about: "every link serves whole messages first come, first served, store and forward",
        network: Network::Links,
    },
    NetworkModelEntry {
        kind: NetworkModelKind::Flows,
        tag: "flows",
        about: "messages share the links of a graph max-min fairly, over one path or several",
        network: Network::Graph(&flows::Model),
    },
    NetworkModelEntry {
        kind: NetworkModelKind::Packets,
        tag: "packets",
        about: "input-queued switches with virtual channels, credits and adaptive routing",
        network: Network::Graph(&packets::Model),
    },
];

impl NetworkModelKind {
    fn model(self) -> &'static NetworkModelEntry {
        NETWORK_MODELS
            .iter()
            .find(|model| model.kind == self)
            .expect("every network model is listed")
    }

    /// The one of this name.
    #[must_use]
    pub(crate) fn named(name: &str) -> Option<Self> {
        NETWORK_MODELS.iter().find(|model| model.tag == name).map(|model| model.kind)
    }

    /// The tag in scenario files.
    #[must_use]
    pub fn tag(self) -> &'static str {
        self.model().tag
    }

    pub(crate) fn network(self) -> Network {
        self.model().network
    }

    /// Whether it carries messages between ranks, and not stages of classes of ranks.
    #[must_use]
    pub fn carries_messages(self) -> bool {
        !matches!(self.network(), Network::Dimensions)
    }

    /// Whether it has every link of a graph as it is, and not one width for all of a dimension.
    #[must_use]
    pub(crate) fn has_every_link(self) -> bool {
        matches!(self.network(), Network::Graph(_))
    }

    /// Whether what a rank hands to a link is sent in that order, and does not share it.
    #[must_use]
    pub(crate) fn sends_in_order(self) -> bool {
        !self.has_every_link()
    }
}
