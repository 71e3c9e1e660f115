//! A network's inner part: what is left when NPUs that hang on a switch by one cable are cut off.
//!
//! Whatever such an NPU sends or receives crosses its one cable, so only its switch has a choice of
//! paths: fat trees and dragonflies shrink to their switches. NPUs with several cables (torus,
//! `HammingMesh`) forward, and stay. Parallel cables of one bandwidth are one arc.

use super::{Graph, NodeId};

/// Directed cables between the same two nodes, of the same bandwidth.
#[derive(Clone, Copy, Debug)]
pub struct Arc {
    /// Where it leads.
    pub to: u32,
    /// Where its links start in [`Trunk::lanes`].
    first: u32,
    /// How many they are.
    pub cables: u32,
    /// Bytes a second, of all its cables.
    pub capacity: f64,
    /// The largest of its cables, in picoseconds.
    pub latency: u64,
}

/// The cable of an NPU that hangs on a switch.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// The link to the switch; the one back is its sibling.
    pub up: u32,
    /// The one back.
    pub down: u32,
    /// Bytes a second.
    pub capacity: f64,
    /// In picoseconds.
    pub latency: u64,
}

/// See the module. Nodes keep their numbers.
#[derive(Clone, Debug)]
pub struct Trunk {
    npus: u32,
    hosts: Vec<u32>,
    access: Vec<Option<Access>>,
    starts: Vec<u32>,
    arcs: Vec<Arc>,
    lanes: Vec<u32>,
}

impl Trunk {
    /// Cuts a graph's NPUs off.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        let npus = graph.npus();
        let hangs = |node: NodeId| {
            let neighbours = graph.neighbours(node);
            (node.0 < npus && neighbours.len() == 1 && neighbours[0].0.0 >= npus)
                .then(|| neighbours[0])
        };
        let mut trunk = Self {
            npus,
            hosts: Vec::with_capacity(npus as usize),
            access: Vec::with_capacity(npus as usize),
            starts: vec![0],
            arcs: Vec::new(),
            lanes: Vec::new(),
        };
        for npu in (0..npus).map(NodeId) {
            let hanging = hangs(npu);
            trunk.hosts.push(hanging.map_or(npu.0, |(switch, _)| switch.0));
            trunk.access.push(hanging.map(|(_, up)| {
                let wire = graph.link(up).wire;
                Access {
                    up,
                    down: up ^ 1,
                    capacity: wire.bandwidth.bytes_per_second() as f64,
                    latency: wire.latency.as_ps(),
                }
            }));
        }
        let mut arc_to = vec![u32::MAX; graph.nodes()];
        let mut lanes: Vec<Vec<u32>> = Vec::new();
        for node in (0..graph.nodes() as u32).map(NodeId) {
            let first = trunk.arcs.len();
            lanes.clear();
            let inner = if hangs(node).is_some() { &[] } else { graph.neighbours(node) };
            for &(to, link) in inner {
                if hangs(to).is_some() {
                    continue;
                }
                let wire = graph.link(link).wire;
                let (bandwidth, latency) =
                    (wire.bandwidth.bytes_per_second() as f64, wire.latency.as_ps());
                let known = arc_to[to.index()] as usize;
                let alike = known < trunk.arcs.len()
                    && known >= first
                    && trunk.arcs[known].capacity
                        == bandwidth * f64::from(trunk.arcs[known].cables);
                if alike {
                    let arc = &mut trunk.arcs[known];
                    arc.cables += 1;
                    arc.capacity += bandwidth;
                    arc.latency = arc.latency.max(latency);
                    lanes[known - first].push(link);
                } else {
                    arc_to[to.index()] = trunk.arcs.len() as u32;
                    let arc = Arc { to: to.0, first: 0, cables: 1, capacity: bandwidth, latency };
                    trunk.arcs.push(arc);
                    lanes.push(vec![link]);
                }
            }
            for (arc, links) in trunk.arcs[first..].iter_mut().zip(&lanes) {
                arc.first = trunk.lanes.len() as u32;
                trunk.lanes.extend(links);
            }
            trunk.starts.push(trunk.arcs.len() as u32);
        }
        trunk
    }

    /// How many NPUs the graph has.
    #[must_use]
    pub const fn npus(&self) -> u32 {
        self.npus
    }

    /// How many nodes, those cut off among them.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The node at which an NPU's choice of paths begins: its switch, or itself.
    #[must_use]
    pub fn host(&self, npu: u32) -> u32 {
        self.hosts[npu as usize]
    }

    /// Its one cable; `None` of one that stays.
    #[must_use]
    pub fn access(&self, npu: u32) -> Option<Access> {
        self.access[npu as usize]
    }

    /// The arcs from one NPU, or the switch that it hangs on, to another past these nodes; `None` where there is one
    /// that no arc leads to.
    #[must_use]
    pub fn along(&self, from: u32, to: u32, via: &[u32]) -> Option<Vec<u32>> {
        let hosts = [from, to].map(|npu| self.host(npu));
        let (mut at, mut found) = (hosts[0], Vec::with_capacity(via.len() + 1));
        let inside = via.iter().copied().filter(|node| !hosts.contains(node));
        for next in inside.chain([hosts[1]]).filter(|next| *next != hosts[0]) {
            let arc = self.leaving(at).find(|arc| self.arcs[*arc].to == next)?;
            found.push(u32::try_from(arc).ok()?);
            at = next;
        }
        Some(found)
    }

    /// All of them.
    #[must_use]
    pub fn arcs(&self) -> &[Arc] {
        &self.arcs
    }

    /// The numbers of the arcs that leave `node`.
    #[must_use]
    pub fn leaving(&self, node: u32) -> std::ops::Range<usize> {
        self.starts[node as usize] as usize..self.starts[node as usize + 1] as usize
    }

    /// The links of an arc.
    #[must_use]
    pub fn lanes(&self, arc: u32) -> &[u32] {
        let arc = &self.arcs[arc as usize];
        &self.lanes[arc.first as usize..(arc.first + arc.cables) as usize]
    }
}
