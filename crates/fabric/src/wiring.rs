//! The cables that carry a dimension: what a network that is no product of dimensions is to planners.
//!
//! Planners order chunks over dimensions. A dragonfly, a mesh of switches, a graph of one's own or a network with
//! failed parts has none: no part of its cables joins every NPU to some others alike. It counts as *one* dimension
//! then, of all that it joins, and the dimension keeps the cables. What a step of an algorithm takes there is
//! counted over them: each message is split evenly over its shortest paths (ECMP), and with `p` planes of which each
//! has its part of every message
//!
//! ```text
//! time of a step = max over links of bytes on the link / (capacity · p)
//! ```
//!
//! A stage keeps the dimension busy for as long as the link that has most over all of its steps; what its steps take
//! beyond that, as they load other links, is time in which those carry other stages.
//!
//! *Places* of the dimension are NPUs, or domains of NPUs that are joined inside. Of a domain every NPU is on a
//! *line* of its own, of the NPUs at its place in all domains. All lines, and all groups of places of a
//! process group's kind, run the same step at the same time: a link has the messages of all of them.
//!
//! What it ignores: routing that takes detours (a dragonfly's UGAL may carry more), ways over the inside of a
//! domain, and that ranks run ahead of each other within a stage.

use std::any::{Any, type_name};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use allrail_core::{Bandwidth, Time};

use crate::graph::paths::Paths;
use crate::graph::trunk::Trunk;
use crate::graph::{Graph, NodeId};

/// What messages that are under way at once make of the cables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Of every link, how much the dimension's rate would carry in the time that the link takes, in units of what
    /// a message was said to have.
    pub links: Vec<f64>,
    /// Of the longest path in use.
    pub latency: Time,
}

impl Load {
    /// That of the most loaded link.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.links.iter().copied().fold(0.0, f64::max)
    }
}

/// What an algorithm's steps make of the cables, one after the other, in units of its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counted {
    /// What the link that has most over all steps carries.
    pub busy: f64,
    /// What the most loaded links of all steps carry beyond that: steps that load other links.
    pub fill: f64,
    /// Of the longest paths of the steps that wait for each other.
    pub latency: Time,
}

/// A part of the places: so many, so far apart.
pub type Places = (u32, u32);

/// A message between two members of a group: from, to, and how much.
pub type Message = (u32, u32, u64);

/// A message, and the switches that it passes.
pub type Along<'a> = (Message, &'a [u32]);

/// A directed link that a message crosses, in the network model that stores messages on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Bytes a second, of parallel cables and of all planes together.
    pub bandwidth: Bandwidth,
    /// Without serialisation.
    pub latency: Time,
    /// Its ends, as nodes of the graph: NPUs, then switches.
    pub ends: [u32; 2],
}

/// The ends of domains: where NPUs join the network outside.
#[derive(Clone, Debug)]
pub struct Ports {
    /// Of every NPU, what it is to the graph.
    pub of: Vec<u32>,
    /// NPUs of a domain.
    pub domain: u32,
    /// What an NPU has of its port, in all planes.
    pub rate: Bandwidth,
    /// What joins an NPU to its port, in all planes; `None` where the port's own cables bound it.
    pub link: Option<Bandwidth>,
    /// From an NPU to its port.
    pub way: Time,
}

struct Cables {
    graph: Graph,
    trunk: Trunk,
    planes: u64,
    /// `None`: the graph's NPUs are the places.
    ports: Option<Ports>,
    /// What an NPU has at most.
    rate: Bandwidth,
    digest: u64,
    paths: Mutex<Paths>,
    kept: Mutex<BTreeMap<String, Kept>>,
}

/// Whatever somebody has made for the cables.
type Kept = Arc<dyn Any + Send + Sync>;

/// The cables of a dimension, and who of the job is on them.
#[derive(Clone)]
pub struct Wiring {
    cables: Arc<Cables>,
    /// Lines of the job.
    lines: u32,
    /// Places of the job.
    places: u32,
    /// Of these, a group's; the first fastest.
    parts: Vec<Places>,
}

impl Wiring {
    fn new(graph: Graph, planes: u64, ports: Option<Ports>) -> Self {
        let trunk = Trunk::new(&graph);
        let npus = (0..graph.npus()).map(NodeId);
        let most = npus.map(|npu| graph.injection(npu)).max().expect("a graph has NPUs");
        let all = most.checked_mul(planes).unwrap_or(most);
        let (rate, lines, places) = match &ports {
            Some(ports) => {
                let domains = ports.of.len() / ports.domain as usize;
                (ports.rate, ports.domain, u32::try_from(domains).expect("fewer than NPUs"))
            }
            None => (all, 1, graph.npus()),
        };
        let paths = Mutex::new(Paths::new(&trunk));
        let digest = digest(&graph, planes, ports.as_ref());
        let kept = Mutex::default();
        let cables = Cables { graph, trunk, planes, ports, rate, digest, paths, kept };
        Self { cables: Arc::new(cables), lines, places, parts: vec![(places, 1)] }
    }

