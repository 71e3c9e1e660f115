//! `cached`: what was launched once has a slot in a cache that is alike on all ranks, and is asked for
//! with one bit. Each cycle the bit vectors of all ranks are intersected, up a tree and down again; what
//! is left is ready everywhere and launched, without anyone's decision.
//!
//! Beside the bits go flags, united: someone has a request that is not in the cache (then this cycle
//! goes on as in `coordinator`, for those requests alone), someone's tensor is no longer what its slot
//! says (the slot is freed everywhere first), someone wants to stop. A rank that has joined sets all
//! bits. Tensors that wait for half of `stall` lose their slots: so rank 0 hears who has asked for
//! them, and can name who has not.
//!
//! Source: Romero et al., NSDI'22. Horovod's all-reduce of the vector is MPI's; here it is a tree of
//! `fan_out`.

use std::sync::Arc;

use allrail_core::Time;

use super::bits::Bits;
use super::coordinator::BROADCAST_FAN_OUT;
use super::guard::{Guard, lives};
use super::ledger::{Ledger, Outcome};
use super::lists::{self, Lists};
use super::messages::{Decision, Payload, Reason, Request, Vote};
use super::place::Place;
use super::{Action, CYCLE, CoordinationPolicy, Coordinator, Event, Job, Settings, WATCH};

/// The policy.
pub struct Cached;

impl CoordinationPolicy for Cached {
    fn tag(&self) -> &'static str {
        "cached"
    }

    fn about(&self) -> &'static str {
        "bit vectors of cached tensors intersected over all ranks each cycle (Horovod)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "cache", "fan_out"]
    }

    fn slots(&self, settings: &Settings) -> (usize, bool) {
        (settings.cache as usize, true)
    }

    fn runs_in_waves(&self) -> bool {
        true
    }

    fn coordinator(&self, job: &Job, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Machine::new(job, rank))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until the next cycle.
    Pause,
    /// For votes from below.
    Votes,
    /// For the combined vote.
    Verdict,
    /// For lists from below.
    Gathering,
    /// For rank 0's answer.
    Answer,
    Stopped,
}

/// What few cycles touch, apart: with tens of thousands of ranks in a process, memory is what takes time.
struct Rare {
    /// Not in the cache, not yet sent to rank 0.
    unsent: Vec<Request>,
    /// What was ready everywhere in this cycle, while requests are gathered.
    ready: Bits,
    /// Of the votes that are here.
    combined: Vote,
    /// Children whose votes are here.
    heard: Bits,
    lists: Lists,
    down: Place,
}

struct Machine {
    rank: u32,
    phase: Phase,
    joined: bool,
    joins: bool,
    shuts_down: bool,
    is_quiet: bool,
    /// Whether `unsent` has any.
    has_unsent: bool,
    /// Whether `aged` has any.
    has_aged: bool,
    /// Votes that are here, own included.
    arrived: u32,
    started: Time,
    ledger: Arc<Ledger>,
    settings: Arc<Settings>,
    votes: Place,
    /// Submitted since the last cycle, with a slot.
    fresh_hits: Bits,
    /// Submitted, not launched; by tensor.
    open: Bits,
    /// The slots of what is submitted and not launched.
    hits: Bits,
    /// Slots that have waited since `aged_since`.
    aged: Bits,
    aged_since: Time,
    guard: Guard,
    /// Submitted since the last cycle, without a slot.
    fresh: Vec<Request>,
    rare: Box<Rare>,
}

