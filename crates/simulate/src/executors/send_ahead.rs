//! `send_ahead`: how many bytes a port may have handed to its link and not sent yet when it chooses.
//!
//! Without it, a port chooses its next stage when the link has sent everything. A real sender writes
//! into a buffer (a socket's, a network interface's), and what is in there is sent in the order in
//! which it was written, whatever becomes ready meanwhile. So with `send_ahead: X` a port chooses as
//! soon as at most `X` bytes of what it handed over are unsent. It chooses earlier, of what is there
//! then, and a stage that is more urgent and comes later waits behind up to `X` bytes, and the rest of a
//! stage.
//!
//! Nothing decides here: the executor's port is told free earlier, and its link takes what is chosen
//! first come, first served.
//!
//! - In `dims`, a link serves a stage at a fixed rate, so the time at which `X` bytes are left is
//!   known when the stage is handed over. What an operation waits for before its bytes (`overhead`) has
//!   none. Stages wait here for their link, and the world gets each when it begins: one dimension's
//!   stages then reach it at the very times of a run without, if they are chosen in the same order.
//! - In `links`, bytes are counted message by message: one is unsent until its last byte has left. The
//!   later messages of a stage count when they are sent; they ask nobody.
//!
//! `active_chunks` counts what is handed over too. Eager queues choose at every event, so at the one that
//! makes room, too. In `flows` and `packets` messages of one sender share it, and none waits behind
//! another: [`check`] refuses.

use std::collections::VecDeque;

use allrail_core::{Bytes, Time};
use allrail_world::World;

use super::Executors;
use super::flight::{BEFORE, Departure, Inner, Service};
use crate::SimulateError;
use crate::scenario::{WORLDS, WorldKind, field};

/// Refuses a world in which nothing waits in order at its sender.
///
/// # Errors
/// Names the worlds that have it.
pub(crate) fn check(send_ahead: Bytes, world: WorldKind) -> Result<(), SimulateError> {
    if send_ahead == Bytes::default() || world.sends_in_order() {
        return Ok(());
    }
    let having = WORLDS.iter().filter(|(kind, ..)| kind.sends_in_order());
    let having: Vec<String> = having.map(|(_, tag, _)| format!("`{tag}`")).collect();
    let why = format!(
        "in `{}` messages of one sender share its links, and none waits behind another",
        world.tag()
    );
    let hint = format!("leave it out, or use {}", having.join(" or "));
    Err(field("schedule.send_ahead", send_ahead, &why, &hint))
}

/// A stage that a link has, or will have, to send.
struct Sending {
    /// When its first byte leaves, and its last.
    begin: Time,
    end: Time,
    bytes: f64,
    /// Those of all before it and its own.
    through: f64,
}

/// What a port has handed over.
#[derive(Default)]
struct Link {
    /// In `dims`: stages that wait for the link.
    waiting: VecDeque<Service>,
    /// When the link has sent what it began, and when it will have sent all.
    free_at: Time,
    ends_at: Time,
    /// Whether a timer says when it is free.
    wakes: bool,
    /// Stages that have not left whole, in order.
    unsent: VecDeque<Sending>,
    /// Elsewhere: bytes of messages that have not left whole.
    unsent_bytes: u64,
}

impl Link {
    /// In `dims`: hands over a stage whose bytes take the last `served` of its `occupancy`. Returns when
    /// at most `limit` bytes are unsent.
    fn hand_over(
        &mut self,
        now: Time,
        limit: f64,
        (occupancy, served): (Time, Time),
        bytes: f64,
    ) -> Time {
        while self.unsent.front().is_some_and(|one| one.end <= now) {
            self.unsent.pop_front();
        }
        let before = self.unsent.back().map_or(0.0, |last| last.through);
        let end = self.ends_at.max(now) + occupancy;
        self.ends_at = end;
        let through = before + bytes;
        self.unsent.push_back(Sending { begin: end - served, end, bytes, through });
        // Of all that was handed over, so much must have left.
        let must = through - limit;
        let place = self.unsent.partition_point(|one| one.through < must);
        let Some(one) = self.unsent.get(place) else { return now };
        let of_it = must - (one.through - one.bytes);
        if of_it <= 0.0 {
            return now;
        }
        let part = (of_it / one.bytes).min(1.0);
        let lasts = Time::from_ps(((one.end - one.begin).as_ps() as f64 * part).ceil() as u64);
        (one.begin + lasts).max(now)
    }
}