    /// The cables among all NPUs of a graph; of so many planes that are alike.
    #[must_use]
    pub fn of_npus(graph: Graph, planes: u64) -> Self {
        Self::new(graph, planes, None)
    }

    /// The cables among domains that a graph joins by their ports.
    #[must_use]
    pub(crate) fn of_domains(graph: Graph, planes: u64, ports: Ports) -> Self {
        Self::new(graph, planes, Some(ports))
    }

    /// The graph, and how many planes of it there are, where the members are all of its NPUs, in their order.
    #[must_use]
    pub fn whole(&self) -> Option<(&Graph, u64)> {
        let Cables { graph, planes, ports, .. } = &*self.cables;
        let all = self.places == graph.npus() && self.parts == [(self.places, 1)];
        (ports.is_none() && self.lines == 1 && all).then_some((graph, *planes))
    }

    /// What `of` makes for the cables, or what is kept of it under this name.
    pub fn kept<T: Any + Send + Sync>(&self, name: &str, of: impl FnOnce() -> T) -> Arc<T> {
        let key = self.key::<T>(name);
        self.found(&key).unwrap_or_else(|| self.keep(key, of()))
    }

    /// What something of a type is kept under.
    fn key<T>(&self, name: &str) -> String {
        format!("{} {} {name}", self.digest(), type_name::<T>())
    }

    fn found<T: Any + Send + Sync>(&self, key: &str) -> Option<Arc<T>> {
        let kept = self.cables.kept.lock().expect("nobody panics while it is held");
        kept.get(key).cloned().and_then(|known| known.downcast().ok())
    }

    fn keep<T: Any + Send + Sync>(&self, key: String, made: T) -> Arc<T> {
        let made = Arc::new(made);
        let mut kept = self.cables.kept.lock().expect("nobody panics while it is held");
        kept.insert(key, Arc::clone(&made) as Kept);
        made
    }

    /// How many places of the job they join.
    pub(crate) fn places(&self) -> u32 {
        self.places
    }

    /// What an NPU has at most, per direction.
    pub(crate) fn rate(&self) -> Bandwidth {
        self.cables.rate
    }

    /// A way that no message is faster than: its two ends.
    pub(crate) fn shortest(&self) -> Time {
        let graph = &self.cables.graph;
        let of = |npu| graph.neighbours(npu).iter().map(|(_, link)| graph.link(*link).wire.latency);
        let least = (0..graph.npus()).map(NodeId).flat_map(of).min().unwrap_or(Time::ZERO);
        let hanging = self.cables.trunk.access(0).is_some();
        let ends = if hanging { least.checked_mul(2).unwrap_or(least) } else { least };
        ends.checked_add(self.way()).unwrap_or(ends)
    }

    /// Between two NPUs and their ports.
    fn way(&self) -> Time {
        let way = self.cables.ports.as_ref().and_then(|ports| ports.way.checked_mul(2));
        way.unwrap_or(Time::ZERO)
    }

    /// The same for a job on the first `places` places, and the first `lines` NPUs of each.
    #[must_use]
    pub fn of_job(&self, lines: u32, places: u32) -> Self {
        Self { lines, places, parts: vec![(places, 1)], ..self.clone() }
    }

    /// The same for groups of the job's places that are made of these parts, the first fastest.
    #[must_use]
    pub fn among(&self, parts: impl IntoIterator<Item = Places>) -> Self {
        Self { parts: parts.into_iter().collect(), ..self.clone() }
    }

    /// What tells its cables from others.
    #[must_use]
    pub fn digest(&self) -> String {
        let parts: Vec<String> =
            self.parts.iter().map(|(size, stride)| format!("{size}x{stride}")).collect();
        let Self { lines, places, .. } = self;
        format!("{:016x} {lines} {places} {}", self.cables.digest, parts.join(" "))
    }

    /// Where the members of the group that begins at place 0 are.
    fn members(&self) -> Vec<u32> {
        let mut members = vec![0];
        for (size, stride) in &self.parts {
            let inner = std::mem::take(&mut members);
            for k in 0..*size {
                members.extend(inner.iter().map(|place| place + k * stride));
            }
        }
        members
    }

