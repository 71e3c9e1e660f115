//! `dims`: each network dimension is one server (Themis §4.3).
//!
//! A stage keeps its dimension busy for `N·B` and is delivered `A` after its last byte; the next
//! stage's bytes start at once. Stages queue first come, first served, but a driver that lets a
//! decider choose submits one at a time. All ranks of a class are alike, so one server stands for
//! a dimension of every one of them, and the cost does not depend on their number.
//!
//! Ignored: everything within a stage (its steps, its messages, the links they cross).

use std::collections::VecDeque;

use allrail_core::{EventQueue, Time};

use crate::{DELIVERED, Event, NetworkModel, SENT, Submission, Transfer, TransferId};

/// A transfer that is queued or under way.
struct Stage {
    dimension: u32,
    tag: u64,
    sent_tag: Option<u64>,
    occupancy: Time,
    latency: Time,
    /// How often its place was given before.
    generation: u32,
    is_cancelled: bool,
}

#[derive(Default)]
struct Server {
    /// The stage served last, until when, and what its driver hears then.
    serving: Option<u32>,
    free_at: Time,
    sent_tag: Option<u64>,
    queue: VecDeque<u32>,
    busy: Time,
    /// How often it began or broke off a service: a departure of another one counts no more.
    service: u32,
    /// Whether a departure will say that it is free. Nobody may want to know.
    departs: bool,
}

enum Inner {
    Departed { dimension: u32, service: u32 },
    Arrived { stage: u32 },
}

/// See the module.
pub struct Dims {
    servers: Vec<Server>,
    stages: Vec<Stage>,
    free: Vec<u32>,
    events: EventQueue<Inner>,
}

impl Dims {
    /// A network model of `dimensions` idle dimensions.
    #[must_use]
    pub fn new(dimensions: usize) -> Self {
        Self {
            servers: (0..dimensions).map(|_| Server::default()).collect(),
            stages: Vec::new(),
            free: Vec::new(),
            events: EventQueue::new(),
        }
    }

    fn serve(&mut self, now: Time, dimension: u32, id: u32) {
        let stage = &self.stages[id as usize];
        let server = &mut self.servers[dimension as usize];
        let departure = now + stage.occupancy;
        server.service = server.service.wrapping_add(1);
        (server.serving, server.free_at) = (Some(id), departure);
        server.busy += stage.occupancy;
        self.events.push(departure + stage.latency, DELIVERED, Inner::Arrived { stage: id });
        server.departs = false;
        server.sent_tag = stage.sent_tag;
        if server.sent_tag.is_some() || !server.queue.is_empty() {
            self.depart(dimension);
        }
    }

    /// The end of the service is an event.
    fn depart(&mut self, dimension: u32) {
        let server = &mut self.servers[dimension as usize];
        server.departs = true;
        let departed = Inner::Departed { dimension, service: server.service };
        self.events.push(server.free_at, SENT, departed);
    }

    fn serve_next(&mut self, now: Time, dimension: u32) {
        self.servers[dimension as usize].serving = None;
        if let Some(id) = self.servers[dimension as usize].queue.pop_front() {
            self.serve(now, dimension, id);
        }
    }
}

/// The handle of the stage at a place.
fn handle(place: u32, generation: u32) -> TransferId {
    TransferId(u64::from(generation) << 32 | u64::from(place))
}

impl NetworkModel for Dims {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Stage { dimension, occupancy, latency } = submission.transfer else {
            panic!("the network model `dims` carries stages; a driver sent it a message");
        };
        let (id, generation) = match self.free.pop() {
            Some(id) => (id, self.stages[id as usize].generation),
            None => (u32::try_from(self.stages.len()).expect("fewer than 2^32 at once"), 0),
        };
        let (dimension, tag, sent_tag) = (dimension.0, submission.tag, submission.sent_tag);
        let stage =
            Stage { dimension, tag, sent_tag, occupancy, latency, generation, is_cancelled: false };
        match self.stages.get_mut(id as usize) {
            Some(place) => *place = stage,
            None => self.stages.push(stage),
        }
        let server = &mut self.servers[dimension as usize];
        let is_busy = server.serving.is_some() && (server.departs || server.free_at > now);
        if !is_busy {
            self.serve(now, dimension, id);
        } else {
            server.queue.push_back(id);
            if !server.departs {
                self.depart(dimension);
            }
        }
        handle(id, generation)
    }

    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        while self.events.next_time().is_some_and(|time| time <= until) {
            let (now, inner) = self.events.pop()?;
            match inner {
                Inner::Departed { dimension, service } => {
                    let server = &self.servers[dimension as usize];
                    if server.service != service {
                        continue;
                    }
                    let sent_tag = server.sent_tag;
                    self.serve_next(now, dimension);
                    if let Some(tag) = sent_tag {
                        return Some((now, Event::Sent { tag }));
                    }
                }
                Inner::Arrived { stage: id } => {
                    let stage = &mut self.stages[id as usize];
                    stage.generation = stage.generation.wrapping_add(1);
                    self.free.push(id);
                    if !stage.is_cancelled {
                        return Some((now, Event::Delivered { tag: stage.tag }));
                    }
                }
            }
        }
        None
    }

    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        let (id, generation) = (transfer.0 as u32, (transfer.0 >> 32) as u32);
        let Some(stage) = self.stages.get_mut(id as usize) else { return false };
        if stage.generation != generation || stage.is_cancelled {
            return false;
        }
        stage.is_cancelled = true;
        let dimension = stage.dimension;
        let server = &mut self.servers[dimension as usize];
        if let Some(place) = server.queue.iter().position(|queued| *queued == id) {
            // It will never arrive.
            server.queue.remove(place);
            stage.generation = stage.generation.wrapping_add(1);
            self.free.push(id);
        } else if server.serving == Some(id) && server.free_at > now {
            // The rest of its service is given back.
            server.busy = server.busy.saturating_sub(server.free_at.saturating_sub(now));
            server.service = server.service.wrapping_add(1);
            server.departs = false;
            self.serve_next(now, dimension);
        }
        true
    }

    fn busy(&self, span: Time) -> Option<Vec<f64>> {
        let shares = self.servers.iter().map(|server| server.busy.ratio(span)).collect();
        Some(shares)
    }
}
