//! Phases in closed form: messages of equal size that all start at once, until the last one ends.
//!
//! Let message `i` put the fraction `w(i, l)` of its bytes on link `l`, whatever the splitting, and
//! let rates be max-min fair. With `B` bytes each, the last message ends at
//!
//! ```text
//! B · max over l of  Σ over i of w(i, l) / capacity(l)
//! ```
//!
//! It cannot end earlier: the link of the maximum has that much to carry. Nor later: while it fills,
//! max-min fairness raises all rates alike until a link is full, so no message is ever slower than
//! `r = min over l of capacity(l) / Σ over the messages under way of w(i, l)`. Messages that end only
//! make that sum smaller, so nobody is ever slower than `r` with all of them under way, which is one
//! over the maximum above, and after `B / r` all bytes have gone.
//!
//! So a phase needs the most loaded link, and no simulation. Bytes are spread as [`Splitting`] says;
//! `lower_bound` is what no splitting over the same paths can beat. Patterns that a shift of all NPUs
//! leaves alone (shift all-to-all on most networks) are worked out once for each orbit; `single` is not,
//! as its paths depend on numbers.
//!
//! ```
//! use allrail_fabric::graph::NodeId;
//! use allrail_network::flows::{Phases, Splitting};
//! let torus = serde_json::json!({ "topology": "torus", "shape": [4, 4] });
//! let graph = allrail_fabric::topologies::read(torus).unwrap().build().unwrap();
//! let shift: Vec<_> = (0..16).map(|npu| (NodeId(npu), NodeId((npu + 4) % 16))).collect();
//! let phase = Phases::new(&graph, Splitting::Ideal, false).run(&shift);
//! assert_eq!(phase.seconds_per_byte, 1.0 / 50e9);
//! ```

use allrail_core::Time;
use allrail_fabric::graph::paths::Paths;
use allrail_fabric::graph::trunk::Trunk;
use allrail_fabric::graph::{Graph, NodeId};

use super::best::{Best, Demand};
use super::splitting::Splitting;
use super::symmetry::Symmetry;

/// What a phase takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// For each byte of a message, from the start of all to the end of the last, without latency.
    pub seconds_per_byte: f64,
    /// What it takes at least with these paths, proved; the same where nothing is optimised.
    pub lower_bound: f64,
    /// Of the longest path in use.
    pub latency: Time,
    /// A link that is loaded most.
    pub busiest: u32,
}

/// The most that is seen, and where.
#[derive(Clone, Copy, Debug)]
struct Most {
    load: f64,
    link: u32,
}

impl Most {
    fn see(&mut self, load: f64, link: u32) {
        if load > self.load {
            *self = Self { load, link };
        }
    }
}

/// Works phases out; see the module. Tables and buffers are kept from one to the next.
pub struct Phases<'g> {
    graph: &'g Graph,
    splitting: Splitting,
    trunk: Trunk,
    paths: Paths,
    /// Of the network, and none: for patterns that have it, and that have not.
    symmetries: [Symmetry; 2],
    best: [Option<Best>; 2],
    detours: bool,
    /// Messages from and to each NPU.
    ends: [Vec<u32>; 2],
    /// For `single` by link, for `ecmp` by class.
    loads: Vec<f64>,
    touched: Vec<u32>,
    shares: Vec<f64>,
}

impl<'g> Phases<'g> {
    /// For phases on `graph`. `detours` lets `ideal` also take paths by way of any one switch: the
    /// caller knows whether the topology's routing does (dragonfly).
    #[must_use]
    pub fn new(graph: &'g Graph, splitting: Splitting, detours: bool) -> Self {
        let trunk = Trunk::new(graph);
        let symmetry = match splitting {
            Splitting::Single => Symmetry::none(&trunk),
            _ => Symmetry::new(&trunk),
        };
        Self {
            graph,
            splitting,
            paths: Paths::new(&trunk),
            symmetries: [symmetry, Symmetry::none(&trunk)],
            best: [None, None],
            detours: detours && splitting == Splitting::Ideal,
            ends: [vec![0; graph.npus() as usize], vec![0; graph.npus() as usize]],
            loads: vec![0.0; (graph.links() as usize).max(trunk.arcs().len())],
            touched: Vec::new(),
            shares: Vec::new(),
            trunk,
        }
    }

    /// One phase: a message of the same size for each pair of a source and a destination.
    ///
    /// # Panics
    /// An end is no NPU of the graph, or both ends are the same.
    pub fn run(&mut self, pairs: &[(NodeId, NodeId)]) -> Phase {
        for &(source, destination) in pairs {
            assert!(
                source != destination && source.0.max(destination.0) < self.graph.npus(),
                "a message goes from one NPU to another: {} to {}",
                source.0,
                destination.0
            );
        }
        let (ends, ends_latency) = self.at_the_ends(pairs);
        let (inside, bound, latency) = match self.splitting {
            Splitting::Single => self.single(pairs),
            Splitting::Ecmp => self.ecmp(pairs),
            Splitting::Minimal | Splitting::Ideal => self.best(pairs, ends.load),
        };
        let most = if inside.load > ends.load { inside } else { ends };
        Phase {
            seconds_per_byte: most.load,
            lower_bound: bound.max(ends.load),
            latency: Time::from_ps(latency + ends_latency),
            busiest: most.link,
        }
    }

