//! All coordinators of a job in one process, in virtual time.
//!
//! Every rank is the real state machine; between them are a [`Latency`] and, on request, [`Faults`]. A
//! rank takes one message at a time, in the order of arrival; what it does then happens when it has
//! understood it. Every launch is compared with what the other ranks launched at the same place of
//! their lists.
//!
//! Cycles in which nothing happens are left out: if a cycle changed nothing, no message is under way,
//! and every rank began the next cycle at the same distance after the last, then all cycles repeat
//! until something is submitted. A test runs both ways.

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_core::Time;
use allrail_schedule::coordinate::{
    Action, CYCLE, CoordinationPolicy, Coordinator, Event, Job, Launch, Payload, Reason, Request,
};

use super::calendar::Calendar;
use super::faults::{Delays, Faults};
use super::latency::Latency;

/// What ranks submit by the clock.
pub trait Feed {
    /// The next request of a rank that is due, and when the one after it is; `None` if none is left.
    fn take(&mut self, rank: u32) -> (Request, Option<Time>);
}

enum What {
    Message {
        from: u32,
        payload: Payload,
    },
    Timer(u64),
    /// A submission is due, of a rank that acts on it.
    Wake,
}

struct Entry {
    to: u32,
    what: What,
}

struct Rank {
    machine: Box<dyn Coordinator>,
    busy: Time,
    /// When its next submission is due.
    due: Time,
    /// How many lists it has launched.
    launched: u64,
    stopped: bool,
}

/// A list that every rank has launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Everywhere {
    /// Counted from 0.
    pub place: u64,
    /// What.
    pub launch: Arc<Launch>,
    /// When the first rank launched it.
    pub first: Time,
    /// When the last one did.
    pub last: Time,
}

/// What a rank has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Tensors wait for ranks.
    Stall {
        /// Which tensor.
        tensor: u32,
        /// Who has not submitted it.
        missing: Vec<u32>,
    },
    /// It stops.
    Stop(Arc<Reason>),
    /// It has submitted a tensor twice.
    Refused {
        /// Which.
        tensor: u32,
    },
    /// It launches something else than the others.
    Mismatch,
}

struct Listed {
    launch: Arc<Launch>,
    first: Time,
    last: Time,
    ranks: u32,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that arrived.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Cycles of all ranks that were left out.
    pub skipped: u64,
}

/// Of what the ranks did when they last were all between cycles.
#[derive(Default)]
struct Rhythm {
    /// When each rank's next cycle begins.
    ticks: Vec<Time>,
    /// The same before the last cycle.
    before: Vec<Time>,
    /// How many ranks have their timer set.
    set: u32,
    changed: bool,
}

/// The network.
pub struct Network {
    ranks: Vec<Rank>,
    queue: Calendar<Entry>,
    latency: Latency,
    slots: usize,
    faults: Faults,
    delays: Option<Delays>,
    acts: bool,
    skips: bool,
    in_flight: u64,
    rhythm: Rhythm,
    lists: VecDeque<Listed>,
    /// The place of the first of `lists`.
    place: u64,
    notices: Vec<(Time, u32, Notice)>,
    counts: Counts,
    actions: Vec<Action>,
}

