//! Which links a message crosses in the network model `flows`, and with how much of its bytes.
//!
//! Under `single` and `ecmp` that is a matter of its ends. Under `minimal` and `ideal` all messages
//! that start at one instant are split together, so that the link is loaded least that they load
//! most, bytes counted; what is under way already is not looked at. Both are remembered: steps of a
//! collective come again.

use std::collections::HashMap;
use std::sync::Arc;

use allrail_fabric::graph::Graph;
use allrail_fabric::graph::paths::Paths;
use allrail_fabric::graph::trunk::Trunk;

use super::best::{Best, Demand};
use super::solver::Entry;
use super::splitting::Splitting;
use super::symmetry::Symmetry;

/// How many link entries are remembered before all are forgotten.
const KEPT: usize = 16 << 20;
/// A smaller share of a message is left out.
const LEAST_SHARE: f64 = 1e-6;

/// A message's links, each with its share, and the latency of its longest path in picoseconds.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) entries: Arc<[Entry]>,
    pub(super) latency: u64,
}

/// Source, destination, and the switches between them.
type Way = (u32, u32, Box<[u32]>);

/// Source, destination, bytes.
pub(super) type Message = (u32, u32, u64);

/// See the module.
pub(super) struct Router {
    splitting: Splitting,
    detours: bool,
    trunk: Trunk,
    paths: Paths,
    symmetry: Symmetry,
    best: Option<Best>,
    routes: HashMap<(u32, u32), Route>,
    batches: HashMap<Vec<Message>, Arc<[Route]>>,
    /// The last one between two ends, where messages are split together: the same entries are shared by those that
    /// have them.
    last: HashMap<(u32, u32), Route>,
    /// Ways that a driver has named, and their numbers by ends and switches.
    named: Vec<Route>,
    numbers: HashMap<Way, Option<u32>>,
    kept: usize,
    shares: Vec<f64>,
}

impl Router {
    pub(super) fn new(graph: &Graph, splitting: Splitting, detours: bool) -> Self {
        let trunk = Trunk::new(graph);
        Self {
            splitting,
            detours: detours && splitting == Splitting::Ideal,
            paths: Paths::new(&trunk),
            symmetry: Symmetry::none(&trunk),
            best: None,
            routes: HashMap::new(),
            batches: HashMap::new(),
            last: HashMap::new(),
            named: Vec::new(),
            numbers: HashMap::new(),
            kept: 0,
            shares: Vec::new(),
            trunk,
        }
    }

    /// Bytes a second of every link. But for `single`, the first of parallel links stands for all.
    pub(super) fn capacities(&self, graph: &Graph) -> Vec<f64> {
        let bandwidth = |link| graph.link(link).wire.bandwidth.bytes_per_second() as f64;
        let mut capacities: Vec<f64> = (0..graph.links()).map(bandwidth).collect();
        if self.splitting != Splitting::Single {
            for (arc, number) in self.trunk.arcs().iter().zip(0..) {
                capacities[self.trunk.lanes(number)[0] as usize] = arc.capacity;
            }
        }
        capacities
    }

    /// Gives all parallel links what the first has, where it stands for them.
    pub(super) fn spread(&self, of_links: &mut [f64]) {
        if self.splitting == Splitting::Single {
            return;
        }
        for number in 0..self.trunk.arcs().len() as u32 {
            let lanes = self.trunk.lanes(number);
            for lane in lanes {
                of_links[*lane as usize] = of_links[lanes[0] as usize];
            }
        }
    }

    /// The routes of messages that start together, in their order.
    pub(super) fn routes(&mut self, messages: &[Message], out: &mut Vec<Route>) {
        if self.kept > KEPT {
            self.routes.clear();
            self.batches.clear();
            self.last.clear();
            self.kept = 0;
        }
        match self.splitting {
            Splitting::Single | Splitting::Ecmp => {
                out.extend(messages.iter().map(|&(from, to, _)| self.route(from, to)));
            }
            Splitting::Minimal | Splitting::Ideal => {
                if let Some(known) = self.batches.get(messages) {
                    out.extend_from_slice(known);
                    return;
                }
                let first = out.len();
                self.split(messages, out);
                self.kept += out[first..].iter().map(|r| r.entries.len()).sum::<usize>();
                self.kept += messages.len();
                self.batches.insert(messages.to_vec(), out[first..].into());
            }
        }
    }

    /// The number of the way from one NPU to another past these switches; `None` where no cables lead along it.
    pub(super) fn along(&mut self, from: u32, to: u32, via: &[u32]) -> Option<u32> {
        let key = (from, to, via.into());
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let number = self.way(from, to, via).map(|route| {
            self.named.push(route);
            u32::try_from(self.named.len() - 1).expect("fewer than 2^32 ways")
        });
        self.numbers.insert(key, number);
        number
    }

    /// A way by its number.
    pub(super) fn named(&self, number: u32) -> &Route {
        &self.named[number as usize]
    }

    fn way(&self, from: u32, to: u32, via: &[u32]) -> Option<Route> {
        let (mut entries, mut latency) = self.ends(from, to);
        for arc in self.trunk.along(from, to, via)? {
            entries.push((self.trunk.lanes(arc)[0], 1.0));
            latency += self.trunk.arcs()[arc as usize].latency;
        }
        Some(Route { entries: entries.into(), latency })
    }

