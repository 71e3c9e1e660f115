//! A user's own network: named NPUs and switches, and the links between them.
//!
//! NPUs are numbered in the order in which they stand, switches after them, likewise. A link is a
//! cable, of the same bandwidth both ways; what it does not say, `link` says for all. `count` lays
//! several alike side by side.
//!
//! ```
//! let fabric = serde_json::json!({
//!     "topology": "graph", "npus": ["a", "b"], "switches": ["hub"],
//!     "link": { "bandwidth": "200 Gb/s" },
//!     "links": [{ "from": "a", "to": "hub" }, { "from": "b", "to": "hub", "count": 2 }],
//! });
//! let graph = allrail_fabric::topologies::read(fabric).unwrap().build().unwrap();
//! assert_eq!((graph.npus(), graph.cables().len()), (2, 3));
//! ```
//!
//! What it has no formula for: diameter, cut. It is no product of dimensions.

use std::collections::HashMap;

use allrail_core::{Bandwidth, FieldError, Time, counted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checks;
use super::drawing::Drawing;
use super::entry::Entry;
use super::topology::{Counts, GraphTopology, Summing};
use crate::Dimension;
use crate::graph::{Builder, CableKind, Graph, NodeId, Wire, measure};

/// The tag in fabric files.
pub const TAG: &str = "graph";

/// Its line in the list: what has failed goes by names here.
pub(super) const ENTRY: Entry = Entry {
    tag: TAG,
    about: "your own nodes and links, here or in a `file`",
    read: |keys| Ok(Box::new(serde_json::from_value::<UserGraph>(keys)?)),
    schema: || schemars::schema_for!(UserGraph),
    examples: &[r#"{"npus": ["a", "b", "c"], "switches": ["hub"],
                   "links": [{"from": "a", "to": "hub"}, {"from": "b", "to": "hub", "count": 2},
                             {"from": "c", "to": "hub"}, {"from": "a", "to": "b"}]}"#],
    in_a_file: true,
};

const MAX_NODES: usize = 1 << 16;
const MAX_CABLES: u64 = 1 << 20;

/// The keys of a user's own network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserGraph {
    /// Names of the NPUs, in the order of their numbers.
    pub npus: Vec<String>,
    /// Names of the switches.
    #[serde(default)]
    pub switches: Vec<String>,
    /// The cables.
    pub links: Vec<Connection>,
    /// What links are that do not say it themselves.
    #[serde(default)]
    pub link: LinkDefaults,
    /// Alike networks side by side.
    #[serde(default = "checks::one")]
    pub planes: u32,
    /// Names of NPUs and switches that do not work.
    #[serde(default)]
    pub failed_nodes: Vec<String>,
    /// Cables that do not work, each as the names of the two nodes that it joins.
    #[serde(default)]
    pub failed_links: Vec<[String; 2]>,
    /// Whether switches sum what passes through them (all-reduce `in_network`).
    #[serde(default)]
    pub in_network_reduction: bool,
}

/// What links are that do not say it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinkDefaults {
    /// Bandwidth, per direction.
    pub bandwidth: Bandwidth,
    /// Latency of one cable, without serialisation.
    pub latency: Time,
    /// What a cable is made of.
    pub cable: CableKind,
}

impl Default for LinkDefaults {
    fn default() -> Self {
        let Wire { bandwidth, latency } = Wire::cable();
        Self { bandwidth, latency, cable: CableKind::Dac }
    }
}

/// One cable, or several alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// The name of one end.
    pub from: String,
    /// The name of the other end.
    pub to: String,
    /// Bandwidth, per direction.
    #[serde(default)]
    pub bandwidth: Option<Bandwidth>,
    /// Latency of one cable, without serialisation.
    #[serde(default)]
    pub latency: Option<Time>,
    /// What the cable is made of.
    #[serde(default)]
    pub cable: Option<CableKind>,
    /// How many alike side by side.
    #[serde(default = "checks::one")]
    pub count: u32,
}

impl UserGraph {
    fn name(&self, node: NodeId) -> &str {
        let switch = || &self.switches[node.index() - self.npus.len()];
        self.npus.get(node.index()).unwrap_or_else(switch)
    }

    fn numbers(&self) -> Result<HashMap<&str, NodeId>, FieldError> {
        let mut numbers: HashMap<&str, NodeId> = HashMap::new();
        let places = [("npus", &self.npus), ("switches", &self.switches)];
        let all = places.iter().flat_map(|(key, names)| {
            names.iter().enumerate().map(move |(i, name)| (format!("fabric.{key}[{i}]"), name))
        });
        for (number, (field, name)) in (0u32..).zip(all) {
            if let Some(before) = numbers.insert(name, NodeId(number)) {
                let npus = self.npus.len();
                let (why, hint) = if before.index() < npus && number as usize >= npus {
                    ("an NPU has this name too", "a node is an NPU or a switch: rename one")
                } else {
                    ("the name stands twice", "give each node a name of its own")
                };
                return Err(FieldError::new(field, name, why, hint));
            }
        }
        Ok(numbers)
    }

    fn number(
        &self,
        numbers: &HashMap<&str, NodeId>,
        field: String,
        name: &str,
    ) -> Result<NodeId, FieldError> {
        numbers.get(name).copied().ok_or_else(|| {
            let first = self.npus.iter().chain(&self.switches).take(8);
            let known = first.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let more = if self.npus.len() + self.switches.len() > 8 { ", ..." } else { "" };
            let hint = format!("name one of `npus` and `switches`: {known}{more}");
            FieldError::new(field, name, "there is no such node", hint)
        })
    }

