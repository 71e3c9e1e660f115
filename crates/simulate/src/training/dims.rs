//! The carrier of the world `dims`: each dimension of each player is one server.
//!
//! A collective is cut into chunks and scheduled on its group's dimensions, as a collective of its
//! own would be (`allrail_schedule::planner`); its stages wait in the dimension queues, the deciders
//! that also run single collectives. A stage keeps its dimension busy for `N·B` and is over `A` after
//! its last byte; the next stage's bytes start at once. A part of a dimension is served by the
//! dimension's server at its full bandwidth: parts share it by taking turns.
//!
//! A message takes the dimensions on which its ranks differ, one after the other, over the link
//! that joins them there.
//!
//! With [`Network::Ideal`], a collective keeps all dimensions of its group equally busy from its
//! first byte to its last, without latency: its bytes over the sum of their bandwidths. With
//! [`Network::Infinite`], bytes take no time, and latencies remain.
//!
//! Ignored: where several players meet in a collective, each runs it on its own servers from their
//! common start; it is over when the last is. So the players of a group are taken for alike.

use std::collections::BTreeMap;
use std::rc::Rc;

use allrail_collective::{Operation, StageRef};
use allrail_core::{Bytes, DimensionId, EventQueue, Rank, Time};
use allrail_fabric::{Fabric, Kind, topology};
use allrail_schedule::Request;
use allrail_schedule::evaluate;
use allrail_schedule::planner;
use allrail_schedule::queue::{self, DimensionQueue, Order, Waiting};
use allrail_workload::{Part, StepGraph};

use super::carrier::{Ask, Carrier, Event, Submission, Usage};
use super::players::Players;
use crate::SimulateError;

/// Which network carries the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The scenario's.
    #[default]
    Real,
    /// The scenario's, all dimensions of a group kept busy without latency: no schedule is faster.
    Ideal,
    /// Bytes take no time.
    Infinite,
}

/// One stage of one chunk.
#[derive(Clone, Copy, Debug)]
struct Task {
    dimension: u32,
    occupancy: Time,
    latency: Time,
    buffer: Bytes,
    sent: f64,
}

/// A collective or message, scheduled.
struct Stages {
    tasks: Vec<Task>,
    /// `starts[chunk]..starts[chunk + 1]` are its tasks.
    starts: Vec<u32>,
    /// The order of each dimension, where queues keep to plans.
    planned: Vec<Vec<StageRef>>,
}

impl Stages {
    fn chunks(&self) -> u32 {
        u32::try_from(self.starts.len() - 1).expect("few chunks")
    }

    fn task(&self, at: StageRef) -> Option<&Task> {
        let start = self.starts[at.chunk as usize] + at.stage;
        (start < self.starts[at.chunk as usize + 1]).then(|| &self.tasks[start as usize])
    }
}

/// Stages of one submission on one player.
struct Flight {
    stages: Rc<Stages>,
    player: u32,
    priority: i64,
    chunks_left: u32,
    /// Index into the joins.
    join: u32,
}

/// One submission: over when it is on every player.
#[derive(Clone, Copy)]
struct Join {
    tag: u64,
    players_left: u32,
    message: bool,
    /// Before the first byte of its first chunk.
    overhead: Time,
}

struct Port {
    queue: Box<dyn DimensionQueue>,
    waiting: u32,
    active: u32,
    free_at: Time,
    wakes: bool,
    choosing: bool,
    busy: Time,
    sent: f64,
}

#[derive(Clone, Copy)]
enum Inner {
    Arrived { flight: u32, at: StageRef },
    Left { tag: u64 },
    Wake { port: u32 },
    Over { join: u32 },
}

/// A stage as it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// On whose server.
    pub player: u32,
    /// Of which dimension.
    pub dimension: u32,
    /// The submission's.
    pub tag: u64,
    /// When it was chosen.
    pub start: Time,
    /// When its last byte had left.
    pub end: Time,
}

/// See the module.
pub struct Dims<'a> {
    players: &'a Players,
    dimensions: usize,
    active_chunks: u32,
    ports: Vec<Port>,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    joins: Vec<Join>,
    free_joins: Vec<u32>,
    events: EventQueue<Inner>,
    choosing: Vec<u32>,
    schedules: Schedules<'a>,
    under_way: u32,
    active_since: Time,
    active: Time,
    /// Every stage, where asked for.
    pub spans: Option<Vec<Span>>,
}

