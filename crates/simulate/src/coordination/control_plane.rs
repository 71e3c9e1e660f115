//! All coordinators of a job in one process, in virtual time.
//!
//! Every rank is the real state machine; between them are a [`Latency`] and, on request, [`Faults`]. A
//! rank takes one message at a time, in the order of arrival; what it does then happens when it has
//! understood it. Every launch is compared with what the other ranks launched at the same place of
//! their lists.
//!
//! Cycles in which nothing happens are left out, and cycles of one shape are run without the calendar
//! (`between`).

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_coordinate::{
    Action, Broken, CYCLE, CoordinationPolicy, CoordinationSpec, Event, Fleet, Launch, Payload,
    Request,
};
use allrail_core::Time;

use super::calendar::Calendar;
use super::entry::{Entry, Feed, What};
use super::faults::{Delays, Faults};
use super::latency::Latency;
use super::reports::{Counts, Listed, Notice};
use super::rhythm::Rhythm;
use super::wave::Wave;

pub(super) struct Rank {
    pub(super) busy: Time,
    /// When its next submission is due.
    pub(super) due: Time,
    /// How many lists it has launched.
    launched: u64,
    stopped: bool,
}

/// All coordinators of a job, the messages between them, and faults.
pub struct ControlPlane {
    pub(super) fleet: Box<dyn Fleet>,
    pub(super) ranks: Vec<Rank>,
    pub(super) queue: Calendar<Entry>,
    pub(super) latency: Latency,
    pub(super) slots: usize,
    pub(super) faults: Faults,
    pub(super) delays: Option<Delays>,
    acts: bool,
    pub(super) skips: bool,
    /// Whether a rank has stopped.
    pub(super) halted: bool,
    pub(super) wave: Wave,
    /// How long a message of so many bytes keeps its sender, of the last one.
    leaving: (u64, Time),
    pub(super) in_flight: u64,
    /// Until when the busiest rank is busy.
    pub(super) busiest: Time,
    pub(super) rhythm: Rhythm,
    pub(super) lists: VecDeque<Listed>,
    /// The place of the first of `lists`.
    pub(super) place: u64,
    pub(super) notices: Vec<(Time, u32, Notice)>,
    pub(super) counts: Counts,
    /// Of the rank that is being told something: what it submits, and what it wants done.
    requests: Vec<Request>,
    pub(super) actions: Vec<Action>,
}

impl ControlPlane {
    /// A job in which each rank begins at its time; `tensors` is how many there are, for the size of bit
    /// vectors. With `skips`, cycles that change nothing are left out.
    #[must_use]
    pub fn new(
        policy: &dyn CoordinationPolicy,
        job: &CoordinationSpec,
        tensors: usize,
        latency: Latency,
        faults: Faults,
        skips: bool,
    ) -> Self {
        let rank = |_| Rank { busy: Time::ZERO, due: Time::MAX, launched: 0, stopped: false };
        let ranks: Vec<Rank> = (0..job.ranks).map(rank).collect();
        let mut fleet = policy.fleet(job);
        let acts = fleet.acts_on_submission();
        Self {
            rhythm: Rhythm::new(ranks.len()),
            halted: false,
            wave: Wave::new(job.ranks, fleet.waves()),
            fleet,
            ranks,
            queue: Calendar::new(),
            latency,
            slots: tensors,
            delays: Delays::new(&faults),
            faults,
            acts,
            skips,
            leaving: (0, latency.leaving(0)),
            in_flight: 0,
            busiest: Time::ZERO,
            lists: VecDeque::new(),
            place: 0,
            notices: Vec::new(),
            counts: Counts::default(),
            requests: Vec::new(),
            actions: Vec::new(),
        }
    }

    /// Begins: each rank at its time.
    pub fn start(&mut self, at: impl Fn(u32) -> Time) {
        let mut order: Vec<(Time, u32)> =
            (0..self.ranks.len() as u32).map(|rank| (at(rank), rank)).collect();
        order.sort_unstable();
        for (at, rank) in order {
            self.tell(at, rank, Event::Start, None);
        }
    }

    /// Tells a rank something now: a submission, a join. Everything before `now` has to be over.
    pub fn tell(&mut self, now: Time, rank: u32, event: Event, feed: Option<&mut dyn Feed>) {
        if self.is_dead(rank, now) {
            return;
        }
        self.rhythm.changed |= !matches!(event, Event::Start);
        self.catch_up(now, rank, feed);
        let told = self.fleet.on(rank, now, event, &mut self.actions);
        self.told(now, rank, told);
    }

