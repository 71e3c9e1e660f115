//! All-reduce in the switches: NPUs send their buffer up a tree once, switches sum it and send the
//! sum down to all.
//!
//! An NPU sends and receives `S` bytes instead of `2S(p − 1)/p`, and latencies add up over the height of
//! a tree instead of over steps. On each cable of a tree the bytes are the same, its share of `S` up
//! and as many down, since switches pass on one sum and not its terms. Sums follow the data in small
//! segments, so up and down overlap:
//!
//! ```text
//! time = (bytes on the busiest link) / (its bandwidth) + 2 · (latency from the farthest NPU to the root)
//! ```
//!
//! *Roots* are the switches whose farthest NPU is nearest: the spines of a fat tree. The buffer is
//! divided evenly over as many of them as make the time shortest, the fewest of those: one, if all
//! cables are alike and an NPU has one cable; more where NPUs have several or cables inside are
//! slower. Trees take shortest paths over switches, each node the uplink that the fewest trees took
//! before.
//!
//! On boards and tori the routers of NPUs sum, too ([`Summing::Routers`]): an NPU adds its own buffer to what
//! passes through it. Roots are then the node in the middle of a longest way and those around it, NPUs or
//! switches, in turns, of 64 trees at most. A tree of `p` NPUs has `p − 1` of their cables, so trees that share a torus of two
//! dimensions evenly load each with `(p − 1)/2p` of the buffer, as two disjoint rings do, in as many
//! latencies as the torus is wide and not as it has NPUs.
//!
//! Source: Graham et al., "Scalable hierarchical aggregation protocol (SHArP)", COMHPC 2016. One plane
//! is looked at: alike planes take a share of the buffer each.
//!
//! Of a part of the NPUs, as in a training step, `plan.rs` has the tree, its proof, and the messages that
//! stand for it in `flows`.
//!
//! Ignored: the time that a switch takes to add, its memory, the filling of the pipeline by a segment,
//! headers, other traffic.
//!
//! ```
//! use allrail_collective::in_network::in_network;
//! use allrail_core::{Bytes, Time};
//! use allrail_fabric::topologies::{GraphTopology, Summing, fat_tree::FatTree};
//! use allrail_fabric::graph::Wire;
//!
//! let tree = FatTree {
//!     npus: 64, switch_radix: 16, levels: 2, taper: 0.0, planes: 1, link: Wire::cable(),
//!     in_network_reduction: true,
//! };
//! let sum = in_network(&tree.build()?, Summing::Switches, Bytes::new(1_000_000))?;
//! assert_eq!((sum.roots.len(), sum.height), (1, 2));
//! // 1 MB at 50 GB/s; two cables up, two down, 20 ns each.
//! assert_eq!(sum.time(), Some(Time::from_ns(20_000 + 4 * 20)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod plan;

use std::cmp::Ordering;

use allrail_core::{Bandwidth, Bytes, FieldError, Time};
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::topologies::Summing;

use crate::CollectiveError;
pub use plan::{Around, SumTree, Violation};

/// The tag in scenario files.
pub const TAG: &str = "in_network";

/// What an all-reduce in the switches costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InNetwork {
    /// The nodes at the top of the trees, each tree with an equal share of the buffer.
    pub roots: Vec<NodeId>,
    /// The most cables between an NPU and a root.
    pub height: u32,
    /// The longest latency between an NPU and its root.
    pub latency: Time,
    /// What the link that is busy longest carries, up as down.
    pub busiest_link: Bytes,
    /// How long that takes; `None` beyond what [`Time`] holds.
    pub serialisation: Option<Time>,
}

impl InNetwork {
    /// The whole time.
    #[must_use]
    pub fn time(&self) -> Option<Time> {
        self.serialisation?.checked_add(self.latency.checked_mul(2)?)
    }
}

