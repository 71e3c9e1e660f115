//! Any topology with failed nodes and links: the keys `failed_nodes` and `failed_links`.
//!
//! Nodes go by their numbers in one plane of the network without them, as `allrail fabric show`
//! prints them: NPUs from 0, then switches. A failed link is a pair of nodes and stands for one of the
//! cables between them. Counts and price stay those of what was bought; the graph lacks the parts.
//!
//! Formulas of distances and cuts no longer hold, and packets go by any shortest path: the routing of
//! the whole network would lead them to what is not there.

use allrail_core::FieldError;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::drawing::Drawing;
use super::topology::{Counts, GraphTopology, Summing};
use crate::Dimension;
use crate::graph::{Graph, NodeId};

/// The keys of what has failed.
#[derive(Debug, Deserialize, JsonSchema)]
struct Failed {
    /// NPUs and switches that do not work, by number: NPUs from 0, then switches.
    #[serde(default)]
    failed_nodes: Vec<u32>,
    /// Cables that do not work, each as the numbers of the two nodes that it joins.
    #[serde(default)]
    failed_links: Vec<[u32; 2]>,
}

struct Damaged<T> {
    whole: T,
    nodes: Vec<NodeId>,
    links: Vec<[NodeId; 2]>,
}

/// Networks of more NPUs than this are not built to see whether what has failed leaves them whole.
const MOST_CHECKED: u64 = 1 << 16;

/// Reads a topology's keys, and those of what has failed beside them.
pub(super) fn read<T>(mut keys: Value) -> Result<Box<dyn GraphTopology>, serde_json::Error>
where
    T: GraphTopology + DeserializeOwned + 'static,
{
    let mut failed = serde_json::Map::new();
    if let Some(keys) = keys.as_object_mut() {
        for key in ["failed_nodes", "failed_links"] {
            failed.extend(keys.remove(key).map(|value| (key.to_owned(), value)));
        }
    }
    let failed: Failed = serde_json::from_value(Value::Object(failed))?;
    let whole: T = serde_json::from_value(keys)?;
    if failed.failed_nodes.is_empty() && failed.failed_links.is_empty() {
        return Ok(Box::new(whole));
    }
    let nodes = failed.failed_nodes.into_iter().map(NodeId).collect();
    let links = failed.failed_links.into_iter().map(|ends| ends.map(NodeId)).collect();
    Ok(Box::new(Damaged { whole, nodes, links }))
}

/// The JSON schema of a topology's keys with those of what has failed.
pub(super) fn schema<T: JsonSchema>() -> Schema {
    let mut keys = schemars::schema_for!(T);
    let failed = schemars::schema_for!(Failed);
    let more = failed.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(properties) = keys.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(more);
    }
    keys
}

impl<T: GraphTopology> Damaged<T> {
    fn left_of(&self, graph: &Graph) -> Result<Graph, FieldError> {
        graph.without(&self.nodes, &self.links, |node| node.0.to_string())
    }

    /// What is built and what is simulated number their switches differently: only NPUs are the same.
    fn check_numbers(&self) -> Result<(), FieldError> {
        let Some(told) = self.whole.simulated_as() else { return Ok(()) };
        let npus = self.whole.counts().npus;
        let is_switch = |node: &NodeId| u64::from(node.0) >= npus;
        let node = self.nodes.iter().position(is_switch);
        let link = self.links.iter().position(|ends| ends.iter().any(is_switch));
        let (field, value) = match (node, link) {
            (Some(i), _) => (format!("fabric.failed_nodes[{i}]"), self.nodes[i].0.to_string()),
            (None, Some(i)) => {
                let [one, other] = self.links[i];
                (format!("fabric.failed_links[{i}]"), format!("[{}, {}]", one.0, other.0))
            }
            (None, None) => return Ok(()),
        };
        let why = format!("only NPUs can fail here: it is {told}");
        Err(FieldError::new(field, value, why, format!("name NPUs, 0 to {}", npus - 1)))
    }
}

impl<T: GraphTopology> GraphTopology for Damaged<T> {
    fn tag(&self) -> &'static str {
        self.whole.tag()
    }

    fn validate(&self) -> Result<(), FieldError> {
        self.whole.validate()?;
        self.check_numbers()?;
        if self.counts().npus <= MOST_CHECKED {
            self.build()?;
        }
        Ok(())
    }

    fn reduces(&self) -> Option<Summing> {
        self.whole.reduces()
    }

    fn on_board(&self) -> u64 {
        self.whole.on_board()
    }

    fn takes_detours(&self) -> bool {
        self.whole.takes_detours()
    }

    fn grid(&self) -> Option<[u32; 2]> {
        self.whole.grid()
    }

    fn shares_ports(&self) -> bool {
        self.whole.shares_ports()
    }

    fn drawing(&self) -> Drawing {
        self.whole.drawing()
    }

    fn counts(&self) -> Counts {
        self.whole.counts()
    }

    fn diameter_formula(&self) -> Option<u32> {
        None
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        None
    }

    fn build(&self) -> Result<Graph, FieldError> {
        self.left_of(&self.whole.build()?)
    }

    fn simulated(&self) -> Result<Graph, FieldError> {
        self.left_of(&self.whole.simulated()?)
    }

    fn simulated_as(&self) -> Option<&'static str> {
        self.whole.simulated_as()
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        self.whole.dimensions()?;
        Err("parts of it have failed: its NPUs are no longer alike".to_owned())
    }
}