    /// From now on a rank submits by the clock; its first request is due at `due`.
    pub fn feed(&mut self, rank: u32, due: Time) {
        self.ranks[rank as usize].due = due;
        if self.acts {
            self.queue.push(due, Entry { to: rank, what: What::Wake });
        }
    }

    /// Whether a rank has nothing to submit by the clock.
    pub(super) fn is_idle(&self, rank: u32) -> bool {
        self.ranks[rank as usize].due == Time::MAX
    }

    pub(super) fn is_dead(&self, rank: u32, now: Time) -> bool {
        !self.faults.deaths.is_empty()
            && self.faults.deaths.get(&rank).is_some_and(|death| *death <= now)
    }

    /// A message arrives.
    #[inline]
    pub(super) fn hear(
        &mut self,
        now: Time,
        to: u32,
        from: u32,
        payload: Payload,
        feed: Option<&mut dyn Feed>,
    ) {
        let (before, after) = self.latency.arriving(&payload);
        let at = self.arrive(now, to, before, feed);
        let told = self.fleet.on(to, at, Event::Message { from, payload }, &mut self.actions);
        self.told(at, to, told);
        self.understand(to, after);
    }

    /// When a message is understood that takes its receiver so long.
    #[inline]
    pub(super) fn arrive(
        &mut self,
        now: Time,
        to: u32,
        before: Time,
        feed: Option<&mut dyn Feed>,
    ) -> Time {
        self.counts.messages += 1;
        let rank = &mut self.ranks[to as usize];
        rank.busy = now.max(rank.busy) + before;
        let at = rank.busy;
        self.busiest = self.busiest.max(at);
        self.catch_up(at, to, feed);
        at
    }

    #[inline]
    fn understand(&mut self, to: u32, after: Time) {
        if after > Time::ZERO {
            self.ranks[to as usize].busy += after;
            self.busiest = self.busiest.max(self.ranks[to as usize].busy);
        }
    }

    /// A timer fires.
    #[inline]
    pub(super) fn time_out(&mut self, now: Time, to: u32, id: u64, feed: Option<&mut dyn Feed>) {
        let at = now.max(self.ranks[to as usize].busy);
        self.catch_up(at, to, feed);
        let told = self.fleet.on(to, at, Event::Timer { id }, &mut self.actions);
        self.told(at, to, told);
    }

    /// A rank was told something.
    #[inline]
    pub(super) fn told(&mut self, at: Time, rank: u32, told: Result<(), Broken>) {
        if let Err(broken) = told {
            self.note(at, rank, Notice::Broken(broken));
        }
        if !self.actions.is_empty() {
            self.carry_out(at, rank);
        }
    }

    /// Tells a rank what it has submitted up to now.
    pub(super) fn submit_due(&mut self, now: Time, rank: u32, feed: &mut dyn Feed) {
        let due = feed.take(rank, now, &mut self.requests);
        self.ranks[rank as usize].due = due.unwrap_or(Time::MAX);
        self.rhythm.changed |= !self.requests.is_empty();
        let told = self.fleet.submit(rank, now, &self.requests, &mut self.actions);
        self.requests.clear();
        self.told(now, rank, told);
    }

    /// Before a rank is told something: what it has submitted, if that is all that it does about it.
    #[inline]
    pub(super) fn catch_up(&mut self, at: Time, rank: u32, feed: Option<&mut dyn Feed>) {
        if !self.acts
            && self.ranks[rank as usize].due <= at
            && let Some(feed) = feed
        {
            self.submit_due(at, rank, feed);
        }
    }