/// The trees of a network and what they cost.
///
/// # Errors
/// [`CollectiveError::Field`] where switches alone sum and NPUs are not leaves of a network of them, so that
/// sums would have to pass through NPUs: on a torus, on boards, with switches that only NPUs join.
pub fn in_network(
    graph: &Graph,
    summing: Summing,
    size: Bytes,
) -> Result<InNetwork, CollectiveError> {
    let roots = match summing {
        Summing::Switches => roots(graph)?,
        Summing::Routers => around_the_middle(graph),
    };
    let mut trees = Trees::new(graph, summing);
    // No trees are faster than the NPU with the least bandwidth can send.
    let injection = (0..graph.npus()).map(|npu| graph.injection(NodeId(npu)).bytes_per_second());
    let least = Ratio(1, injection.min().expect("a network has an NPU").into());
    let mut best: Option<(usize, Load)> = None;
    for (count, root) in (1..).zip(&roots) {
        trees.add(*root);
        let load = trees.busiest();
        if best.is_none_or(|(fewer, other)| load.time(count) < other.time(fewer)) {
            best = Some((count, load));
        }
        if load.time(count) <= least {
            break;
        }
    }
    let (count, load) = best.expect("a network of switches has a root");
    let mut chosen = Trees::new(graph, summing);
    for root in &roots[..count] {
        chosen.add(*root);
    }
    let bytes = u128::from(size.count()) * u128::from(load.trees);
    let busiest = u64::try_from(bytes.div_ceil(count as u128)).expect("no more than the buffer");
    Ok(InNetwork {
        roots: roots[..count].to_vec(),
        height: chosen.height,
        latency: chosen.latency,
        busiest_link: Bytes::new(busiest),
        serialisation: load.bandwidth.time_for_fraction(bytes, count as u128),
    })
}

/// The switches whose farthest NPU is nearest, in order.
fn roots(graph: &Graph) -> Result<Vec<NodeId>, CollectiveError> {
    let npus = graph.npus();
    for npu in (0..npus).map(NodeId) {
        if let Some((other, _)) = graph.neighbours(npu).iter().find(|(next, _)| next.0 < npus) {
            let why = format!(
                "NPU {} has a cable to NPU {}, so it is no leaf: sums would pass through NPUs",
                npu.0, other.0
            );
            return Err(refusal(why));
        }
    }
    let mut distances = Distances::new(graph, Summing::Switches);
    let switches = npus..u32::try_from(graph.nodes()).expect("nodes are counted in 32 bits");
    let heights: Vec<Option<u32>> =
        switches.clone().map(|root| distances.search(graph, NodeId(root))).collect();
    let Some(least) = heights.iter().flatten().min() else {
        let why = "no switch reaches all NPUs over switches alone: sums would pass through NPUs";
        return Err(refusal(why.to_owned()));
    };
    let lowest = switches.zip(&heights).filter(|(_, height)| height.as_ref() == Some(least));
    Ok(lowest.map(|(root, _)| NodeId(root)).collect())
}

/// The node in the middle of a longest way between two NPUs and those around it, the nearest first, in turns.
fn around_the_middle(graph: &Graph) -> Vec<NodeId> {
    const MOST: usize = 64;
    let mut distances = Distances::new(graph, Summing::Routers);
    let mut farthest = |from: NodeId| {
        distances.around(graph, from);
        let npus = (0..graph.npus()).map(NodeId);
        npus.max_by_key(|npu| (distances.of[npu.index()], npu.0)).expect("a network has NPUs")
    };
    // Twice, so that it is the longest in every tree.
    let one = farthest(NodeId(0));
    let mut middle = farthest(one);
    distances.around(graph, one);
    let length = distances.of[middle.index()];
    while distances.of[middle.index()] > length / 2 {
        middle = distances.nearer(graph, middle).expect("a network is joined");
    }
    distances.around(graph, middle);
    // Few nodes take turns: later trees even out what earlier ones left uneven.
    distances.queue.iter().copied().cycle().take(MOST).collect()
}

fn refusal(why: String) -> CollectiveError {
    CollectiveError::Field(FieldError::new(
        "traffic.algorithm",
        TAG,
        why,
        "take `rings`, `torus` or `ring`, or a fabric whose NPUs hang below switches, such as \
               a fat tree",
    ))
}

/// Cables from a node to all others over nodes that sum; [`Distances::FAR`] where there is no path.
struct Distances {
    of: Vec<u32>,
    queue: Vec<NodeId>,
    summing: Summing,
}

impl Distances {
    const FAR: u32 = u32::MAX;

    fn new(graph: &Graph, summing: Summing) -> Self {
        Self { of: vec![Self::FAR; graph.nodes()], queue: Vec::new(), summing }
    }

    /// Whether sums may pass through a node.
    fn sums(&self, graph: &Graph, node: NodeId) -> bool {
        self.summing == Summing::Routers || node.0 >= graph.npus()
    }

    /// Breadth first; the distance of the farthest NPU if all are reached.
    fn search(&mut self, graph: &Graph, root: NodeId) -> Option<u32> {
        self.around(graph, root);
        let farthest = self.of[..graph.npus() as usize].iter().max().copied();
        farthest.filter(|distance| *distance != Self::FAR)
    }