const ARRIVED: u8 = 0;
const LEFT: u8 = 1;
const WAKE: u8 = 2;

impl<'a> Dims<'a> {
    /// An idle network. `request` holds everything of the schedule but what is communicated; its
    /// fabric is the network.
    ///
    /// # Errors
    /// A collective of the graph that cannot be scheduled there: names the field. All of them are
    /// scheduled here, so that nothing fails on the way.
    pub fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        request: &'a Request,
        algorithms: &'a BTreeMap<Operation, Vec<String>>,
        network: Network,
        timeline: bool,
    ) -> Result<Self, SimulateError> {
        let dimensions = request.fabric.dimensions.len();
        let port = |queue| Port {
            queue,
            waiting: 0,
            active: 0,
            free_at: Time::ZERO,
            wakes: false,
            choosing: false,
            busy: Time::ZERO,
            sent: 0.0,
        };
        let ports = (0..players.len())
            .flat_map(|_| queue::queues(request.order, dimensions, &[]))
            .map(port)
            .collect();
        Ok(Self {
            players,
            dimensions,
            active_chunks: request.active_chunks.unwrap_or(u32::MAX),
            ports,
            flights: Vec::new(),
            free_flights: Vec::new(),
            joins: Vec::new(),
            free_joins: Vec::new(),
            events: EventQueue::new(),
            choosing: Vec::new(),
            schedules: Schedules { graph, request, algorithms, network, known: BTreeMap::new() },
            under_way: 0,
            active_since: Time::ZERO,
            active: Time::ZERO,
            spans: timeline.then(Vec::new),
        })
    }

    /// Schedules what will be asked, so that a mistake is found before anything runs.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn prepare(&mut self, ask: Ask) -> Result<(), SimulateError> {
        self.stages(ask).map(|_| ())
    }

    fn stages(&mut self, ask: Ask) -> Result<Rc<Stages>, SimulateError> {
        match ask {
            Ask::Collective { operation, bytes, instance } => {
                let group = self.players.instances[instance as usize].group;
                self.schedules.collective(operation, bytes, group.0)
            }
            Ask::Message { bytes, ranks, .. } => self.schedules.message(bytes, ranks),
        }
    }

    fn launch(&mut self, now: Time, stages: &Rc<Stages>, player: u32, priority: i64, join: u32) {
        let flight = Flight {
            stages: Rc::clone(stages),
            player,
            priority,
            chunks_left: stages.chunks(),
            join,
        };
        let id = match self.free_flights.pop() {
            Some(id) => {
                self.flights[id as usize] = flight;
                id
            }
            None => {
                self.flights.push(flight);
                u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 in flight")
            }
        };
        let first = player as usize * self.dimensions;
        for (d, order) in stages.planned.iter().enumerate() {
            self.ports[first + d].queue.begin(id, order);
        }
        for chunk in 0..stages.chunks() {
            self.enqueue(now, id, StageRef { chunk, stage: 0 });
        }
    }

    /// Puts a chunk's stage into its queue; without one, the chunk is over.
    fn enqueue(&mut self, now: Time, id: u32, at: StageRef) {
        let flight = &mut self.flights[id as usize];
        let Some(task) = flight.stages.task(at).copied() else {
            flight.chunks_left -= 1;
            if flight.chunks_left == 0 {
                let join = flight.join;
                self.free_flights.push(id);
                self.joins[join as usize].players_left -= 1;
                if self.joins[join as usize].players_left == 0 {
                    self.events.push(now, ARRIVED, Inner::Over { join });
                }
            }
            return;
        };
        let index = flight.player as usize * self.dimensions + task.dimension as usize;
        let waiting =
            Waiting { collective: id, at, priority: flight.priority, buffer: task.buffer };
        let port = &mut self.ports[index];
        port.queue.push(waiting);
        port.waiting += 1;
        self.attend(now, index);
    }

    /// Lets a port choose once everything that happens now is taken in, or when it is free.
    fn attend(&mut self, now: Time, index: usize) {
        let port = &mut self.ports[index];
        if port.waiting == 0 || port.active >= self.active_chunks {
            return;
        }
        let id = u32::try_from(index).expect("fewer than 2^32 ports");
        if port.free_at > now {
            if !port.wakes {
                port.wakes = true;
                self.events.push(port.free_at, WAKE, Inner::Wake { port: id });
            }
        } else if !port.choosing {
            port.choosing = true;
            self.choosing.push(id);
        }
    }

    fn choose_on(&mut self, now: Time, id: u32) {
        let index = id as usize;
        self.ports[index].choosing = false;
        while self.ports[index].free_at <= now && self.ports[index].active < self.active_chunks {
            let port = &mut self.ports[index];
            let Some(Waiting { collective, at, .. }) = port.queue.pop() else { return };
            port.waiting -= 1;
            port.active += 1;
            let flight = &self.flights[collective as usize];
            let task = *flight.stages.task(at).expect("a waiting stage is one of its flight");
            let join = self.joins[flight.join as usize];
            let first = at == StageRef { chunk: 0, stage: 0 };
            let overhead = if first { join.overhead } else { Time::ZERO };
            port.free_at = now + overhead + task.occupancy;
            port.busy += task.occupancy;
            port.sent += task.sent;
            if let Some(spans) = &mut self.spans {
                spans.push(Span {
                    player: flight.player,
                    dimension: task.dimension,
                    tag: join.tag,
                    start: now,
                    end: port.free_at,
                });
            }
            let last = flight.stages.task(StageRef { stage: at.stage + 1, ..at }).is_none();
            let free_at = port.free_at;
            if join.message && last {
                self.events.push(free_at, LEFT, Inner::Left { tag: join.tag });
            }
            let arrived = Inner::Arrived { flight: collective, at };
            self.events.push(free_at + task.latency, ARRIVED, arrived);
        }
        self.attend(now, index);
    }
}