    /// Where the groups of the job begin.
    fn groups(&self) -> Vec<u32> {
        let first = |place: &u32| {
            self.parts.iter().all(|(size, stride)| (place / stride).is_multiple_of(*size))
        };
        (0..self.places).filter(first).collect()
    }

    /// The member of its group that a place is.
    #[must_use]
    pub fn member(&self, place: u32) -> u32 {
        let mut weight = 1;
        let digits = self.parts.iter().map(|(size, stride)| {
            let digit = place / stride % size * weight;
            weight *= size;
            digit
        });
        digits.sum()
    }

    /// The node of the graph at which an NPU of the job is.
    fn node(&self, line: u32, place: u32) -> u32 {
        match &self.cables.ports {
            Some(ports) => ports.of[(place * ports.domain + line) as usize],
            None => place,
        }
    }

    /// `of` the messages of a step, or what is known of it by this name.
    pub fn remembered<E>(
        &self,
        name: &str,
        of: impl FnOnce() -> Result<Counted, E>,
    ) -> Result<Counted, E> {
        let key = self.key::<Counted>(name);
        match self.found(&key) {
            Some(known) => Ok(*known),
            None => Ok(*self.keep(key, of()?)),
        }
    }

    /// What messages between members make of the cables, if all groups and lines send them at once.
    #[must_use]
    pub fn load(&self, messages: &[Message]) -> Load {
        self.load_along(messages, &[])
    }