    /// A node next to `node` and nearer to where the search began, a switch or that very place.
    fn nearer(&self, graph: &Graph, node: NodeId) -> Option<NodeId> {
        let distance = self.of[node.index()].checked_sub(1)?;
        let nearer = |next: &NodeId| self.of[next.index()] == distance;
        let passed = |next: &NodeId| self.sums(graph, *next) || distance == 0;
        let next = graph.neighbours(node).iter().map(|(next, _)| *next);
        next.filter(|next| nearer(next) && passed(next)).min()
    }

    /// Breadth first from `root`, over nodes that sum.
    fn around(&mut self, graph: &Graph, root: NodeId) {
        self.of.fill(Self::FAR);
        self.of[root.index()] = 0;
        self.queue.clear();
        self.queue.push(root);
        let mut at = 0;
        while let Some(&node) = self.queue.get(at) {
            at += 1;
            if !self.sums(graph, node) && node != root {
                continue;
            }
            for &(next, _) in graph.neighbours(node) {
                if self.of[next.index()] == Self::FAR {
                    self.of[next.index()] = self.of[node.index()] + 1;
                    self.queue.push(next);
                }
            }
        }
    }
}

/// What a link carries: how many trees use it, and its bandwidth.
#[derive(Clone, Copy)]
struct Load {
    trees: u32,
    bandwidth: Bandwidth,
}

impl Load {
    /// How long a buffer over `count` trees keeps it busy, to compare.
    fn time(self, count: usize) -> Ratio {
        let count = u128::try_from(count).expect("few trees");
        Ratio(self.trees.into(), count * u128::from(self.bandwidth.bytes_per_second()))
    }
}

/// A fraction, compared exactly.
#[derive(PartialEq)]
struct Ratio(u128, u128);

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.0 * other.1).partial_cmp(&(other.0 * self.1))
    }
}

/// Trees over the same network, one after the other.
struct Trees<'g> {
    graph: &'g Graph,
    distances: Distances,
    /// Of each cable, how many trees use it; one way as the other.
    used: Vec<u32>,
    height: u32,
    latency: Time,
}

impl<'g> Trees<'g> {
    fn new(graph: &'g Graph, summing: Summing) -> Self {
        let (distances, used) = (Distances::new(graph, summing), vec![0; graph.cables().len()]);
        Self { graph, distances, used, height: 0, latency: Time::ZERO }
    }

    /// From the NPUs up: each node that carries something takes one uplink.
    fn add(&mut self, root: NodeId) {
        let height = self.distances.search(self.graph, root);
        self.height = self.height.max(height.expect("a root reaches all NPUs"));
        let mut carries = vec![false; self.graph.nodes()];
        carries[..self.graph.npus() as usize].fill(true);
        let mut taken: Vec<(NodeId, NodeId, u32)> = Vec::new();
        // The queue has all nodes by distance: backwards, every node comes after those below it.
        for &node in self.distances.queue.iter().rev() {
            if node == root || !carries[node.index()] {
                continue;
            }
            let nearer = self.distances.of[node.index()] - 1;
            let uplinks = self.graph.neighbours(node).iter().filter(|(above, _)| {
                self.distances.of[above.index()] == nearer
                    && self.distances.sums(self.graph, *above)
            });
            let &(above, link) = uplinks
                .min_by_key(|(_, link)| (self.used[*link as usize / 2], *link))
                .expect("a node that was reached has a way back");
            carries[above.index()] = true;
            taken.push((node, above, link));
        }
        let mut latency = vec![Time::ZERO; self.graph.nodes()];
        // Downwards, so that the latency above a node is known before its own.
        for (node, above, link) in taken.into_iter().rev() {
            self.used[link as usize / 2] += 1;
            let of_link = self.graph.link(link).wire.latency;
            latency[node.index()] = latency[above.index()] + of_link;
            self.latency = self.latency.max(latency[node.index()]);
        }
    }

    /// Its busiest link; which of several that are equally busy does not matter.
    fn busiest(&self) -> Load {
        let loads = self.used.iter().zip(self.graph.cables());
        loads
            .map(|(trees, cable)| Load { trees: *trees, bandwidth: cable.wire.bandwidth })
            .reduce(|most, load| if load.time(1) > most.time(1) { load } else { most })
            .expect("a network has cables")
    }
}
