//! A cycle of all ranks as one wave: up a tree and down again, without a calendar.
//!
//! In such a cycle a rank hears its own clock and its children before it speaks to its parent, and its
//! parent once afterwards. Children have higher numbers than their parents, so ranks from the last to
//! the first, each with what has come to it in the order of time, and then from the first to the last,
//! is an order that every rank finds right. The machines are told the same events at the same times as
//! by the calendar (a test compares); what is saved is the queue, and memory is walked through in order.
//!
//! Ends early, and leaves the rest to the calendar, when rank 0 decides something else than the end of
//! the cycle.

use allrail_core::Time;
use allrail_schedule::coordinate::{CYCLE, Payload};

use super::network::{Entry, Feed, Network, What, again};

/// A message of a wave.
pub(super) struct Flying {
    to: u32,
    from: u32,
    at: Time,
    payload: Payload,
}

/// What a wave has under way.
#[derive(Default)]
pub(super) struct Wave {
    /// Whether messages go here instead of into the calendar.
    pub(super) is_on: bool,
    /// The next to be taken is the last.
    stack: Vec<Flying>,
    /// Of one rank.
    heard: Vec<Flying>,
}

impl Wave {
    pub(super) fn push(&mut self, to: u32, from: u32, at: Time, payload: Payload) {
        self.stack.push(Flying { to, from, at, payload });
    }
}

impl Network {
    /// Whether waves are possible at all.
    pub(super) fn may_run_waves(&self) -> bool {
        self.skips && self.waves && self.delays.is_none() && self.faults.deaths.is_empty()
    }

    /// Whether the next cycle can be a wave: all of it is over before anything else happens.
    pub(super) fn can_run_wave(&mut self, until: Time) -> bool {
        let Some((_, last)) = self.rhythm.held else { return false };
        if !self.may_run_waves() || self.in_flight > 0 {
            return false;
        }
        let busy = self.ranks.iter().map(|rank| rank.busy).max().unwrap_or_default();
        // Were all messages sent one after the other, and were they as long as votes can be.
        let bytes = self.latency.vote_bytes(self.slots);
        let one = self.latency.leaving(bytes) + self.latency.wire + self.latency.receive;
        let all = one.checked_mul(2 * self.ranks.len() as u64);
        let over = all.and_then(|all| last.max(busy).checked_add(all));
        let other = self.queue.next_time().unwrap_or(Time::MAX);
        over.is_some_and(|over| over < other && over <= until)
    }

    /// Runs a cycle of all ranks, and says when it was over.
    pub(super) fn run_wave(&mut self, mut feed: Option<&mut dyn Feed>) -> Time {
        let notices = self.notices.len();
        let mut end = Time::ZERO;
        self.rhythm.held = None;
        self.rhythm.set = 0;
        self.wave.is_on = true;
        self.counts.waves += 1;
        for rank in (0..self.ranks.len() as u32).rev() {
            self.rise(rank, &mut feed);
        }
        let ends = self.wave.stack.iter().all(|flying| flying.payload.ends_cycle());
        if ends {
            // The first child is to be next.
            self.wave.stack.reverse();
            while let Some(Flying { to, from, at, payload }) = self.wave.stack.pop() {
                let rest = self.wave.stack.len();
                self.in_flight -= 1;
                self.hear(at, to, from, payload, again(&mut feed));
                end = end.max(at);
                self.wave.stack[rest..].reverse();
            }
        }
        self.wave.is_on = false;
        for Flying { to, from, at, payload } in std::mem::take(&mut self.wave.stack) {
            self.queue.push(at, Entry { to, what: What::Message { from, payload } });
        }
        if self.rhythm.set as usize == self.ranks.len() {
            self.rhythm.hold();
        } else if self.rhythm.set > 0 {
            // Only rank 0 has come so far.
            let tick = self.rhythm.ticks[0];
            self.queue.push(tick, Entry { to: 0, what: What::Timer(CYCLE) });
        }
        // Ranks spoke in the order of their numbers.
        self.notices[notices..].sort_by_key(|(time, ..)| *time);
        end
    }

    /// A rank hears its clock and its children.
    fn rise(&mut self, rank: u32, feed: &mut Option<&mut dyn Feed>) {
        let mut heard = std::mem::take(&mut self.wave.heard);
        while self.wave.stack.last().is_some_and(|flying| flying.to == rank) {
            heard.extend(self.wave.stack.pop());
        }
        heard.sort_by_key(|flying| flying.at);
        let mut tick = Some(self.rhythm.ticks[rank as usize]);
        for Flying { at, from, payload, .. } in heard.drain(..) {
            if let Some(tick) = tick.take_if(|tick| *tick <= at) {
                self.time_out(tick, rank, CYCLE, again(feed));
            }
            self.in_flight -= 1;
            self.hear(at, rank, from, payload, again(feed));
        }
        if let Some(tick) = tick {
            self.time_out(tick, rank, CYCLE, again(feed));
        }
        self.wave.heard = heard;
    }
}