impl Machine {
    fn new(job: &Job, rank: u32) -> Self {
        Self {
            rank,
            phase: Phase::Pause,
            joined: false,
            joins: false,
            shuts_down: false,
            is_quiet: false,
            has_unsent: false,
            has_aged: false,
            arrived: 0,
            started: Time::ZERO,
            ledger: job.ledger.clone(),
            settings: job.settings.clone(),
            votes: Place::new(rank, job.ranks, job.settings.fan_out),
            fresh_hits: Bits::default(),
            open: Bits::default(),
            hits: Bits::default(),
            aged: Bits::default(),
            aged_since: Time::ZERO,
            guard: Guard::new(job.settings.patience),
            fresh: Vec::new(),
            rare: Box::new(Rare {
                unsent: Vec::new(),
                ready: Bits::default(),
                combined: Vote::default(),
                heard: Bits::default(),
                lists: Lists::new(Place::new(rank, job.ranks, u32::MAX)),
                down: Place::new(rank, job.ranks, BROADCAST_FAN_OUT),
            }),
        }
    }

    fn has_nothing_fresh(&self) -> bool {
        self.fresh.is_empty() && self.fresh_hits.is_empty()
    }

    /// Slots are another tensor's now, or nobody's: what is fresh may have lost its own.
    fn doubt(&mut self, before: &Ledger) {
        for slot in std::mem::take(&mut self.fresh_hits).iter() {
            let (old, new) = (before.entry(slot), self.ledger.entry(slot));
            match (old, new) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => self.fresh_hits.insert(slot),
                (Some(old), _) => self.fresh.push(old.request_of(self.rank)),
                (None, _) => {}
            }
        }
    }

    /// To be sent to rank 0.
    fn unsent(&mut self, request: Request) {
        self.rare.unsent.push(request);
        self.has_unsent = true;
    }

    /// Half of it with a slot, half of it in rank 0's table.
    fn half_stall(&self) -> Time {
        Time::from_ps(self.settings.stall.as_ps().div_ceil(2))
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.started = now;
        self.is_quiet = self.has_nothing_fresh() && !self.has_unsent && !self.joins;
        if self.rank == 0 {
            let stall = self.half_stall();
            let lists = &mut self.rare.lists;
            if let Some(reason) = lists.inspect(now, stall, &self.settings, actions) {
                return self.stop(None, &reason, actions);
            }
        }
        let mut invalid = Bits::default();
        self.hits.unite(&self.fresh_hits);
        self.fresh_hits = Bits::default();
        if !self.fresh.is_empty() {
            for request in std::mem::take(&mut self.fresh) {
                // Its tensor may have got a slot since.
                match self.ledger.hit(self.rank, &request) {
                    Some(slot) => self.hits.insert(slot),
                    None => {
                        let slot = self.ledger.slot(request.tensor);
                        slot.into_iter().for_each(|slot| invalid.insert(slot));
                        self.unsent(request);
                    }
                }
            }
        }
        self.age(now, &mut invalid);
        let ready = if self.joined { Bits::below(self.ledger.slots()) } else { self.hits.clone() };
        let vote = Vote {
            ready,
            uncached: self.joins || self.has_unsent || !invalid.is_empty(),
            invalid: (!invalid.is_empty()).then(|| Box::new(invalid)),
            shutdown: self.shuts_down,
        };
        self.phase = Phase::Votes;
        self.voted(now, None, vote, actions);
    }

    /// Slots that have waited too long are to be freed.
    fn age(&mut self, now: Time, invalid: &mut Bits) {
        if !self.has_aged {
            if !self.hits.is_empty() {
                self.has_aged = true;
                self.aged = self.hits.clone();
                self.aged_since = now;
                self.is_quiet = false;
            }
        } else if now.saturating_sub(self.aged_since) >= self.half_stall() {
            invalid.unite(&self.aged);
            self.has_aged = false;
        }
    }

    /// These no longer wait.
    fn settle(&mut self, slots: &Bits) {
        self.hits.subtract(slots);
        if self.has_aged {
            self.aged.subtract(slots);
            self.has_aged = !self.aged.is_empty();
        }
    }

    fn voted(&mut self, now: Time, from: Option<u32>, vote: Vote, actions: &mut Vec<Action>) {
        let children = self.votes.children();
        let combined = if children == 0 {
            vote
        } else {
            let rare = &mut *self.rare;
            if let Some(child) = from.and_then(|from| self.votes.child(from)) {
                rare.heard.insert(child);
            }
            if self.arrived == 0 {
                rare.combined = vote;
            } else {
                rare.combined.combine(&vote);
            }
            self.arrived += 1;
            if self.arrived <= children {
                if from.is_none() {
                    self.guard.wait(now, actions);
                }
                return;
            }
            self.arrived = 0;
            rare.heard = Bits::default();
            std::mem::take(&mut rare.combined)
        };
        if let Some(parent) = self.votes.parent() {
            self.phase = Phase::Verdict;
            self.guard.wait(now, actions);
            actions.push(Action::Send { to: parent, payload: Payload::Vote(combined) });
        } else {
            self.verdict(now, combined, actions);
        }
    }

    fn verdict(&mut self, now: Time, mut vote: Vote, actions: &mut Vec<Action>) {
        if self.votes.children() > 0 {
            lists::forward(&self.votes, &Payload::Verdict(vote.clone()), actions);
        }
        self.guard.heard();
        if vote.shutdown {
            self.phase = Phase::Stopped;
            actions.push(Action::Stop(Arc::new(Reason::Asked)));
            return;
        }
        if let Some(invalid) = vote.invalid {
            vote.ready.subtract(&invalid);
            self.drop_slots(*invalid);
        }
        if !vote.uncached {
            let outcome = Outcome { ready: vote.ready, ..Outcome::default() };
            return self.launch(now, &outcome, actions);
        }
        self.is_quiet = false;
        self.rare.ready = vote.ready;
        self.phase = Phase::Gathering;
        let own = lists::own(self.rank, &mut self.rare.unsent, self.joins, false);
        self.has_unsent = false;
        self.joined |= self.joins;
        self.joins = false;
        self.listed(now, None, own, actions);
    }

    /// Frees slots; what waits with them is to be asked for anew.
    fn drop_slots(&mut self, invalid: Bits) {
        for slot in invalid.iter().filter(|slot| self.hits.contains(*slot)).collect::<Vec<_>>() {
            if let Some(entry) = self.ledger.entry(slot).cloned() {
                self.unsent(entry.request_of(self.rank));
            }
        }
        self.settle(&invalid);
        let after = self.ledger.after(&Outcome { invalid, ..Outcome::default() }).0;
        let before = std::mem::replace(&mut self.ledger, after);
        self.doubt(&before);
    }

    fn listed(
        &mut self,
        now: Time,
        from: Option<u32>,
        asks: super::messages::Asks,
        actions: &mut Vec<Action>,
    ) {
        self.rare.lists.add(now, from, asks);
        if !self.rare.lists.is_complete() {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return;
        }
        if let Some(parent) = self.rare.lists.place().parent() {
            self.phase = Phase::Answer;
            self.guard.wait(now, actions);
            let payload = Payload::Asks(self.rare.lists.take());
            actions.push(Action::Send { to: parent, payload });
        } else {
            let decision = Arc::new(self.rare.lists.decide());
            self.decided(now, &decision, actions);
        }
    }

    fn decided(&mut self, now: Time, decision: &Arc<Decision>, actions: &mut Vec<Action>) {
        lists::forward(&self.rare.down, &Payload::Decision(decision.clone()), actions);
        self.guard.heard();
        let outcome = Outcome {
            invalid: Bits::default(),
            ready: std::mem::take(&mut self.rare.ready),
            complete: decision.complete.clone(),
            all_joined: decision.all_joined,
        };
        self.joined &= !decision.all_joined;
        let before = self.ledger.clone();
        self.launch(now, &outcome, actions);
        self.doubt(&before);
        // New tensors may have taken the slots of others that wait.
        for slot in self.hits.clone().iter() {
            let (old, new) = (before.entry(slot), self.ledger.entry(slot));
            if let Some(old) = old.filter(|old| new.is_none_or(|new| !Arc::ptr_eq(old, new))) {
                self.unsent(old.request_of(self.rank));
                self.settle(&std::iter::once(slot).collect());
            }
        }
    }

    /// Takes an outcome in, and waits for the next cycle.
    fn launch(&mut self, now: Time, outcome: &Outcome, actions: &mut Vec<Action>) {
        if !outcome.ready.is_empty() || !outcome.complete.is_empty() || outcome.all_joined {
            self.is_quiet = false;
            self.settle(&outcome.ready);
            let (ledger, launch) = self.ledger.after(outcome);
            self.ledger = ledger;
            if let Some(launch) = launch {
                self.open.subtract(&launch.tensors);
                actions.push(Action::Ready(launch));
            }
        }
        self.phase = Phase::Pause;
        let at = self.started.checked_add(self.settings.cycle).unwrap_or(Time::MAX).max(now);
        actions.push(Action::SetTimer { id: CYCLE, at });
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.phase = Phase::Stopped;
        lists::stop(
            &[&self.votes, self.rare.lists.place(), &self.rare.down],
            from,
            reason,
            actions,
        );
    }

    /// Whom it waits for.
    fn silent(&self) -> Vec<u32> {
        let parent = |place: &Place| place.parent().into_iter().collect();
        match self.phase {
            Phase::Votes => {
                let below = self.votes.below().enumerate();
                let silent = below.filter(|(child, _)| !self.rare.heard.contains(*child));
                silent.map(|(_, span)| span.start).collect()
            }
            Phase::Verdict => parent(&self.votes),
            Phase::Gathering => self.rare.lists.silent(),
            Phase::Answer => parent(&self.rare.down),
            Phase::Pause | Phase::Stopped => Vec::new(),
        }
    }
}