    /// [`Self::load`] with messages beside them whose switches are given, where [all](Self::whole) NPUs are members.
    #[must_use]
    pub fn load_along(&self, messages: &[Message], along: &[Along<'_>]) -> Load {
        let Cables { trunk, planes, rate, graph, .. } = &*self.cables;
        let members = self.members();
        let rate = rate.bytes_per_second() as f64;
        let npus = graph.npus() as usize;
        let mut ends = [vec![0.0; npus], vec![0.0; npus]];
        let mut own = [vec![0u64; members.len()], vec![0u64; members.len()]];
        let mut between: HashMap<[u32; 2], u64> = HashMap::new();
        for &(from, to, amount) in messages {
            own[0][from as usize] += amount;
            own[1][to as usize] += amount;
        }
        for group in self.groups() {
            for line in 0..self.lines {
                let at = |member: u32| self.node(line, group + members[member as usize]);
                for &(from, to, amount) in messages {
                    let (from, to) = (at(from), at(to));
                    ends[0][from as usize] += amount as f64;
                    ends[1][to as usize] += amount as f64;
                    let hosts = [trunk.host(from), trunk.host(to)];
                    if hosts[0] != hosts[1] {
                        *between.entry(hosts).or_default() += amount;
                    }
                }
            }
        }
        for &((from, to, amount), _) in along {
            own[0][from as usize] += amount;
            own[1][to as usize] += amount;
            ends[0][from as usize] += amount as f64;
            ends[1][to as usize] += amount as f64;
        }
        // No NPU sends or takes more than its part.
        let mut links: Vec<f64> = own.iter().flatten().map(|amount| *amount as f64).collect();
        let planes = *planes as f64;
        let mut latencies = [0, 0];
        for npu in 0..graph.npus() {
            let Some(access) = trunk.access(npu) else { continue };
            for (amounts, latency) in ends.iter().zip(&mut latencies) {
                let amount = amounts[npu as usize];
                links.push(amount / (access.capacity * planes) * rate);
                if amount > 0.0 {
                    *latency = access.latency.max(*latency);
                }
            }
        }
        // By destination: paths to one are found together.
        let mut demands: Vec<([u32; 2], u64)> = between.into_iter().collect();
        demands.sort_unstable_by_key(|([from, to], _)| [*to, *from]);
        let arcs = trunk.arcs();
        let mut paths = self.cables.paths.lock().expect("nobody panics while it is held");
        let (mut loads, mut shares) = (vec![0.0; arcs.len()], Vec::new());
        let mut longest = 0;
        for ([from, to], amount) in demands {
            let ways = paths.ways(trunk, from, to);
            let amount = amount as f64;
            longest = longest.max(ways.longest(|arc| arcs[arc as usize].latency));
            let cables = |arc: u32| arcs[arc as usize].cables;
            ways.evenly(&mut shares, cables, |arc, share| loads[arc as usize] += share * amount);
        }
        for &((from, to, amount), via) in along {
            let mut latency = 0;
            for arc in trunk.along(from, to, via).into_iter().flatten() {
                loads[arc as usize] += amount as f64;
                latency += arcs[arc as usize].latency;
            }
            longest = longest.max(latency);
        }
        let of_arcs = loads.iter().zip(arcs);
        links.extend(of_arcs.map(|(load, arc)| load / (arc.capacity * planes) * rate));
        let latency = Time::from_ps(longest + latencies.iter().sum::<u64>());
        let latency = latency.checked_add(self.way()).unwrap_or(latency);
        Load { links, latency }
    }

    /// How many NPUs have a link to their port that counts.
    fn own_links(&self) -> u32 {
        let linked = self.cables.ports.as_ref().filter(|ports| ports.link.is_some());
        linked.map_or(0, |ports| ports.of.len() as u32)
    }

    /// How many directed links messages may cross, one after the other: those of NPUs and their ports, of ports, and
    /// of the rest of the graph.
    #[must_use]
    pub fn hops(&self) -> u32 {
        2 * self.own_links() + 2 * self.cables.graph.npus() + self.cables.trunk.arcs().len() as u32
    }

    /// A link by its number, below [`Self::hops`]; `None` where there is none with it.
    #[must_use]
    pub fn hop(&self, number: u32) -> Option<Hop> {
        let Cables { graph, trunk, planes, ports, .. } = &*self.cables;
        let all = |one: Bandwidth| one.checked_mul(*planes).unwrap_or(one);
        let own = self.own_links();
        if number < 2 * own {
            let ports = ports.as_ref()?;
            let node = ports.of[number as usize / 2];
            return Some(Hop { bandwidth: ports.link?, latency: ports.way, ends: [node, node] });
        }
        let number = number - 2 * own;
        if number < 2 * graph.npus() {
            let access = trunk.access(number / 2)?;
            let link = graph.link(if number.is_multiple_of(2) { access.up } else { access.down });
            // Where nothing else is between an NPU and its port.
            let way = ports.as_ref().filter(|_| own == 0).map_or(Time::ZERO, |ports| ports.way);
            let (bandwidth, ends) = (all(link.wire.bandwidth), [link.from.0, link.to.0]);
            return Some(Hop { bandwidth, latency: link.wire.latency.checked_add(way)?, ends });
        }
        let arc = number - 2 * graph.npus();
        let lanes = trunk.lanes(arc);
        let link = graph.link(lanes[0]);
        let cables = link.wire.bandwidth.checked_mul(lanes.len() as u64)?;
        let latency = Time::from_ps(trunk.arcs()[arc as usize].latency);
        Some(Hop { bandwidth: all(cables), latency, ends: [link.from.0, link.to.0] })
    }

    /// The links that a message crosses between two places of a line: one shortest path.
    #[must_use]
    pub fn route(&self, line: u32, from: u32, to: u32) -> Vec<u32> {
        let Cables { graph, trunk, ports, paths, .. } = &*self.cables;
        let own = self.own_links();
        let npu = |place: u32| place * ports.as_ref().map_or(1, |ports| ports.domain) + line;
        let (source, destination) = (self.node(line, from), self.node(line, to));
        let mut route = Vec::new();
        if own > 0 {
            route.push(2 * npu(from));
        }
        if trunk.access(source).is_some() {
            route.push(2 * own + 2 * source);
        }
        let host = trunk.host(source);
        let mut paths = paths.lock().expect("nobody panics while it is held");
        paths.single(trunk, host, destination, |arc, _| {
            route.push(2 * own + 2 * graph.npus() + arc);
        });
        if trunk.access(destination).is_some() {
            route.push(2 * own + 2 * destination + 1);
        }
        if own > 0 {
            route.push(2 * npu(to) + 1);
        }
        route
    }

    /// NPUs of the graph: its first nodes.
    #[must_use]
    pub fn npus(&self) -> u32 {
        self.cables.graph.npus()
    }
}

/// FNV-1a over all that the cables are.
fn digest(graph: &Graph, planes: u64, ports: Option<&Ports>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |value: u64| {
        for byte in value.to_le_bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    add(u64::from(graph.npus()));
    add(planes);
    for cable in graph.cables() {
        cable.ends.iter().for_each(|end| add(u64::from(end.0)));
        add(cable.wire.bandwidth.bytes_per_second());
        add(cable.wire.latency.as_ps());
    }
    if let Some(ports) = ports {
        add(u64::from(ports.domain));
        add(ports.rate.bytes_per_second());
        add(ports.way.as_ps());
        ports.of.iter().for_each(|port| add(u64::from(*port)));
    }
    hash
}

impl PartialEq for Wiring {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Wiring {}

impl Hash for Wiring {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest().hash(state);
    }
}

impl fmt::Debug for Wiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiring({})", self.digest())
    }
}
