//! A network as a graph: NPUs and switches, joined by cables.
//!
//! A cable is two directed links, one each way, of the same bandwidth and latency. NPUs are the
//! nodes `0 .. npus`, switches follow. A graph holds *one* plane; alike planes multiply what is
//! counted ([`crate::topologies::Counts`]) and the bandwidth of an NPU, not the graph.
//!
//! A [`Builder`] refuses what no one can have meant: a cable to a node that does not exist or to the
//! node itself, a second cable between two nodes unless it is asked for, NPUs that cannot reach each
//! other.

mod failed;
pub mod measure;
pub mod paths;
mod product;
pub mod trunk;

pub(crate) use product::{MAX_CABLES, line, line_parts};

use std::collections::HashSet;

use allrail_core::{Bandwidth, FieldError, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a cable is made of, which is what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CableKind {
    /// Active optical.
    Aoc,
    /// Direct attach copper.
    Dac,
    /// A trace of a board.
    Pcb,
}

/// How fast a cable is, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wire {
    /// Bandwidth, per direction.
    pub bandwidth: Bandwidth,
    /// Latency of one cable, without serialisation.
    pub latency: Time,
}

impl Wire {
    /// A cable between boards or racks: 400 Gb/s and 20 ns (`HammingMesh`, SC'22, Table III).
    #[must_use]
    pub fn cable() -> Self {
        Self::of_400_gbps(Time::from_ns(20))
    }

    /// A trace of a board: 400 Gb/s and 1 ns (`HammingMesh`, SC'22, Table III).
    #[must_use]
    pub fn trace() -> Self {
        Self::of_400_gbps(Time::from_ns(1))
    }

    fn of_400_gbps(latency: Time) -> Self {
        let bandwidth = Bandwidth::from_bytes_per_second(50_000_000_000).expect("positive");
        Self { bandwidth, latency }
    }
}

/// A node of a [`Graph`]: an NPU if below [`Graph::npus`], a switch otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Two directed links between the same nodes, one each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Its ends; the link `2i` of the cable `i` goes from the first to the second.
    pub ends: [NodeId; 2],
    /// What it is made of.
    pub kind: CableKind,
    /// How fast it is.
    pub wire: Wire,
}

/// One direction of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Where it starts.
    pub from: NodeId,
    /// Where it ends.
    pub to: NodeId,
    /// How fast it is.
    pub wire: Wire,
}

/// One plane of a network, connected. Made by a [`Builder`].
#[derive(Clone, Debug)]
pub struct Graph {
    npus: u32,
    cables: Vec<Cable>,
    /// Where each node's part of `neighbours` starts; one entry more than nodes.
    starts: Vec<u32>,
    /// The nodes at the other end of each node's cables, and the directed link to each.
    neighbours: Vec<(NodeId, u32)>,
}

impl Graph {
    /// How many NPUs.
    #[must_use]
    pub const fn npus(&self) -> u32 {
        self.npus
    }

    /// How many NPUs and switches.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// How many switches.
    #[must_use]
    pub fn switches(&self) -> usize {
        self.nodes() - self.npus as usize
    }

    /// The cables, in the order in which they were laid.
    #[must_use]
    pub fn cables(&self) -> &[Cable] {
        &self.cables
    }

    /// How many directed links: two for each cable.
    #[must_use]
    pub fn links(&self) -> u32 {
        u32::try_from(2 * self.cables.len()).expect("fewer than 2^32 links")
    }

    /// The directed link `link`: cable `link / 2`, forwards if even.
    #[must_use]
    pub fn link(&self, link: u32) -> Link {
        let cable = &self.cables[link as usize / 2];
        let [from, to] =
            if link.is_multiple_of(2) { cable.ends } else { [cable.ends[1], cable.ends[0]] };
        Link { from, to, wire: cable.wire }
    }

    /// The same network with other bandwidths; `of` is asked for each cable by its number.
    #[must_use]
    pub fn with_bandwidths(mut self, of: impl Fn(usize, Bandwidth) -> Bandwidth) -> Self {
        for (number, cable) in self.cables.iter_mut().enumerate() {
            cable.wire.bandwidth = of(number, cable.wire.bandwidth);
        }
        self
    }

    /// What an NPU can send at once: the sum over its cables.
    #[must_use]
    pub fn injection(&self, npu: NodeId) -> Bandwidth {
        let cables = self.neighbours(npu).iter().map(|&(_, link)| self.link(link).wire.bandwidth);
        let sum = cables.map(Bandwidth::bytes_per_second).sum();
        Bandwidth::from_bytes_per_second(sum).expect("an NPU has a cable")
    }

    /// The nodes next to `node`, each with the directed link to it; once for each parallel cable.
    #[must_use]
    pub fn neighbours(&self, node: NodeId) -> &[(NodeId, u32)] {
        let (from, to) = (self.starts[node.index()], self.starts[node.index() + 1]);
        &self.neighbours[from as usize..to as usize]
    }
}

/// Collects nodes and cables.
#[derive(Debug)]
pub struct Builder {
    npus: u32,
    nodes: u32,
    cables: Vec<Cable>,
    joined: HashSet<[NodeId; 2]>,
}

