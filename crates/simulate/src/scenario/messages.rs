//! How communication becomes messages: the key `messages`.

use std::collections::BTreeMap;

use allrail_core::Time;
use allrail_network::flows::Splitting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How communication becomes messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSettings {
    /// `flows`: over which paths a message is split: `ecmp` (if left out; of a collective `minimal`), `single`,
    /// `minimal`, `ideal`. All that a collective without a workload has of these keys.
    #[schemars(with = "Option<String>")]
    pub paths: Option<Splitting>,
    /// What every message waits for at its ends: processors, network interfaces.
    pub overhead: Time,
    /// Whether a send is over when its message has arrived; if not, when it has left.
    pub acknowledged: bool,
    /// `flows`: one message for alike steps of an algorithm, exact while nothing disturbs them.
    pub steady: bool,
    /// What collectives are made of on graphs, instead of the chunks of a plan on the topology's
    /// dimensions.
    pub algorithms: Option<Algorithms>,
}

/// Which algorithms collectives take on graph fabrics.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Algorithms {
    /// Of all-reduces: over a group's ranks in a grid, or `in_network` where switches reduce.
    pub all_reduce: String,
    /// `direct`: to everyone at once; `pairwise`: to one after the other, each when the last one's
    /// message has come.
    pub all_to_all: AllToAll,
    /// Groups whose all-reduces take another algorithm, by name.
    pub groups: BTreeMap<String, String>,
    /// Rows and columns of a group's ranks, by name; its first part along rows, or as square as it
    /// goes, if left out.
    pub shapes: BTreeMap<String, [u32; 2]>,
}

impl Default for Algorithms {
    fn default() -> Self {
        Self {
            all_reduce: "ring".to_owned(),
            all_to_all: AllToAll::Direct,
            groups: BTreeMap::new(),
            shapes: BTreeMap::new(),
        }
    }
}

/// How an all-to-all sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "an all-to-all"))]
pub enum AllToAll {
    /// To everyone at once.
    #[default]
    Direct,
    /// To the next, then to the one after, each when the last one's message has come.
    Pairwise,
}
