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

use crate::{DELIVERED, Event, SENT, Submission, Transfer, TransferId, World};

/// A transfer that is queued or under way.
struct Stage {
    submission: Submission,
    occupancy: Time,
    latency: Time,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Cancelled,
    Over,
}

#[derive(Default)]
struct Server {
    /// The stage being served, and until when.
    serving: Option<(u32, Time)>,
    queue: VecDeque<u32>,
    busy: Time,
}

enum Inner {
    Departed { stage: u32, dimension: u32 },
    Arrived { stage: u32 },
}

/// See the module.
pub struct Dims {
    servers: Vec<Server>,
    stages: Vec<Stage>,
    events: EventQueue<Inner>,
}

impl Dims {
    /// A world of `dimensions` idle dimensions.
    #[must_use]
    pub fn new(dimensions: usize) -> Self {
        Self {
            servers: (0..dimensions).map(|_| Server::default()).collect(),
            stages: Vec::new(),
            events: EventQueue::new(),
        }
    }

    fn serve_next(&mut self, now: Time, dimension: u32) {
        let server = &mut self.servers[dimension as usize];
        if server.serving.is_some() {
            return;
        }
        let Some(id) = server.queue.pop_front() else { return };
        let stage = &self.stages[id as usize];
        let departure = now + stage.occupancy;
        server.serving = Some((id, departure));
        server.busy += stage.occupancy;
        self.events.push(departure + stage.latency, DELIVERED, Inner::Arrived { stage: id });
        self.events.push(departure, SENT, Inner::Departed { stage: id, dimension });
    }
}

impl World for Dims {
    fn submit(&mut self, now: Time, submission: Submission) -> TransferId {
        let Transfer::Stage { dimension, occupancy, latency } = submission.transfer else {
            panic!("the world `dims` carries stages; a driver sent it a message");
        };
        let id = u32::try_from(self.stages.len()).expect("fewer than 2^32 stages in a run");
        self.stages.push(Stage { submission, occupancy, latency, state: State::UnderWay });
        self.servers[dimension.index()].queue.push_back(id);
        self.serve_next(now, dimension.0);
        TransferId(u64::from(id))
    }

    fn next_time(&self) -> Option<Time> {
        self.events.next_time()
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        while self.events.next_time().is_some_and(|time| time <= until) {
            let (now, inner) = self.events.pop()?;
            match inner {
                Inner::Departed { stage: id, dimension } => {
                    let server = &mut self.servers[dimension as usize];
                    if server.serving == Some((id, now)) {
                        server.serving = None;
                        self.serve_next(now, dimension);
                    }
                    let stage = &self.stages[id as usize];
                    if let Some(tag) = stage.submission.sent_tag
                        && stage.state != State::Cancelled
                    {
                        return Some((now, Event::Sent { tag }));
                    }
                }
                Inner::Arrived { stage: id } => {
                    let stage = &mut self.stages[id as usize];
                    if stage.state == State::UnderWay {
                        stage.state = State::Over;
                        return Some((now, Event::Delivered { tag: stage.submission.tag }));
                    }
                }
            }
        }
        None
    }

    fn cancel(&mut self, now: Time, transfer: TransferId) -> bool {
        let id = u32::try_from(transfer.0).expect("a handle of this world");
        let stage = &mut self.stages[id as usize];
        if stage.state != State::UnderWay {
            return false;
        }
        stage.state = State::Cancelled;
        let Transfer::Stage { dimension, .. } = stage.submission.transfer else { return false };
        let server = &mut self.servers[dimension.index()];
        server.queue.retain(|queued| *queued != id);
        if let Some((served, departure)) = server.serving
            && served == id
        {
            // The rest of its service is given back.
            server.busy = server.busy.saturating_sub(departure.saturating_sub(now));
            server.serving = None;
            self.serve_next(now, dimension.0);
        }
        true
    }

    fn busy(&self, span: Time) -> Option<Vec<f64>> {
        let shares = self.servers.iter().map(|server| server.busy.ratio(span)).collect();
        Some(shares)
    }
}
