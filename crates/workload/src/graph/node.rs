//! What a step graph is made of: actors, groups, and nodes with their work.

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Rank, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index into a `Vec`.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

id!(
    /// A node of a step graph.
    NodeId
);
id!(
    /// An actor of a step graph.
    ActorId
);
id!(
    /// A group of a step graph.
    GroupId
);

/// A class of ranks that run the same nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// For tables and traces: `ranks`, `stage 3`, `rank 17`.
    pub name: String,
    /// Its ranks, ascending; not empty.
    pub ranks: Vec<Rank>,
}

/// Part of a dimension: `size` ranks that are `stride` apart on it. A whole dimension of 8 is
/// `{size: 8, stride: 1}`; of 64, `1[0:8]` is `{size: 8, stride: 1}` and the rest
/// `{size: 8, stride: 8}`. Parts of one dimension share its bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// Which dimension.
    pub dimension: DimensionId,
    /// How many ranks.
    pub size: u32,
    /// How far apart on the dimension.
    pub stride: u32,
}

/// Whom a collective spans, or among whom messages are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// For tables and errors: `tp`, `dp of stage 3`.
    pub name: String,
    /// Where its ranks differ; empty where `ranks` says it.
    pub parts: Vec<Part>,
    /// The one instance's ranks in order, of a group that is no product of parts (from a trace).
    pub ranks: Vec<Rank>,
    /// The actors whose ranks meet in it, ascending. All ranks of an instance belong to these.
    pub actors: Vec<ActorId>,
}

/// What a communication is for: the kinds by which exposed time is reported.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Gradients, parameters and optimizer shards over replicas: the tensor scheduler's.
    Data,
    /// Activations within a layer (tensor, sequence and context parallel).
    Tensor,
    /// Activations between pipeline stages.
    Pipeline,
    /// Tokens to and from experts, or embeddings to and from their tables.
    Expert,
    /// Halos and shards of one operator.
    Operator,
    /// Of a trace that does not say.
    Other,
}

impl Purpose {
    /// Every purpose, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Data, Self::Tensor, Self::Pipeline, Self::Expert, Self::Operator, Self::Other];

    /// In words, after "waits for".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Data => "data-parallel communication",
            Self::Tensor => "tensor-parallel communication",
            Self::Pipeline => "pipeline-parallel communication",
            Self::Expert => "expert-parallel communication",
            Self::Operator => "operator-parallel communication",
            Self::Other => "communication",
        }
    }
}

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Keeps the actor's compute engine busy; a node of no time joins dependencies.
    Compute {
        /// At nominal speed.
        time: Time,
    },
    /// A collective over a group. The k-th of an actor meets the k-th of the group's others.
    Collective {
        /// What it does.
        operation: Operation,
        /// The buffer, as in a scenario's `collective.size`.
        bytes: Bytes,
        /// Over whom.
        group: GroupId,
        /// What for.
        purpose: Purpose,
    },
    /// A message to the rank at `peer` in the group. It is over when it has left.
    Send {
        /// How much.
        bytes: Bytes,
        /// Within which group.
        group: GroupId,
        /// To whom.
        peer: Peer,
        /// What for.
        purpose: Purpose,
    },
    /// Waits for a message. The k-th receive from a peer takes its k-th send.
    Receive {
        /// How much.
        bytes: Bytes,
        /// Within which group.
        group: GroupId,
        /// From whom.
        peer: Peer,
        /// What for.
        purpose: Purpose,
    },
}

/// A rank within the instance of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// At this position.
    At(u32),
    /// So many positions further, around the end.
    Next(i32),
}

/// A node with everything but its dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Who runs it.
    pub actor: ActorId,
    /// What it does.
    pub work: Work,
    /// Of a gradient's collective: the place of its tensor in the forward pass, 0 first. The tensor
    /// schedulers go by it, and a node without one is not theirs.
    pub tensor: Option<u32>,
    /// Of which pass it is.
    pub pass: Pass,
}

/// Which pass a node belongs to: for results by pass.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Forward.
    Forward,
    /// Backward, of inputs and weights.
    Backward,
    /// The optimizer's.
    Update,
    /// Not said.
    #[default]
    Unknown,
}

impl Pass {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Update, Self::Unknown];

    /// Its place in [`Self::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