impl Carrier for Dims<'_> {
    fn submit(&mut self, now: Time, submission: Submission) {
        let Submission { ask, priority, overhead, tag, .. } = submission;
        if self.under_way == 0 {
            self.active_since = now;
        }
        self.under_way += 1;
        let stages = self.stages(ask).expect("what is asked was scheduled before the run");
        let (players, message) = match ask {
            Ask::Collective { instance, .. } => {
                (&self.players.instances[instance as usize].players, false)
            }
            Ask::Message { .. } => (&Vec::new(), true),
        };
        let players_left = u32::try_from(players.len().max(1)).expect("few players");
        let join = Join { tag, players_left, message, overhead };
        let id = match self.free_joins.pop() {
            Some(id) => {
                self.joins[id as usize] = join;
                id
            }
            None => {
                self.joins.push(join);
                u32::try_from(self.joins.len() - 1).expect("fewer than 2^32 in flight")
            }
        };
        match ask {
            Ask::Collective { .. } => {
                for player in players {
                    self.launch(now, &stages, *player, priority, id);
                }
            }
            Ask::Message { source, .. } => self.launch(now, &stages, source, priority, id),
        }
    }

    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    fn choose(&mut self, now: Time) {
        // Whatever happened first: what is chosen now must not depend on it.
        self.choosing.sort_unstable();
        let mut choosing = std::mem::take(&mut self.choosing);
        for port in choosing.drain(..) {
            self.choose_on(now, port);
        }
        choosing.append(&mut self.choosing);
        self.choosing = choosing;
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            if self.events.next_time()? > until {
                return None;
            }
            let (now, inner) = self.events.pop()?;
            match inner {
                Inner::Wake { port } => {
                    self.ports[port as usize].wakes = false;
                    self.attend(now, port as usize);
                }
                Inner::Arrived { flight, at } => {
                    let held = &self.flights[flight as usize];
                    let task = held.stages.task(at).expect("it was under way");
                    let port = held.player as usize * self.dimensions + task.dimension as usize;
                    self.ports[port].active -= 1;
                    self.attend(now, port);
                    self.enqueue(now, flight, StageRef { stage: at.stage + 1, ..at });
                }
                Inner::Left { tag } => return Some((now, Event::Sent { tag })),
                Inner::Over { join } => {
                    let tag = self.joins[join as usize].tag;
                    self.free_joins.push(join);
                    self.under_way -= 1;
                    if self.under_way == 0 {
                        self.active += now - self.active_since;
                    }
                    return Some((now, Event::Delivered { tag }));
                }
            }
        }
    }

    fn usage(&self) -> Usage {
        let ranks: u64 = self.players.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut busy = vec![0u128; self.dimensions];
        let mut sent = vec![0.0; self.dimensions];
        for (place, port) in self.ports.iter().enumerate() {
            let weight = self.players.weights[place / self.dimensions];
            let d = place % self.dimensions;
            busy[d] += u128::from(port.busy.as_ps()) * u128::from(weight);
            sent[d] += port.sent * f64::from(weight);
        }
        let mean = |sum: u128| {
            Time::from_ps(u64::try_from(sum / u128::from(ranks.max(1))).expect("a mean of times"))
        };
        Usage {
            busy: Some(busy.into_iter().map(mean).collect()),
            sent: sent.into_iter().map(|sum| sum / ranks.max(1) as f64).collect(),
            active: self.active,
        }
    }

    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        let stages = self.stages(ask).ok()?;
        let mut load = vec![Time::ZERO; self.dimensions];
        for task in &stages.tasks {
            load[task.dimension as usize] += task.occupancy;
        }
        let (d, _) = load.iter().enumerate().rev().max_by_key(|(_, load)| **load)?;
        u32::try_from(d).ok()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Collective(Operation, Bytes, u32),
    Message(Bytes, (Rank, Rank)),
}

