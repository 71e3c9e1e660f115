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

mod ballot;
mod waiting;

use std::sync::Arc;

use allrail_core::Time;

use self::ballot::Ballot;
use self::waiting::Waiting;
use super::bits::Bits;
use super::coordinator::BROADCAST_FAN_OUT;
use super::guard::{Guard, lives};
use super::ledger::{Launch, Outcome};
use super::lists::{self, Lists};
use super::messages::{Asks, Decision, Payload, Reason, Request, Verdict, Vote};
use super::place::Place;
use super::{
    Action, CYCLE, CoordinationPolicy, Coordinator, Event, Job, Settings, WATCH, make_room,
};

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
    /// What was ready everywhere in this cycle, while requests are gathered.
    ready: Bits,
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
    started: Time,
    settings: Arc<Settings>,
    votes: Ballot,
    waiting: Waiting,
    guard: Guard,
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
            started: Time::ZERO,
            settings: job.settings.clone(),
            votes: Ballot::new(Place::new(rank, job.ranks, job.settings.fan_out)),
            waiting: Waiting::new(rank, job.ledger.clone()),
            guard: Guard::new(job.settings.patience),
            rare: Box::new(Rare {
                ready: Bits::default(),
                lists: Lists::new(Place::new(rank, job.ranks, u32::MAX)),
                down: Place::new(rank, job.ranks, BROADCAST_FAN_OUT),
            }),
        }
    }

    /// Half of it with a slot, half of it in rank 0's table.
    fn half_stall(&self) -> Time {
        Time::from_ps(self.settings.stall.as_ps().div_ceil(2))
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.started = now;
        let stall = self.half_stall();
        if self.rank == 0 {
            let lists = &mut self.rare.lists;
            if let Some(reason) = lists.inspect(now, stall, &self.settings, actions) {
                return self.stop(None, &reason, actions);
            }
        }
        let mut invalid = Bits::default();
        self.is_quiet = self.waiting.begin(now, stall, &mut invalid) && !self.joins;
        let vote = self.votes.paper(Vote {
            ready: self.waiting.ready(self.joined),
            uncached: self.joins || self.waiting.has_unsent() || !invalid.is_empty(),
            invalid,
            shutdown: self.shuts_down,
        });
        self.phase = Phase::Votes;
        self.voted(now, None, vote, actions);
    }

    #[inline]
    fn voted(&mut self, now: Time, from: Option<u32>, vote: Box<Vote>, actions: &mut Vec<Action>) {
        let Some(combined) = self.votes.add(from, vote) else {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return;
        };
        if let Some(parent) = self.votes.place().parent() {
            self.phase = Phase::Verdict;
            self.guard.wait(now, actions);
            make_room(actions);
            actions.push(Action::Send { to: parent, payload: Payload::Vote(combined) });
        } else {
            let Vote { mut ready, invalid, uncached, shutdown } = *combined;
            ready.subtract(&invalid);
            let outcome = Outcome { ready, ..Outcome::default() };
            let verdict = Verdict { invalid, outcome, uncached, shutdown };
            self.verdict(now, Arc::new(verdict), actions);
        }
    }

    #[inline]
    fn verdict(&mut self, now: Time, verdict: Arc<Verdict>, actions: &mut Vec<Action>) {
        self.guard.heard();
        if verdict.shutdown {
            self.phase = Phase::Stopped;
            lists::forward(self.votes.place(), Payload::Verdict(verdict), actions);
            actions.push(Action::Stop(Arc::new(Reason::Asked)));
            return;
        }
        if !verdict.invalid.is_empty() {
            self.waiting.free(&verdict.invalid);
        }
        if !verdict.uncached {
            self.is_quiet &= verdict.outcome.ready.is_empty();
            let launch = self.waiting.launch(&verdict.outcome);
            lists::forward(self.votes.place(), Payload::Verdict(verdict), actions);
            return self.pause(now, launch, actions);
        }
        self.is_quiet = false;
        self.rare.ready = verdict.outcome.ready.clone();
        self.phase = Phase::Gathering;
        lists::forward(self.votes.place(), Payload::Verdict(verdict), actions);
        let own = lists::own(self.rank, self.waiting.unsent(), self.joins, false);
        self.joined |= self.joins;
        self.joins = false;
        self.listed(now, None, own, actions);
    }

    fn listed(&mut self, now: Time, from: Option<u32>, asks: Asks, actions: &mut Vec<Action>) {
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
        lists::forward(&self.rare.down, Payload::Decision(decision.clone()), actions);
        self.guard.heard();
        let outcome = Outcome {
            invalid: Bits::default(),
            ready: std::mem::take(&mut self.rare.ready),
            complete: decision.complete.clone(),
            all_joined: decision.all_joined,
        };
        self.joined &= !decision.all_joined;
        let launch = self.waiting.decide(&outcome);
        self.pause(now, launch, actions);
    }

    /// Launches, and waits for the next cycle.
    #[inline]
    fn pause(&mut self, now: Time, launch: Option<Arc<Launch>>, actions: &mut Vec<Action>) {
        if let Some(launch) = launch {
            make_room(actions);
            actions.push(Action::Ready(launch));
        }
        self.phase = Phase::Pause;
        let at = self.started.checked_add(self.settings.cycle).unwrap_or(Time::MAX).max(now);
        make_room(actions);
        actions.push(Action::SetTimer { id: CYCLE, at });
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.phase = Phase::Stopped;
        let Rare { lists, down, .. } = &*self.rare;
        lists::stop(&[self.votes.place(), lists.place(), down], from, reason, actions);
    }

    /// Whom it waits for.
    fn silent(&self) -> Vec<u32> {
        let parent = |place: &Place| place.parent().into_iter().collect();
        match self.phase {
            Phase::Votes => self.votes.silent(),
            Phase::Verdict => parent(self.votes.place()),
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
                Payload::Verdict(verdict) => self.verdict(now, verdict, actions),
                Payload::Asks(asks) => self.listed(now, Some(from), *asks, actions),
                Payload::Decision(decision) => self.decided(now, &decision, actions),
                Payload::Stop(reason) => self.stop(Some(from), &reason, actions),
                Payload::Probe(probe) => actions.push(lives(probe.origin)),
                Payload::Missing(_) => self.guard.answered(from),
                _ => {}
            },
            Event::Start | Event::Timer { id: CYCLE } => self.tick(now, actions),
            Event::Submit(request) => self.submit(now, &[request], actions),
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

    fn submit(&mut self, _: Time, requests: &[Request], actions: &mut Vec<Action>) {
        if self.phase == Phase::Stopped {
            return;
        }
        for request in requests {
            if !self.waiting.submit(request) {
                actions.push(Action::Refused { tensor: request.tensor });
            }
        }
    }

    fn acts_on_submission(&self) -> bool {
        false
    }

    fn repeats_until(&self) -> Option<Time> {
        let told = self.joins || self.shuts_down || !self.waiting.has_nothing_new();
        let repeats = self.phase == Phase::Pause && self.is_quiet && !told;
        repeats.then(|| {
            let half = self.half_stall();
            self.waiting.ages_at(half).min(self.rare.lists.inspects_at(half, &self.settings))
        })
    }

    fn skip(&mut self, by: Time) {
        self.started += by;
    }
}