impl Coordinator for Machine {
    fn on(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        if self.phase == Phase::Stopped {
            return;
        }
        match event {
            Event::Message { from, payload } => match payload {
                Payload::Vote(vote) => self.voted(now, Some(from), vote, actions),
                Payload::Verdict(vote) => self.verdict(now, vote, actions),
                Payload::Asks(asks) => self.listed(now, Some(from), *asks, actions),
                Payload::Decision(decision) => self.decided(now, &decision, actions),
                Payload::Stop(reason) => self.stop(Some(from), &reason, actions),
                Payload::Probe { origin, .. } => actions.push(lives(origin)),
                Payload::Missing { .. } => self.guard.answered(from),
                _ => {}
            },
            Event::Start | Event::Timer { id: CYCLE } => self.tick(now, actions),
            Event::Submit(request) => {
                let tensor = request.tensor as usize;
                if self.open.contains(tensor) {
                    actions.push(Action::Refused { tensor: request.tensor });
                } else {
                    self.open.insert(tensor);
                    match self.ledger.hit(self.rank, &request) {
                        Some(slot) => self.fresh_hits.insert(slot),
                        None => self.fresh.push(request),
                    }
                }
            }
            Event::Join => self.joins = !self.joined,
            Event::Shutdown => self.shuts_down = true,
            Event::Timer { id: WATCH } => {
                let silent = self.silent();
                if let Some(ranks) = self.guard.look(now, self.rank, || silent, actions) {
                    self.stop(None, &Arc::new(Reason::Silent { ranks, by: self.rank }), actions);
                }
            }
            Event::Timer { .. } => {}
        }
    }

    fn acts_on_submission(&self) -> bool {
        false
    }

    fn repeats_until(&self) -> Option<Time> {
        let fresh = !self.has_nothing_fresh() || self.has_unsent;
        let told = self.joins || self.shuts_down;
        let repeats = self.phase == Phase::Pause && self.is_quiet && !fresh && !told;
        repeats.then(|| {
            let half = self.half_stall();
            let at = self.aged_since.checked_add(half).unwrap_or(Time::MAX);
            let aged = if self.has_aged { at } else { Time::MAX };
            aged.min(self.rare.lists.inspects_at(half, &self.settings))
        })
    }

    fn skip(&mut self, by: Time) {
        self.started += by;
    }
}