    /// Does what a rank wants done.
    pub(super) fn carry_out(&mut self, at: Time, rank: u32) {
        let mut busy = self.ranks[rank as usize].busy.max(at);
        // The first is to be next.
        self.actions.reverse();
        while let Some(action) = self.actions.pop() {
            match action {
                Action::Send { to, payload } => {
                    let arrival = self.leave(rank, to, &payload, &mut busy);
                    self.send(rank, to, arrival, payload);
                }
                Action::Spread { below, payload } => {
                    let is_wave = self.wave.is_on && payload.ends_cycle();
                    for to in below.below().map(|span| span.start) {
                        let arrival = self.leave(rank, to, &payload, &mut busy);
                        if is_wave {
                            self.wave.fall(to, arrival);
                        } else {
                            self.send(rank, to, arrival, payload.clone());
                        }
                    }
                    if is_wave && rank == 0 {
                        self.wave.verdict = Some(payload);
                    }
                }
                Action::SetTimer { id, at } => {
                    if id == CYCLE {
                        self.rhythm.set += 1;
                        self.rhythm.ticks[rank as usize] = at;
                    }
                    if id != CYCLE || !self.wave.is_on {
                        self.queue.push(at, Entry { to: rank, what: What::Timer(id) });
                    }
                }
                Action::Ready(launch) => self.launched(at, rank, launch),
                Action::Warn { tensor, missing } => {
                    self.note(at, rank, Notice::Stall { tensor, missing });
                }
                Action::Refused { tensor } => self.note(at, rank, Notice::Refused { tensor }),
                Action::Stop(reason) => {
                    self.ranks[rank as usize].stopped = true;
                    self.halted = true;
                    self.note(at, rank, Notice::Stop(reason));
                }
            }
        }
        self.ranks[rank as usize].busy = busy;
        self.busiest = self.busiest.max(busy);
    }

    fn send(&mut self, from: u32, to: u32, arrival: Time, payload: Payload) {
        let entry = Entry { to, what: What::Message { from, payload } };
        if self.wave.is_on {
            self.wave.push(arrival, entry);
        } else {
            self.queue.push(arrival, entry);
        }
    }

    /// How long a message of so many bytes keeps its sender busy.
    #[inline]
    pub(super) fn leaving(&mut self, bytes: u64) -> Time {
        if self.leaving.0 != bytes {
            self.leaving = (bytes, self.latency.leaving(bytes));
        }
        self.leaving.1
    }

    /// A message leaves: when it arrives.
    #[inline]
    fn leave(&mut self, from: u32, to: u32, payload: &Payload, busy: &mut Time) -> Time {
        let bytes = self.latency.bytes(payload, self.slots);
        self.counts.bytes += bytes;
        *busy += self.leaving(bytes);
        self.in_flight += 1;
        let arrival = *busy + self.latency.wire;
        match &mut self.delays {
            Some(delays) => delays.arrival(from, to, arrival),
            None => arrival,
        }
    }

    #[cold]
    fn note(&mut self, at: Time, rank: u32, notice: Notice) {
        self.rhythm.changed = true;
        self.notices.push((at, rank, notice));
    }

    fn launched(&mut self, at: Time, rank: u32, launch: Arc<Launch>) {
        self.rhythm.changed = true;
        let launched = &mut self.ranks[rank as usize].launched;
        let place = (*launched - self.place) as usize;
        *launched += 1;
        match self.lists.get_mut(place) {
            None => self.lists.push_back(Listed { launch, first: at, last: at, ranks: 1 }),
            Some(listed) => {
                if !Arc::ptr_eq(&listed.launch, &launch) && listed.launch != launch {
                    self.note(at, rank, Notice::Mismatch);
                    return;
                }
                listed.first = listed.first.min(at);
                listed.last = listed.last.max(at);
                listed.ranks += 1;
            }
        }
    }

    /// A rank launches what rank 0 has launched in the same cycle.
    #[inline]
    pub(super) fn launched_too(&mut self, at: Time, rank: u32) {
        self.rhythm.changed = true;
        let launched = &mut self.ranks[rank as usize].launched;
        let place = (*launched - self.place) as usize;
        *launched += 1;
        if let Some(listed) = self.lists.get_mut(place) {
            listed.first = listed.first.min(at);
            listed.last = listed.last.max(at);
            listed.ranks += 1;
        }
    }

    /// What the ranks had to say so far, with the time and the rank.
    #[must_use]
    pub fn notices(&self) -> &[(Time, u32, Notice)] {
        &self.notices
    }

    /// How many ranks have stopped.
    #[must_use]
    pub fn stopped(&self) -> usize {
        self.ranks.iter().filter(|rank| rank.stopped).count()
    }

    /// How many lists a rank has launched.
    #[must_use]
    pub fn launched_by(&self, rank: u32) -> u64 {
        self.ranks[rank as usize].launched
    }

    /// How much was done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