impl Network {
    /// A job in which each rank begins at its time; `tensors` is how many there are, for the size of bit
    /// vectors. With `skips`, cycles that change nothing are left out.
    #[must_use]
    pub fn new(
        policy: &dyn CoordinationPolicy,
        job: &Job,
        tensors: usize,
        latency: Latency,
        faults: Faults,
        skips: bool,
    ) -> Self {
        let rank = |rank| Rank {
            machine: policy.coordinator(job, rank),
            busy: Time::ZERO,
            due: Time::MAX,
            launched: 0,
            stopped: false,
        };
        let ranks: Vec<Rank> = (0..job.ranks).map(rank).collect();
        let acts = ranks.first().is_some_and(|rank| rank.machine.acts_on_submission());
        Self {
            rhythm: Rhythm {
                ticks: vec![Time::ZERO; ranks.len()],
                changed: true,
                ..Rhythm::default()
            },
            ranks,
            queue: Calendar::new(),
            latency,
            slots: tensors,
            delays: Delays::new(&faults),
            faults,
            acts,
            skips,
            in_flight: 0,
            lists: VecDeque::new(),
            place: 0,
            notices: Vec::new(),
            counts: Counts::default(),
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
        self.deliver(now, rank, event, feed);
    }

    /// From now on a rank submits by the clock; its first request is due at `due`.
    pub fn feed(&mut self, rank: u32, due: Time) {
        self.ranks[rank as usize].due = due;
        if self.acts {
            self.queue.push(due, Entry { to: rank, what: What::Wake });
        }
    }

    fn is_dead(&self, rank: u32, now: Time) -> bool {
        !self.faults.deaths.is_empty()
            && self.faults.deaths.get(&rank).is_some_and(|death| *death <= now)
    }

    /// When something happens next. Cycles happen for ever.
    pub fn next_time(&mut self) -> Option<Time> {
        let listed = self.whole().map(|listed| listed.last);
        [self.queue.next_time(), listed].into_iter().flatten().min()
    }

    fn whole(&self) -> Option<&Listed> {
        self.lists.front().filter(|listed| listed.ranks as usize == self.ranks.len())
    }

    /// Runs until a list has been launched everywhere, at most until `until`, that included.
    pub fn advance(&mut self, until: Time, mut feed: Option<&mut dyn Feed>) -> Option<Everywhere> {
        loop {
            let next = self.queue.next_time();
            if let Some(listed) = self.whole() {
                let last = listed.last;
                if last <= until && next.is_none_or(|next| last < next) {
                    let Listed { launch, first, last, .. } = self.lists.pop_front()?;
                    self.place += 1;
                    return Some(Everywhere { place: self.place - 1, launch, first, last });
                }
            }
            if next.is_none_or(|next| next > until) {
                return None;
            }
            let (now, Entry { to, what }) = self.queue.pop()?;
            if let What::Message { .. } = what {
                self.in_flight -= 1;
            }
            if matches!(what, What::Timer(CYCLE)) {
                self.rhythm.set -= 1;
            }
            if self.is_dead(to, now) {
                continue;
            }
            let feed: Option<&mut dyn Feed> = match &mut feed {
                Some(feed) => Some(&mut **feed),
                None => None,
            };
            match what {
                What::Message { from, payload } => {
                    self.counts.messages += 1;
                    let rank = &mut self.ranks[to as usize];
                    let (before, after) = self.latency.arriving(&payload);
                    rank.busy = now.max(rank.busy) + before;
                    let at = rank.busy;
                    self.deliver(at, to, Event::Message { from, payload }, feed);
                    self.ranks[to as usize].busy += after;
                }
                What::Timer(id) => {
                    let at = now.max(self.ranks[to as usize].busy);
                    self.deliver(at, to, Event::Timer { id }, feed);
                }
                What::Wake => {
                    let at = now.max(self.ranks[to as usize].busy);
                    if let Some(feed) = feed {
                        self.submit_due(at, to, feed);
                        let due = self.ranks[to as usize].due;
                        if due < Time::MAX {
                            self.queue.push(due, Entry { to, what: What::Wake });
                        }
                    }
                }
            }
            if self.skips && self.in_flight == 0 && self.rhythm.set as usize == self.ranks.len() {
                self.rest(now, until);
            }
        }
    }

    /// Tells a rank what it has submitted up to now.
    fn submit_due(&mut self, now: Time, rank: u32, feed: &mut dyn Feed) {
        while self.ranks[rank as usize].due <= now {
            let (request, next) = feed.take(rank);
            self.ranks[rank as usize].due = next.unwrap_or(Time::MAX);
            self.act(now, rank, Event::Submit(request));
        }
    }

    fn deliver(&mut self, at: Time, rank: u32, event: Event, feed: Option<&mut dyn Feed>) {
        if let Some(feed) = feed
            && !self.acts
            && self.ranks[rank as usize].due <= at
        {
            self.submit_due(at, rank, feed);
        }
        self.act(at, rank, event);
    }

    fn act(&mut self, at: Time, rank: u32, event: Event) {
        self.rhythm.changed |= matches!(event, Event::Submit(_) | Event::Join | Event::Shutdown);
        let mut actions = std::mem::take(&mut self.actions);
        let place = &mut self.ranks[rank as usize];
        place.machine.on(at, event, &mut actions);
        let mut busy = place.busy.max(at);
        for action in actions.drain(..) {
            match action {
                Action::Send { to, payload } => {
                    let bytes = self.latency.bytes(&payload, self.slots);
                    self.counts.bytes += bytes;
                    busy += self.latency.leaving(bytes);
                    let mut arrival = busy + self.latency.wire;
                    if let Some(delays) = &mut self.delays {
                        arrival = delays.arrival(rank, to, arrival);
                    }
                    self.in_flight += 1;
                    let what = What::Message { from: rank, payload };
                    self.queue.push(arrival, Entry { to, what });
                }
                Action::SetTimer { id, at } => {
                    if id == CYCLE {
                        self.rhythm.set += 1;
                        self.rhythm.ticks[rank as usize] = at;
                    }
                    self.queue.push(at, Entry { to: rank, what: What::Timer(id) });
                }
                Action::Ready(launch) => self.launched(at, rank, launch),
                Action::Warn { tensor, missing } => {
                    self.note(at, rank, Notice::Stall { tensor, missing });
                }
                Action::Refused { tensor } => self.note(at, rank, Notice::Refused { tensor }),
                Action::Stop(reason) => {
                    self.ranks[rank as usize].stopped = true;
                    self.note(at, rank, Notice::Stop(reason));
                }
            }
        }
        self.ranks[rank as usize].busy = busy;
        self.actions = actions;
    }

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

    /// All ranks are between cycles: leaves out those that would change nothing.
    fn rest(&mut self, now: Time, until: Time) {
        let changed = std::mem::replace(&mut self.rhythm.changed, false);
        let Rhythm { ticks, before, .. } = &mut self.rhythm;
        let steady = !changed && self.delays.is_none() && before.len() == ticks.len();
        let period = before.first().map_or(Time::ZERO, |before| ticks[0].saturating_sub(*before));
        let steady = steady
            && period > Time::ZERO
            && ticks.iter().zip(&*before).all(|(tick, before)| *before + period == *tick);
        before.clone_from(ticks);
        if !steady {
            return;
        }
        let mut limit = until.as_ps().saturating_add(1);
        for rank in &self.ranks {
            let Some(repeats) = rank.machine.repeats_until() else { return };
            limit = limit.min(repeats.as_ps()).min(rank.due.as_ps());
        }
        for death in self.faults.deaths.values().filter(|death| **death >= now) {
            limit = limit.min(death.as_ps());
        }
        // The last cycle that is left out is over before the limit.
        let cycles_before = |limit: u64| limit.saturating_sub(now.as_ps() + 1) / period.as_ps();
        if cycles_before(limit) == 0 {
            return;
        }
        let events = self.queue.drain();
        let cycles = |entry: &Entry| matches!(entry.what, What::Timer(CYCLE));
        for (time, _) in events.iter().filter(|(_, entry)| !cycles(entry)) {
            limit = limit.min(time.as_ps());
        }
        let count = cycles_before(limit);
        let by = Time::from_ps(count * period.as_ps());
        for (time, entry) in events {
            let time = if cycles(&entry) { time + by } else { time };
            self.queue.push(time, entry);
        }
        for rank in &mut self.ranks {
            rank.machine.skip(by);
        }
        for time in self.rhythm.ticks.iter_mut().chain(&mut self.rhythm.before) {
            *time += by;
        }
        self.counts.skipped += count * self.ranks.len() as u64;
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