    /// The cables of NPUs that hang on a switch: the most loaded one, and the latency of both ends.
    fn at_the_ends(&mut self, pairs: &[(NodeId, NodeId)]) -> (Most, u64) {
        let mut most = Most { load: 0.0, link: 0 };
        self.ends.iter_mut().for_each(|ends| ends.fill(0));
        for &(source, destination) in pairs {
            self.ends[0][source.index()] += 1;
            self.ends[1][destination.index()] += 1;
        }
        let mut latencies = [0, 0];
        for npu in 0..self.graph.npus() {
            if let Some(access) = self.trunk.access(npu) {
                for (end, link) in [access.up, access.down].into_iter().enumerate() {
                    let messages = self.ends[end][npu as usize];
                    most.see(f64::from(messages) / access.capacity, link);
                    if messages > 0 {
                        latencies[end] = access.latency.max(latencies[end]);
                    }
                }
            }
        }
        (most, latencies.iter().sum())
    }

    fn single(&mut self, pairs: &[(NodeId, NodeId)]) -> (Most, f64, u64) {
        let mut longest = 0;
        for &(source, destination) in pairs {
            let mut latency = 0;
            let (trunk, loads, touched) = (&self.trunk, &mut self.loads, &mut self.touched);
            let host = trunk.host(source.0);
            self.paths.single(trunk, host, destination.0, |arc, cable| {
                let link = trunk.lanes(arc)[cable as usize];
                if loads[link as usize] == 0.0 {
                    touched.push(link);
                }
                loads[link as usize] += 1.0;
                latency += trunk.arcs()[arc as usize].latency;
            });
            longest = longest.max(latency);
        }
        let mut most = Most { load: 0.0, link: 0 };
        for link in self.touched.drain(..) {
            let capacity = self.graph.link(link).wire.bandwidth.bytes_per_second() as f64;
            most.see(std::mem::take(&mut self.loads[link as usize]) / capacity, link);
        }
        (most, most.load, longest)
    }

    fn ecmp(&mut self, pairs: &[(NodeId, NodeId)]) -> (Most, f64, u64) {
        let (demands, which) = self.demands(pairs);
        let symmetry = &self.symmetries[which];
        let mut longest = 0;
        for demand in &demands {
            let ways = self.paths.ways(&self.trunk, demand.from, demand.to);
            let arcs = self.trunk.arcs();
            longest = longest.max(ways.longest(|arc| arcs[arc as usize].latency));
            let (loads, touched) = (&mut self.loads, &mut self.touched);
            ways.evenly(
                &mut self.shares,
                |arc| arcs[arc as usize].cables,
                |arc, share| {
                    let class = symmetry.classes[arc as usize];
                    if loads[class as usize] == 0.0 {
                        touched.push(class);
                    }
                    loads[class as usize] += share * demand.messages;
                },
            );
        }
        let mut most = Most { load: 0.0, link: 0 };
        for class in self.touched.drain(..) {
            let load = std::mem::take(&mut self.loads[class as usize]);
            most.see(load / symmetry.capacities[class as usize], class);
        }
        self.name(&mut most, which);
        (most, most.load, longest)
    }

    fn best(&mut self, pairs: &[(NodeId, NodeId)], floor: f64) -> (Most, f64, u64) {
        let (demands, which) = self.demands(pairs);
        let symmetry = &self.symmetries[which];
        let best = self.best[which]
            .get_or_insert_with(|| Best::new(&self.trunk, &mut self.paths, symmetry, self.detours));
        let split = best.split(&self.trunk, &mut self.paths, symmetry, &demands, floor);
        let mut loads = vec![0.0; split.links.len()];
        let mut longest = 0;
        for commodity in &split.commodities {
            for column in commodity.columns.iter().filter(|column| column.share > 0.0) {
                longest = longest.max(column.latency);
                for &(link, weight) in &column.entries {
                    loads[link as usize] += weight * column.share * commodity.demand;
                }
            }
        }
        let mut most = Most { load: 0.0, link: 0 };
        for (&class, load) in split.links.iter().zip(loads) {
            most.see(load / symmetry.capacities[class as usize], class);
        }
        self.name(&mut most, which);
        (most, split.bound, longest)
    }

    /// Turns a class into one of its links.
    fn name(&self, most: &mut Most, which: usize) {
        let classes = &self.symmetries[which].classes;
        let arc = classes.iter().position(|&class| class == most.link && most.load > 0.0);
        most.link = arc.map_or(0, |arc| self.trunk.lanes(arc as u32)[0]);
    }

    /// Messages between hosts, those of one orbit as one; and which symmetry they have.
    fn demands(&self, pairs: &[(NodeId, NodeId)]) -> (Vec<Demand>, usize) {
        let npus = self.graph.npus();
        let mut keys: Vec<(u32, u32)> = pairs.iter().map(|&(a, b)| (a.0, b.0)).collect();
        keys.sort_unstable();
        let shift = self.symmetries[0].shift;
        let mut shifted: Vec<(u32, u32)> =
            keys.iter().map(|&(a, b)| ((a + shift) % npus, (b + shift) % npus)).collect();
        shifted.sort_unstable();
        let alike = shift < npus && keys == shifted;
        let (kept, times) = if alike {
            (keys.partition_point(|&(source, _)| source < shift), npus / shift)
        } else {
            (keys.len(), 1)
        };
        let host = |npu| self.trunk.host(npu);
        let mut hosts: Vec<(u32, u32)> =
            keys[..kept].iter().map(|&(a, b)| (host(a), host(b))).filter(|(a, b)| a != b).collect();
        hosts.sort_unstable();
        let demands = hosts.chunk_by(|a, b| a == b).map(|alike| Demand {
            from: alike[0].0,
            to: alike[0].1,
            messages: alike.len() as f64 * f64::from(times),
        });
        (demands.collect(), usize::from(!alike))
    }
}