    /// The latency of a message's longest shortest path, or of its only one.
    pub(super) fn latency(&mut self, from: u32, to: u32) -> u64 {
        self.route(from, to).latency
    }

    fn ends(&self, from: u32, to: u32) -> (Vec<Entry>, u64) {
        let (up, down) = (self.trunk.access(from), self.trunk.access(to));
        let links = [up.map(|access| access.up), down.map(|access| access.down)];
        let latency = [up, down].into_iter().flatten().map(|access| access.latency).sum();
        (links.into_iter().flatten().map(|link| (link, 1.0)).collect(), latency)
    }

    fn route(&mut self, from: u32, to: u32) -> Route {
        if let Some(known) = self.routes.get(&(from, to)) {
            return known.clone();
        }
        let (mut entries, mut latency) = self.ends(from, to);
        let (trunk, host) = (&self.trunk, self.trunk.host(from));
        if self.splitting == Splitting::Single {
            self.paths.single(trunk, host, to, |arc, cable| {
                entries.push((trunk.lanes(arc)[cable as usize], 1.0));
                latency += trunk.arcs()[arc as usize].latency;
            });
        } else {
            let ways = self.paths.ways(trunk, host, trunk.host(to));
            let arcs = trunk.arcs();
            latency += ways.longest(|arc| arcs[arc as usize].latency);
            let cables = |arc: u32| arcs[arc as usize].cables;
            ways.evenly(&mut self.shares, cables, |arc, share| {
                entries.push((trunk.lanes(arc)[0], share));
            });
        }
        self.kept += entries.len();
        let route = Route { entries: entries.into(), latency };
        self.routes.insert((from, to), route.clone());
        route
    }

    fn split(&mut self, messages: &[Message], out: &mut Vec<Route>) {
        let most = messages.iter().map(|message| message.2).max().unwrap_or(1) as f64;
        let mut floor = 0.0f64;
        let mut ends =
            [vec![0.0; self.trunk.npus() as usize], vec![0.0; self.trunk.npus() as usize]];
        let mut sorted: Vec<(u32, u32, f64)> = Vec::with_capacity(messages.len());
        for &(from, to, bytes) in messages {
            for (npu, sums) in [from, to].into_iter().zip(&mut ends) {
                let sum = &mut sums[npu as usize];
                *sum += bytes as f64 / most;
                if let Some(access) = self.trunk.access(npu) {
                    floor = floor.max(*sum / access.capacity);
                }
            }
            sorted.push((self.trunk.host(from), self.trunk.host(to), bytes as f64 / most));
        }
        sorted.retain(|&(from, to, _)| from != to);
        sorted.sort_unstable_by_key(|&(from, to, _)| (from, to));
        let alike = |a: &(u32, u32, f64), b: &(u32, u32, f64)| (a.0, a.1) == (b.0, b.1);
        let demand = |same: &[(u32, u32, f64)]| Demand {
            from: same[0].0,
            to: same[0].1,
            messages: same.iter().map(|&(_, _, amount)| amount).sum(),
        };
        let demands: Vec<Demand> = sorted.chunk_by(alike).map(demand).collect();
        let (trunk, symmetry) = (&self.trunk, &self.symmetry);
        let best = self
            .best
            .get_or_insert_with(|| Best::new(trunk, &mut self.paths, symmetry, self.detours));
        let split = best.split(trunk, &mut self.paths, symmetry, &demands, floor);
        let mut sums = vec![0.0; split.links.len()];
        let inner: Vec<(Vec<Entry>, u64)> = split
            .commodities
            .iter()
            .map(|commodity| {
                let used = commodity.columns.iter().filter(|column| column.share > LEAST_SHARE);
                let all: f64 = used.clone().map(|column| column.share).sum();
                let (mut entries, mut latency) = (Vec::new(), 0);
                for column in used {
                    latency = latency.max(column.latency);
                    for &(link, weight) in &column.entries {
                        if sums[link as usize] == 0.0 {
                            entries.push((link, 0.0));
                        }
                        sums[link as usize] += weight * column.share / all;
                    }
                }
                for (link, weight) in &mut entries {
                    *weight = std::mem::take(&mut sums[*link as usize]);
                    *link = trunk.lanes(split.links[*link as usize])[0];
                }
                (entries, latency)
            })
            .collect();
        for &(from, to, _) in messages {
            let (mut entries, mut latency) = self.ends(from, to);
            let hosts = (self.trunk.host(from), self.trunk.host(to));
            if let Ok(place) = demands.binary_search_by_key(&hosts, |d| (d.from, d.to)) {
                entries.extend(&inner[place].0);
                latency += inner[place].1;
            }
            let last = self.last.get(&(from, to));
            if let Some(last) = last.filter(|last| *last.entries == *entries) {
                out.push(Route { latency, ..last.clone() });
                continue;
            }
            let route = Route { entries: entries.into(), latency };
            self.last.insert((from, to), route.clone());
            out.push(route);
        }
    }
}
