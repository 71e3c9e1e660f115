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
//!   none. Stages wait here for their link, and the network model gets each when it begins: one dimension's
//!   stages then reach it at the very times of a run without, if they are chosen in the same order.
//! - In `links`, bytes are counted message by message: one is unsent until its last byte has left. The
//!   later messages of a stage count when they are sent; they ask nobody.
//!
//! `active_chunks` counts what is handed over too. Eager queues choose at every event, so at the one that
//! makes room, too. In `flows` and `packets` messages of one sender share it, and none waits behind
//! another: [`check`] refuses.

use std::collections::VecDeque;

use allrail_core::{Bytes, Time};

use super::flight::{Departure, Service};
use crate::SimulateError;
use crate::scenario::{NETWORK_MODELS, NetworkModelKind, field};

/// Refuses a network model in which nothing waits in order at its sender.
///
/// # Errors
/// Names the network models that have it.
pub(crate) fn check(
    send_ahead: Bytes,
    network_model: NetworkModelKind,
) -> Result<(), SimulateError> {
    if send_ahead == Bytes::default() || network_model.sends_in_order() {
        return Ok(());
    }
    let having = NETWORK_MODELS.iter().filter(|model| model.kind.sends_in_order());
    let having: Vec<String> = having.map(|model| format!("`{}`", model.tag)).collect();
    let why = format!(
        "in `{}` messages of one sender share its links, and none waits behind another",
        network_model.tag()
    );
    let hint = format!("leave it out, or use {}", having.join(" or "));
    Err(field("schedule.send_ahead", send_ahead, &why, &hint))
}

/// A stage that a link has, or will have, to send.
pub(super) struct Sending {
    /// When its first byte leaves, and its last.
    pub(super) begin: Time,
    pub(super) end: Time,
    pub(super) bytes: f64,
    /// Those of all before it and its own.
    pub(super) through: f64,
}

/// What a port has handed over.
#[derive(Default)]
pub(super) struct Link {
    /// In `dims`: stages that wait for the link.
    pub(super) waiting: VecDeque<Service>,
    /// When the link has sent what it began, and when it will have sent all.
    pub(super) free_at: Time,
    pub(super) ends_at: Time,
    /// Whether a timer says when it is free.
    pub(super) wakes: bool,
    /// Stages that have not left whole, in order.
    pub(super) unsent: VecDeque<Sending>,
    /// Elsewhere: bytes of messages that have not left whole.
    pub(super) unsent_bytes: u64,
}

impl Link {
    /// In `dims`: hands over a stage whose bytes take the last `served` of its `occupancy`. Returns when
    /// at most `limit` bytes are unsent.
    pub(super) fn hand_over(
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
pub(super) struct Leaving {
    pub(super) departure: Departure,
    pub(super) bytes: u64,
}

/// See the module.
pub(super) struct SendAhead {
    pub(super) limit: Bytes,
    /// By actor and dimension.
    pub(super) links: Vec<Link>,
    /// Messages, by tag; places are given again.
    pub(super) leaving: Vec<Leaving>,
    pub(super) unused: Vec<u64>,
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
