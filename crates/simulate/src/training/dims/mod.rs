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

mod schedules;

use std::collections::BTreeMap;
use std::rc::Rc;

use allrail_collective::{Operation, StageRef};
use allrail_core::{EventQueue, Time};
use allrail_schedule::Request;
use allrail_schedule::queue::{self, DimensionQueue, Waiting};
use allrail_workload::StepGraph;

use super::carrier::{Ask, Carrier, Event, Span, Submission, Usage};
use super::players::Players;
use super::slow::Felt;
use crate::SimulateError;
pub use schedules::Network;
use schedules::{Schedules, Stages};

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

/// See the module.
pub struct Dims<'a> {
    players: &'a Players,
    dimensions: usize,
    active_chunks: u32,
    ports: Vec<Port>,
    /// Whether their queues are.
    eager: bool,
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
/// And on: arrivals with eager queues.
const BY_DIMENSION: u8 = 3;

impl<'a> Dims<'a> {
    /// An idle network. `request` holds everything of the schedule but what is communicated; its
    /// fabric is the network.
    #[must_use]
    pub fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        request: &'a Request,
        algorithms: &'a BTreeMap<Operation, Vec<String>>,
        network: Network,
        timeline: bool,
    ) -> Self {
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
            .collect::<Vec<_>>();
        let eager = ports.first().is_some_and(|port: &Port| port.queue.is_eager());
        Self {
            players,
            dimensions,
            active_chunks: request.active_chunks.unwrap_or(u32::MAX),
            ports,
            eager,
            flights: Vec::new(),
            free_flights: Vec::new(),
            joins: Vec::new(),
            free_joins: Vec::new(),
            events: EventQueue::new(),
            choosing: Vec::new(),
            schedules: Schedules {
                graph,
                request,
                algorithms,
                network,
                slow: None,
                known: BTreeMap::new(),
            },
            under_way: 0,
            active_since: Time::ZERO,
            active: Time::ZERO,
            spans: timeline.then(Vec::new),
        }
    }

    /// Lets groups feel slow links.
    #[must_use]
    pub fn slowed(mut self, slow: Option<&'a Felt<'a>>) -> Self {
        self.schedules.slow = slow;
        self
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
            Ask::Message { bytes, ranks, instance, .. } => {
                let group = self.players.instances[instance as usize].group;
                self.schedules.message(bytes, ranks, group.0)
            }
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
        let waiting = Waiting {
            collective: id,
            at,
            priority: flight.priority,
            operation: task.operation,
            buffer: task.buffer,
            brought: task.brought,
        };
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
        } else if self.eager {
            self.choose_on(now, id);
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
            port.busy += task.served;
            port.sent += task.sent;
            if let Some(spans) = &mut self.spans {
                spans.push(Span {
                    player: flight.player,
                    dimension: Some(task.dimension),
                    tag: join.tag,
                    start: now,
                    end: now + overhead + task.served,
                });
            }
            let last = flight.stages.task(StageRef { stage: at.stage + 1, ..at }).is_none();
            let free_at = port.free_at;
            if join.message && last {
                self.events.push(free_at, LEFT, Inner::Left { tag: join.tag });
            }
            let arrived = Inner::Arrived { flight: collective, at };
            let by_dimension = u8::try_from(task.dimension).unwrap_or(u8::MAX - BY_DIMENSION);
            let class = if self.eager { BY_DIMENSION + by_dimension } else { ARRIVED };
            self.events.push(free_at + task.latency, class, arrived);
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
                    self.enqueue(now, flight, StageRef { stage: at.stage + 1, ..at });
                    self.attend(now, port);
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
            links: Vec::new(),
            active: self.active,
        }
    }

    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        let stages = self.stages(ask).ok()?;
        let mut load = vec![Time::ZERO; self.dimensions];
        for task in &stages.tasks {
            load[task.dimension as usize] += task.served;
        }
        let (d, _) = load.iter().enumerate().rev().max_by_key(|(_, load)| **load)?;
        u32::try_from(d).ok()
    }
}