/// A message on its way out.
struct Leaving {
    departure: Departure,
    bytes: u64,
}

/// See the module.
pub(super) struct SendAhead {
    limit: Bytes,
    /// By actor and dimension.
    links: Vec<Link>,
    /// Messages, by tag; places are given again.
    leaving: Vec<Leaving>,
    unused: Vec<u64>,
}

impl SendAhead {
    pub(super) fn new(limit: Bytes, ports: usize) -> Self {
        let mut links = Vec::new();
        links.resize_with(ports, Link::default);
        Self { limit, links, leaving: Vec::new(), unused: Vec::new() }
    }

    /// A message is handed to the link of a port. Returns the tag of its departure.
    pub(super) fn give(&mut self, place: usize, departure: Departure, bytes: Bytes) -> u64 {
        let leaving = Leaving { departure, bytes: bytes.count() };
        self.links[place].unsent_bytes += leaving.bytes;
        if let Some(tag) = self.unused.pop() {
            self.leaving[tag as usize] = leaving;
            return tag;
        }
        self.leaving.push(leaving);
        self.leaving.len() as u64 - 1
    }

    /// What a message was sent from.
    pub(super) fn departure(&self, tag: u64) -> Departure {
        self.leaving[tag as usize].departure
    }

    /// A message has left. Returns whether its port may choose from now on.
    pub(super) fn has_left(&mut self, place: usize, tag: u64) -> bool {
        let could = self.lets_choose(place);
        self.unused.push(tag);
        self.links[place].unsent_bytes -= self.leaving[tag as usize].bytes;
        !could && self.lets_choose(place)
    }

    /// Whether messages leave room to choose.
    pub(super) fn lets_choose(&self, place: usize) -> bool {
        self.links[place].unsent_bytes <= self.limit.count()
    }
}

impl<W: World> Executors<W> {
    /// In `dims`: a stage was chosen, and waits for its link. Returns when its port may choose again.
    pub(super) fn hand_over(&mut self, now: Time, actor: u32, service: Service) -> Time {
        let Service { run, times, overhead, .. } = service;
        let place = actor as usize * self.dimensions + run.port as usize;
        let Some(ahead) = &mut self.ahead else { return now };
        let link = &mut ahead.links[place];
        link.waiting.push_back(service);
        // Where stages run side by side, none keeps the link from another.
        let served = times.served.min(times.occupancy);
        let bytes = if served > Time::ZERO { times.sent } else { 0.0 };
        let limit = ahead.limit.count() as f64;
        link.hand_over(now, limit, (overhead + times.occupancy, served), bytes)
    }

    /// In `dims`: links that have sent all begin what they were handed.
    pub(super) fn begin_handed(&mut self, now: Time, actor: u32) {
        let first = actor as usize * self.dimensions;
        for (port, place) in (0u32..).zip(first..first + self.dimensions) {
            while let Some(link) = self.ahead.as_mut().map(|ahead| &mut ahead.links[place]) {
                if link.free_at > now {
                    if !link.wakes && !link.waiting.is_empty() {
                        link.wakes = true;
                        self.timers.push(link.free_at, BEFORE, Inner::LinkFree { actor, port });
                    }
                    break;
                }
                let Some(service) = link.waiting.pop_front() else { break };
                let free_at = self.serve(now, actor, service);
                if let Some(ahead) = &mut self.ahead {
                    ahead.links[place].free_at = free_at;
                }
            }
        }
    }

    /// In `dims`: a link can begin the next stage.
    pub(super) fn link_free(&mut self, actor: u32, port: u32) {
        if let Some(ahead) = &mut self.ahead {
            ahead.links[actor as usize * self.dimensions + port as usize].wakes = false;
        }
        // Whether or not its executor has anything to choose.
        let state = &mut self.actors[actor as usize];
        if !state.unsettled {
            state.unsettled = true;
            self.unsettled.push(actor);
        }
    }
}