/// Schedules that were made, by what they are for.
struct Schedules<'a> {
    graph: &'a StepGraph,
    request: &'a Request,
    /// Those of a kind of collective, where they differ from the request's.
    algorithms: &'a BTreeMap<Operation, Vec<String>>,
    network: Network,
    known: BTreeMap<Key, Rc<Stages>>,
}

impl Schedules<'_> {
    fn collective(
        &mut self,
        operation: Operation,
        bytes: Bytes,
        group: u32,
    ) -> Result<Rc<Stages>, SimulateError> {
        let key = Key::Collective(operation, bytes, group);
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let parts = &self.graph.groups()[group as usize].parts;
        let stages = if bytes == Bytes::default() || parts.iter().all(|part| part.size < 2) {
            // Nothing to send, or nobody to send it to: one stage of no time would need a server.
            Stages { tasks: Vec::new(), starts: vec![0, 0], planned: Vec::new() }
        } else {
            self.schedule(operation, bytes, group)?
        };
        let stages = Rc::new(stages);
        self.known.insert(key, Rc::clone(&stages));
        Ok(stages)
    }

    fn schedule(
        &self,
        operation: Operation,
        bytes: Bytes,
        group: u32,
    ) -> Result<Stages, SimulateError> {
        let (fabric, dimensions) = self.network_of(group)?;
        let request = Request {
            fabric,
            operation,
            size: bytes,
            dimensions: dimensions.clone(),
            // A chunk has one byte at least.
            chunks: self.request.chunks.min(u32::try_from(bytes.count()).unwrap_or(u32::MAX)),
            algorithms: match self.algorithms.get(&operation) {
                Some(names) => Some(names.clone()),
                None => self.request.algorithms.clone(),
            },
            ..self.request.clone()
        };
        let scheduled = planner::schedule(&request)?;
        let work = scheduled.work()?;
        if self.network == Network::Ideal {
            return Ok(ideal(&request, &dimensions, &work));
        }
        let planned = match request.order {
            Order::Planned => planner::plan(&request)?.dimension_order,
            _ => Vec::new(),
        };
        let mut stages = Stages { tasks: Vec::new(), starts: vec![0], planned };
        for chunk in 0..work.chunks() {
            stages.tasks.extend(work.chunk(chunk).iter().map(|task| Task {
                dimension: task.dimension,
                occupancy: if self.network == Network::Infinite {
                    Time::ZERO
                } else {
                    task.occupancy
                },
                latency: task.latency,
                buffer: task.buffer,
                sent: task.sent.0,
            }));
            stages.starts.push(u32::try_from(stages.tasks.len()).expect("fewer than 2^32 stages"));
        }
        Ok(stages)
    }

    /// The fabric as a group sees it, and its dimensions.
    fn network_of(&self, group: u32) -> Result<(Fabric, Vec<DimensionId>), SimulateError> {
        let group = &self.graph.groups()[group as usize];
        if group.parts.is_empty() {
            return Err(SimulateError::Field {
                field: "world".to_owned(),
                value: "dims".to_owned(),
                why: format!(
                    "the ranks of group `{}` are no product of dimensions, and `dims` knows ranks \
                     by their dimensions only",
                    group.name
                ),
                hint: "use `world: flows`".to_owned(),
            });
        }
        let mut fabric = self.request.fabric.clone();
        let mut dimensions: Vec<DimensionId> = Vec::new();
        let mut sizes: BTreeMap<DimensionId, u32> = BTreeMap::new();
        for Part { dimension, size, .. } in &group.parts {
            *sizes.entry(*dimension).or_insert(1) *= size;
        }
        for (dimension, size) in sizes {
            if size < 2 {
                continue;
            }
            let whole = &mut fabric.dimensions[dimension.index()];
            if whole.kind == Kind::FullyConnected && size < whole.size {
                // Only the links to the part's own NPUs carry its messages.
                whole.links = (whole.links * (size - 1) / (whole.size - 1)).max(1);
            }
            whole.size = size;
            dimensions.push(dimension);
        }
        Ok((fabric, dimensions))
    }

    fn message(&mut self, bytes: Bytes, ranks: (Rank, Rank)) -> Result<Rc<Stages>, SimulateError> {
        let key = Key::Message(bytes, ranks);
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let mut tasks = Vec::new();
        let (mut source, mut destination) = (ranks.0.0, ranks.1.0);
        for (d, dimension) in (0u32..).zip(&self.request.fabric.dimensions) {
            let (from, to) = (source % dimension.size, destination % dimension.size);
            source /= dimension.size;
            destination /= dimension.size;
            if from == to {
                continue;
            }
            let links = topology::of(dimension.kind);
            let mut path = Vec::new();
            topology::path(dimension, from, to, &mut path);
            let hops = u64::try_from(path.len()).expect("few hops");
            let steps = hops.div_ceil(u64::from(links.hops_per_step()));
            let too_long = || SimulateError::Schedule(allrail_schedule::ScheduleError::TooLong);
            let time = links.link_bandwidth(dimension).time_for(bytes).ok_or_else(too_long)?;
            let latency = dimension.latency.checked_mul(steps).ok_or_else(too_long)?;
            let (occupancy, latency) = match self.network {
                Network::Real => (time, latency),
                Network::Ideal => (time, Time::ZERO),
                Network::Infinite => (Time::ZERO, latency),
            };
            let sent = bytes.count() as f64;
            tasks.push(Task { dimension: d, occupancy, latency, buffer: bytes, sent });
        }
        let end = u32::try_from(tasks.len()).expect("few dimensions");
        let stages = Rc::new(Stages { tasks, starts: vec![0, end], planned: Vec::new() });
        self.known.insert(key, Rc::clone(&stages));
        Ok(stages)
    }
}

/// As many chunks, each spread over all dimensions at once so that they end together.
fn ideal(request: &Request, dimensions: &[DimensionId], work: &evaluate::Work) -> Stages {
    let bandwidth =
        |id: &DimensionId| request.fabric.dimension(*id).aggregate().bytes_per_second() as f64;
    let total: f64 = dimensions.iter().map(bandwidth).sum();
    let mut stages = Stages { tasks: Vec::new(), starts: vec![0], planned: Vec::new() };
    for chunk in 0..work.chunks() {
        let bytes: f64 = work.chunk(chunk).iter().map(|task| task.sent.0).sum();
        let time = Time::from_ps((bytes / total * 1e12).ceil() as u64);
        for dimension in dimensions {
            stages.tasks.push(Task {
                dimension: dimension.0,
                occupancy: time,
                latency: Time::ZERO,
                buffer: Bytes::new((bytes / dimensions.len() as f64) as u64),
                sent: bytes * bandwidth(dimension) / total,
            });
            stages.starts.push(u32::try_from(stages.tasks.len()).expect("fewer than 2^32 stages"));
        }
    }
    stages
}