    fn wire(&self, link: &Connection) -> (CableKind, Wire) {
        let wire = Wire {
            bandwidth: link.bandwidth.unwrap_or(self.link.bandwidth),
            latency: link.latency.unwrap_or(self.link.latency),
        };
        (link.cable.unwrap_or(self.link.cable), wire)
    }

    fn cables(&self) -> u64 {
        self.links.iter().map(|link| u64::from(link.count)).sum()
    }

    /// With everything working, in parts perhaps.
    fn whole(&self, numbers: &HashMap<&str, NodeId>) -> Result<Graph, FieldError> {
        let mut builder = Builder::new(u32::try_from(self.npus.len()).expect("validated"));
        for _ in &self.switches {
            builder.switch();
        }
        let mut laid: HashMap<[NodeId; 2], usize> = HashMap::new();
        for (i, link) in self.links.iter().enumerate() {
            let field = |key: &str| format!("fabric.links[{i}].{key}");
            let from = self.number(numbers, field("from"), &link.from)?;
            let to = self.number(numbers, field("to"), &link.to)?;
            if from == to {
                let why = "the link joins the node to itself";
                return Err(FieldError::new(field("to"), &link.to, why, "name another node"));
            }
            if let Some(before) = laid.insert([from.min(to), from.max(to)], i) {
                return Err(FieldError::new(
                    format!("fabric.links[{i}]"),
                    format!("{} to {}", link.from, link.to),
                    format!("`links[{before}]` joins them already"),
                    "for several alike write `count` once",
                ));
            }
            let (kind, wire) = self.wire(link);
            for _ in 0..link.count {
                builder.parallel(from, to, kind, wire)?;
            }
        }
        Ok(builder.join())
    }
}

impl GraphTopology for UserGraph {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn validate(&self) -> Result<(), FieldError> {
        let nodes = self.npus.len() + self.switches.len();
        if self.npus.len() < 2 {
            let (value, hint) = (format!("{:?}", self.npus), "name them, such as `npus: [a, b]`");
            let why = "a network joins 2 NPUs at least";
            return Err(FieldError::new("fabric.npus", value, why, hint));
        }
        if nodes > MAX_NODES {
            let why = format!("a network of one's own has {MAX_NODES} nodes at most");
            let hint = "use a topology that is written by its sizes";
            return Err(FieldError::new("fabric.npus", counted(nodes, "node"), why, hint));
        }
        checks::planes(self.planes)?;
        for (i, link) in self.links.iter().enumerate() {
            checks::count(&format!("links[{i}].count"), link.count, 1 << 12)?;
        }
        if self.cables() > MAX_CABLES {
            let why = format!("a network of one's own has {MAX_CABLES} cables at most");
            let value = counted(self.cables(), "cable");
            return Err(FieldError::new("fabric.links", value, why, "join fewer nodes"));
        }
        self.build().map(drop)
    }

    fn reduces(&self) -> Option<Summing> {
        self.in_network_reduction.then_some(Summing::Switches)
    }

    fn counts(&self) -> Counts {
        let cables = |kind| {
            let alike = self.links.iter().filter(|link| self.wire(link).0 == kind);
            alike.map(|link| u64::from(link.count)).sum()
        };
        let mut ports: HashMap<&str, u64> = HashMap::new();
        for link in &self.links {
            for end in [&link.from, &link.to] {
                *ports.entry(end).or_default() += u64::from(link.count);
            }
        }
        let of = |npu: &String| ports.get(&**npu).copied().unwrap_or(0);
        Counts {
            npus: self.npus.len() as u64,
            switches: self.switches.len() as u64,
            aoc: cables(CableKind::Aoc),
            dac: cables(CableKind::Dac),
            pcb: cables(CableKind::Pcb),
            planes: 1,
            ports: self.npus.iter().map(of).max().unwrap_or(0),
        }
        .of_planes(self.planes)
    }

    fn diameter_formula(&self) -> Option<u32> {
        None
    }

    fn half_plane_cut_links(&self) -> Option<u64> {
        None
    }

    fn build(&self) -> Result<Graph, FieldError> {
        let numbers = self.numbers()?;
        let whole = self.whole(&numbers)?;
        if let Some(stranded) = measure::unreachable(&whole) {
            let why = format!("no path leads to it from `{}`", self.npus[0]);
            let field = format!("fabric.npus[{}]", stranded.0);
            let hint = "add the link that joins the parts of the network";
            return Err(FieldError::new(field, self.name(stranded), why, hint));
        }
        let mut nodes = Vec::new();
        for (i, name) in self.failed_nodes.iter().enumerate() {
            nodes.push(self.number(&numbers, format!("fabric.failed_nodes[{i}]"), name)?);
        }
        let mut links = Vec::new();
        for (i, [one, other]) in self.failed_links.iter().enumerate() {
            let field = |end| format!("fabric.failed_links[{i}][{end}]");
            let one = self.number(&numbers, field(0), one)?;
            links.push([one, self.number(&numbers, field(1), other)?]);
        }
        whole.without(&nodes, &links, |node| self.name(node).to_owned())
    }

    fn drawing(&self) -> Drawing {
        let names = self.npus.iter().chain(&self.switches).cloned().collect();
        Drawing { names: Some(names), ..Drawing::default() }
    }

    fn dimensions(&self) -> Result<Vec<Dimension>, String> {
        Err("a network of one's own is not known to be a product of dimensions".to_owned())
    }
}