impl Builder {
    /// Starts with `npus` NPUs: the nodes `0 .. npus`.
    #[must_use]
    pub fn new(npus: u32) -> Self {
        Self { npus, nodes: npus, cables: Vec::new(), joined: HashSet::new() }
    }

    /// Adds a switch.
    pub fn switch(&mut self) -> NodeId {
        self.nodes += 1;
        NodeId(self.nodes - 1)
    }

    /// Lays the only cable between `a` and `b`.
    ///
    /// # Errors
    /// There is one already, or one of the ends does not exist, or both are the same.
    pub fn cable(
        &mut self,
        a: NodeId,
        b: NodeId,
        kind: CableKind,
        wire: Wire,
    ) -> Result<(), FieldError> {
        if self.joined.contains(&[a.min(b), a.max(b)]) {
            return Err(wrong(a, b, "a cable joins them already", "leave the second cable out"));
        }
        self.parallel(a, b, kind, wire)
    }

    /// Lays a cable between `a` and `b`, beside those that there may be.
    ///
    /// # Errors
    /// One of the ends does not exist, or both are the same.
    pub fn parallel(
        &mut self,
        a: NodeId,
        b: NodeId,
        kind: CableKind,
        wire: Wire,
    ) -> Result<(), FieldError> {
        if a.max(b).0 >= self.nodes {
            let why = format!("the nodes are 0 to {}", self.nodes.saturating_sub(1));
            return Err(wrong(a, b, why, "name two nodes that exist"));
        }
        if a == b {
            return Err(wrong(a, b, "it joins a node to itself", "name two different nodes"));
        }
        self.joined.insert([a.min(b), a.max(b)]);
        self.cables.push(Cable { ends: [a, b], kind, wire });
        Ok(())
    }

    /// The graph.
    ///
    /// # Errors
    /// It has no NPU, or an NPU cannot reach another.
    pub fn build(self) -> Result<Graph, FieldError> {
        let graph = self.join();
        if graph.npus == 0 {
            return Err(FieldError::new(
                "fabric",
                "no NPU",
                "a network joins 1 NPU at least",
                "leave fewer boards out",
            ));
        }
        if let Some(stranded) = measure::unreachable(&graph) {
            return Err(FieldError::new(
                "fabric",
                format!("NPU {}", stranded.0),
                "no path leads to it from NPU 0",
                "join the parts of the network, or leave fewer boards out",
            ));
        }
        Ok(graph)
    }

    /// The graph, in parts perhaps.
    pub(crate) fn join(self) -> Graph {
        let mut starts = vec![0u32; self.nodes as usize + 1];
        for cable in &self.cables {
            for end in cable.ends {
                starts[end.index() + 1] += 1;
            }
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let mut next = starts.clone();
        let mut neighbours = vec![(NodeId(0), 0); 2 * self.cables.len()];
        for (link, cable) in (0u32..).step_by(2).zip(&self.cables) {
            let [a, b] = cable.ends;
            for (from, to, link) in [(a, b, link), (b, a, link + 1)] {
                neighbours[next[from.index()] as usize] = (to, link);
                next[from.index()] += 1;
            }
        }
        Graph { npus: self.npus, cables: self.cables, starts, neighbours }
    }
}

fn wrong(a: NodeId, b: NodeId, why: impl Into<String>, hint: &str) -> FieldError {
    FieldError::new("fabric.cables", format!("{} to {}", a.0, b.0), why, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_is_a_link_each_way() {
        let mut builder = Builder::new(2);
        let hub = builder.switch();
        for npu in [NodeId(0), NodeId(1)] {
            builder.cable(npu, hub, CableKind::Dac, Wire::cable()).expect("a cable");
        }
        let graph = builder.build().expect("a graph");
        assert_eq!((graph.npus(), graph.switches(), graph.cables().len()), (2, 1, 2));
        assert_eq!(graph.neighbours(hub), [(NodeId(0), 1), (NodeId(1), 3)]);
        assert_eq!(graph.neighbours(NodeId(1)), [(hub, 2)]);
    }

    #[test]
    fn refuses_what_no_one_means() {
        let (kind, wire) = (CableKind::Aoc, Wire::cable());
        let mut builder = Builder::new(3);
        builder.cable(NodeId(0), NodeId(1), kind, wire).expect("a cable");
        let twice = builder.cable(NodeId(1), NodeId(0), kind, wire).expect_err("a duplicate");
        assert!(twice.why.contains("already"));
        builder.parallel(NodeId(1), NodeId(0), kind, wire).expect("it is asked for");
        let nowhere = builder.cable(NodeId(0), NodeId(3), kind, wire).expect_err("no node 3");
        assert_eq!(nowhere.value, "0 to 3");
        assert!(builder.cable(NodeId(2), NodeId(2), kind, wire).is_err());
        let apart = builder.build().expect_err("NPU 2 is alone");
        assert_eq!(apart.value, "NPU 2");
        assert!(Builder::new(0).build().is_err());
    }
}
