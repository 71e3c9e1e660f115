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

use super::control_plane::{ControlPlane, Entry, Feed, What, again};

/// Who sends a message of a wave to whom, and when it arrives.
#[derive(Clone, Copy)]
struct Flight {
    to: u32,
    from: u32,
    at: Time,
}

/// What a wave has under way. What a message says is kept apart from its flight: each is moved in
/// registers, both together would be through memory that is not there yet.
#[derive(Default)]
pub(super) struct Wave {
    /// Whether messages go here instead of into the calendar.
    pub(super) is_on: bool,
    /// The next to be taken is the last.
    flights: Vec<Flight>,
    payloads: Vec<Payload>,
    /// What goes down to all, and its flights; the next to be taken is the last.
    pub(super) verdict: Option<Payload>,
    falling: Vec<Flight>,
    /// Of one rank, in the order of time, with their places.
    heard: Vec<(Flight, usize)>,
    said: Vec<Option<Payload>>,
}

impl Wave {
    #[inline]
    pub(super) fn push(&mut self, to: u32, from: u32, at: Time, payload: Payload) {
        self.flights.push(Flight { to, from, at });
        self.payloads.push(payload);
    }

    /// The verdict is on its way to a rank.
    #[inline]
    pub(super) fn fall(&mut self, to: u32, from: u32, at: Time) {
        self.falling.push(Flight { to, from, at });
    }

    /// Takes out what a rank hears from below.
    fn hear(&mut self, rank: u32) {
        let first = self.flights.iter().rposition(|flight| flight.to != rank);
        let first = first.map_or(0, |last| last + 1);
        self.said.extend(self.payloads.drain(first..).rev().map(Some));
        self.heard.extend(self.flights.drain(first..).rev().zip(0..));
        self.heard.sort_by_key(|(flight, _)| flight.at);
    }
}

impl ControlPlane {
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
        let over = self.wave_end(last);
        let other = self.queue.next_time().unwrap_or(Time::MAX);
        over.is_some_and(|over| over < other && over <= until)
    }

    /// When a wave is over at the latest: on each level up and down a rank hears its children, and speaks to
    /// them, one after the other, as long as votes can be.
    fn wave_end(&self, last: Time) -> Option<Time> {
        let (fan_out, levels) = self.tree;
        let leaving = self.latency.leaving(self.latency.vote_bytes(self.slots));
        let one = (leaving + self.latency.receive).checked_mul(fan_out + 1)?;
        let all = (one + self.latency.wire + self.latency.wire).checked_mul(levels)?;
        last.max(self.busiest).checked_add(all)
    }

    /// Where the next cycle may be a wave and nothing else happens before: when its last rank begins.
    /// Nothing is launched everywhere before that, and until then submissions may come.
    pub(super) fn waits_until(&mut self) -> Option<Time> {
        let (_, last) = self.rhythm.held?;
        let other = self.queue.next_time().unwrap_or(Time::MAX);
        let waits = self.may_run_waves() && self.in_flight == 0 && self.lists.is_empty();
        (waits && last < other).then_some(last)
    }

    /// Runs a cycle of all ranks, and says when it was over.
    pub(super) fn run_wave(&mut self, mut feed: Option<&mut dyn Feed>) -> Time {
        let notices = self.notices.len();
        let mut end = Time::ZERO;
        let latest = self.rhythm.held.and_then(|(_, last)| self.wave_end(last));
        self.rhythm.held = None;
        self.rhythm.set = 0;
        self.wave.is_on = true;
        self.counts.waves += 1;
        for rank in (0..self.ranks.len() as u32).rev() {
            self.rise(rank, &mut feed);
        }
        if let Some(verdict) = self.wave.verdict.take() {
            // The first child is to be next.
            self.wave.falling.reverse();
            while let Some(flight) = self.wave.falling.pop() {
                let rest = self.wave.falling.len();
                self.in_flight -= 1;
                self.hear_shared(flight.at, flight.to, flight.from, &verdict, again(&mut feed));
                end = end.max(flight.at);
                self.wave.falling[rest..].reverse();
            }
            self.wave.verdict = None;
        }
        debug_assert!(latest.is_none_or(|latest| end <= latest), "{end} after {latest:?}");
        self.wave.is_on = false;
        for (flight, payload) in self.wave.flights.drain(..).zip(self.wave.payloads.drain(..)) {
            let what = What::Message { from: flight.from, payload };
            self.queue.push(flight.at, Entry { to: flight.to, what });
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
        let mut tick = Some(self.rhythm.ticks[rank as usize]);
        if self.wave.flights.last().is_some_and(|flight| flight.to == rank) {
            self.wave.hear(rank);
            for place in 0..self.wave.heard.len() {
                let (Flight { from, at, .. }, place) = self.wave.heard[place];
                let Some(payload) = self.wave.said[place].take() else { continue };
                if let Some(tick) = tick.take_if(|tick| *tick <= at) {
                    self.time_out(tick, rank, CYCLE, again(feed));
                }
                self.in_flight -= 1;
                self.hear(at, rank, from, payload, again(feed));
            }
            self.wave.heard.clear();
            self.wave.said.clear();
        }
        if let Some(tick) = tick {
            self.time_out(tick, rank, CYCLE, again(feed));
        }
    }
}
