//! `cached`: what was launched once has a slot in a cache that is alike on all ranks, and is asked for
//! with one bit. Each cycle the bit vectors of all ranks are intersected, up a tree and down again; what
//! is left is ready everywhere and launched, without anyone's decision.
//!
//! Beside the bits go flags, united: someone has a request that is not in the cache (then this cycle
//! goes on as in `central`, for those requests alone), someone's tensor is no longer what its slot
//! says (the slot is freed everywhere first), someone wants to stop. A rank that has joined sets all
//! bits. Tensors that wait for half of `stall` lose their slots: so rank 0 hears who has asked for
//! them, and can name who has not.
//!
//! Source: Romero et al., NSDI'22. Horovod's all-reduce of the vector is MPI's; here it is a tree of
//! `fan_out`.

mod ballot;
mod voters;
mod waiting;

use std::sync::Arc;

use allrail_core::Time;

use self::ballot::Ballot;
use self::waiting::Waiting;
use super::bits::Bits;
use super::broken::{Breach, Broken, Kind};
use super::central::BROADCAST_FAN_OUT;
use super::finishes::Own;
use super::fleet::{self, Alone, Shared, Together};
use super::guard::{Guard, lives};
use super::ledger::{Consensus, Launch};
use super::lists::{self, Lists};
use super::messages::{Decision, Payload, Reason, Verdict, Vote};
use super::place::Place;
use super::requests::{Asks, Request};
use super::signatures::Signatures;
use super::{
    Action, CYCLE, CoordinationPolicy, CoordinationSpec, Coordinator, Event, Fleet, Settings,
    WATCH, Waves, make_room,
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

    fn slots(&self, settings: &Settings) -> usize {
        settings.cache as usize
    }

    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Alone::new(job, |shared| Machine::new(shared, rank)))
    }

    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet> {
        Box::new(Together::new(job, Machine::new))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
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
    /// What was agreed in this cycle, while requests are gathered.
    outcome: Consensus,
    lists: Lists,
    down: Place,
    signatures: Signatures,
    finished: Own,
    cut: Option<u64>,
}

/// Begins where a line of memory begins: all of it is touched in every cycle.
#[repr(align(64))]
struct Machine {
    rank: u32,
    phase: Turn,
    joined: bool,
    joins: bool,
    shuts_down: bool,
    is_quiet: bool,
    /// Whether it has anything to tell beside requests: what has finished, or a cut.
    tells: bool,
    started: Time,
    /// How many outcomes it has seen.
    seen: u64,
    votes: Ballot,
    waiting: Waiting,
    guard: Guard,
    rare: Box<Rare>,
}

/// Half of it with a slot, half of it in rank 0's table.
fn half_stall(shared: &Shared) -> Time {
    Time::from_ps(shared.settings.stall.as_ps().div_ceil(2))
}

impl Machine {
    fn new(shared: &Shared, rank: u32) -> Self {
        let Shared { ranks, settings, .. } = shared;
        Self {
            rank,
            phase: Turn::Pause,
            joined: false,
            joins: false,
            shuts_down: false,
            is_quiet: false,
            tells: false,
            started: Time::ZERO,
            seen: 0,
            votes: Ballot::new(Place::new(rank, *ranks, settings.fan_out)),
            waiting: Waiting::default(),
            guard: Guard::new(settings.patience),
            rare: Box::new(Rare {
                outcome: Consensus::default(),
                lists: Lists::new(Place::new(rank, *ranks, u32::MAX)),
                down: Place::new(rank, *ranks, BROADCAST_FAN_OUT),
                signatures: Signatures::default(),
                finished: Own::default(),
                cut: None,
            }),
        }
    }

    fn tick(
        &mut self,
        shared: &mut Shared,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let mut vote = shared.papers.take();
        if !self.cast(shared, now, &mut vote, actions) {
            return Ok(());
        }
        self.voted(shared, now, None, vote, actions)
    }

    /// A cycle begins: writes down what it votes. Does not if all stop.
    #[inline]
    fn cast(
        &mut self,
        shared: &Shared,
        now: Time,
        vote: &mut Vote,
        actions: &mut Vec<Action>,
    ) -> bool {
        self.started = now;
        let stall = half_stall(shared);
        if self.rank == 0 {
            let lists = &mut self.rare.lists;
            if let Some(reason) = lists.inspect(now, stall, &shared.settings, actions) {
                fleet::Machine::stop(self, None, &reason, actions);
                return false;
            }
        }
        let ledger = shared.ledgers.at(self.seen);
        vote.invalid.clear();
        let waits = self.waiting.begin(self.rank, ledger, now, stall, &mut vote.invalid);
        self.is_quiet = waits && !self.joins && !self.tells;
        self.waiting.ready(ledger, self.joined, &mut vote.ready);
        vote.uncached = self.joins || self.waiting.has_unsent() || !vote.invalid.is_empty();
        vote.shutdown = self.shuts_down;
        (vote.finished, vote.cut) = (None, None);
        if self.tells {
            let Rare { finished, cut, .. } = &mut *self.rare;
            finished.tell(ledger.over());
            let bits = finished.bits(ledger.over());
            vote.finished = (!bits.is_empty()).then(|| Box::new(bits));
            vote.cut = *cut;
        }
        self.phase = Turn::Votes;
        true
    }

    #[inline]
    fn voted(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: Option<u32>,
        vote: Box<Vote>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let Some(mut combined) = self.votes.add(from, vote, &mut shared.papers) else {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return Ok(());
        };
        if let Some(parent) = self.votes.place().parent() {
            self.phase = Turn::Verdict;
            self.guard.wait(now, actions);
            make_room(actions);
            actions.push(Action::Send { to: parent, payload: Payload::Vote(combined) });
            return Ok(());
        }
        let vote = std::mem::take(&mut *combined);
        shared.papers.keep(combined);
        self.decide(shared, now, vote, actions)
    }

    /// Rank 0 has all votes.
    fn decide(
        &mut self,
        shared: &mut Shared,
        now: Time,
        vote: Vote,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let Vote { mut ready, invalid, uncached, shutdown, finished, cut } = vote;
        ready.subtract(&invalid);
        let mut outcome = Consensus { ready, ..Consensus::default() };
        if let Some(finished) = finished {
            let first = shared.ledger(self.seen).over().next();
            outcome.finished = finished.iter().map(|after| first + after as u64).collect();
        }
        outcome.cut = cut.filter(|_| cut > shared.ledger(self.seen).cut());
        let verdict = Verdict { invalid, outcome, uncached, shutdown };
        self.verdict(shared, now, &Arc::new(verdict), actions)
    }

    /// What is wrong with a verdict, for one that has voted as this rank has.
    #[inline]
    fn check(&self, shared: &Shared, verdict: &Verdict) -> Result<(), Breach> {
        let Verdict { invalid, outcome, .. } = verdict;
        let slots = shared.ledger(self.seen).slots();
        let beyond = |bits: &Bits| bits.highest().filter(|slot| *slot >= slots);
        let unknown = if invalid.is_empty() { None } else { beyond(invalid) };
        let unready = match self.joined {
            true => beyond(&outcome.ready),
            false if self.waiting.has_voted(&outcome.ready) => None,
            false => outcome.ready.highest(),
        };
        if let Some(slot) = unknown.or(unready) {
            return Err(Breach::Slot { slot: slot as u64, slots: slots as u64 });
        }
        if let Some(number) = outcome.cut.filter(|_| outcome.cut <= shared.ledger(self.seen).cut())
        {
            return Err(Breach::Cut { number });
        }
        if let Some(one) = outcome.complete.first() {
            // Requests are answered by a decision.
            return Err(Breach::NotAsked { tensor: one.request.tensor, rank: self.rank });
        }
        Ok(())
    }

    #[inline]
    fn verdict(
        &mut self,
        shared: &mut Shared,
        now: Time,
        verdict: &Arc<Verdict>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let parent = self.votes.place().parent().unwrap_or(self.rank);
        self.check(shared, verdict).map_err(|breach| breach.by(parent))?;
        self.guard.heard();
        if verdict.shutdown {
            self.phase = Turn::Stopped;
            lists::forward(self.votes.place(), Payload::Verdict(verdict.clone()), actions);
            actions.push(Action::Stop(Arc::new(Reason::Asked)));
            return Ok(());
        }
        if self.tells {
            self.told(shared, &verdict.outcome).map_err(|breach| breach.by(parent))?;
        } else if let Some(operation) = verdict.outcome.finished.first() {
            return Err(Breach::Finished { operation: *operation }.by(parent));
        }
        let differs = |breach: Breach| breach.by(parent);
        if !verdict.invalid.is_empty() {
            let invalid = &verdict.invalid;
            self.waiting.free(self.rank, shared, &mut self.seen, invalid).map_err(differs)?;
        }
        if !verdict.uncached {
            self.is_quiet &= verdict.outcome.is_empty();
            let launch = self.waiting.launch(shared, &mut self.seen, &verdict.outcome);
            lists::forward(self.votes.place(), Payload::Verdict(verdict.clone()), actions);
            self.pause(shared, now, launch.map_err(differs)?, actions);
            return Ok(());
        }
        self.is_quiet = false;
        self.rare.outcome.clone_from(&verdict.outcome);
        self.phase = Turn::Gathering;
        lists::forward(self.votes.place(), Payload::Verdict(verdict.clone()), actions);
        let signature = |tensor| self.rare.signatures.of(tensor, shared);
        let mut unsent = std::mem::take(self.waiting.unsent());
        let own = lists::own(self.rank, &mut unsent, self.joins, signature);
        self.joined |= self.joins;
        self.joins = false;
        self.listed(shared, now, None, own, actions)
    }

    /// What it has told is agreed, or a part of it.
    #[cold]
    fn told(&mut self, shared: &Shared, outcome: &Consensus) -> Result<(), Breach> {
        let Rare { finished, cut, .. } = &mut *self.rare;
        finished.agree(&outcome.finished)?;
        *cut = cut.filter(|_| *cut > outcome.cut.max(shared.ledger(self.seen).cut()));
        self.tells = cut.is_some() || !finished.is_empty();
        self.is_quiet = false;
        Ok(())
    }

    fn listed(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: Option<u32>,
        asks: Asks,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        self.rare.lists.add(now, from, asks, shared, shared.ledger(self.seen).over())?;
        if !self.rare.lists.is_complete() {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return Ok(());
        }
        if let Some(parent) = self.rare.lists.place().parent() {
            self.phase = Turn::Answer;
            self.guard.wait(now, actions);
            let payload = Payload::Asks(self.rare.lists.take());
            actions.push(Action::Send { to: parent, payload });
            return Ok(());
        }
        let decision = Arc::new(self.rare.lists.decide(shared.ledger(self.seen).cut()));
        self.decided(shared, now, &decision, actions)
    }

    fn decided(
        &mut self,
        shared: &mut Shared,
        now: Time,
        decision: &Arc<Decision>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let parent = self.rare.down.parent().unwrap_or(self.rank);
        let by = |breach: Breach| breach.by(parent);
        let asked = (!self.joined).then_some(self.waiting.open());
        decision.check(self.rank, shared.ranks, shared.tensors, asked).map_err(by)?;
        lists::forward(&self.rare.down, Payload::Decision(decision.clone()), actions);
        self.guard.heard();
        let mut outcome = std::mem::take(&mut self.rare.outcome);
        outcome.complete.clone_from(&decision.complete);
        outcome.all_joined = decision.all_joined;
        self.joined &= !decision.all_joined;
        let launch = self.waiting.decide(self.rank, shared, &mut self.seen, &outcome);
        self.pause(shared, now, launch.map_err(by)?, actions);
        Ok(())
    }

    /// Launches, and waits for the next cycle.
    #[inline]
    fn pause(
        &mut self,
        shared: &Shared,
        now: Time,
        launch: Option<Arc<Launch>>,
        actions: &mut Vec<Action>,
    ) {
        if let Some(launch) = launch {
            make_room(actions);
            actions.push(Action::Ready(launch));
        }
        let at = self.next(shared, now);
        make_room(actions);
        actions.push(Action::SetTimer { id: CYCLE, at });
    }

    /// When its next cycle begins, now that one is over.
    #[inline]
    fn next(&mut self, shared: &Shared, now: Time) -> Time {
        self.phase = Turn::Pause;
        self.started.checked_add(shared.settings.cycle).unwrap_or(Time::MAX).max(now)
    }

    /// Whom it waits for.
    fn silent(&self) -> Vec<u32> {
        let parent = |place: &Place| place.parent().into_iter().collect();
        match self.phase {
            Turn::Votes => self.votes.silent(),
            Turn::Verdict => parent(self.votes.place()),
            Turn::Gathering => self.rare.lists.silent(),
            Turn::Answer => parent(&self.rare.down),
            Turn::Pause | Turn::Stopped => Vec::new(),
        }
    }

    /// A verdict has come.
    #[inline]
    fn hear_verdict(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        verdict: &Arc<Verdict>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let kind = Kind::Verdict;
        if self.votes.place().parent() != Some(from) {
            return Err(Breach::NotItsPart { kind }.by(from));
        }
        if self.phase != Turn::Verdict {
            return Err(Breach::OutOfTurn { kind }.by(from));
        }
        self.verdict(shared, now, verdict, actions)
    }

    /// A message of a peer.
    #[inline]
    fn hear(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let kind = payload.kind();
        let wrong = |breach: Breach| Err(breach.by(from));
        match payload {
            Payload::Vote(vote) => {
                // A child may be quicker, but not by more than a cycle.
                if self.phase == Turn::Verdict || !self.votes.awaits(from) {
                    let child = self.votes.place().is_child(from).is_some();
                    let late = Breach::OutOfTurn { kind };
                    return wrong(if child { late } else { Breach::NotItsPart { kind } });
                }
                let slots = shared.settings.cache as usize;
                let beyond = || vote.invalid.highest().filter(|slot| *slot >= slots);
                if !vote.invalid.is_empty()
                    && let Some(slot) = beyond()
                {
                    return wrong(Breach::Slot { slot: slot as u64, slots: slots as u64 });
                }
                self.voted(shared, now, Some(from), vote, actions)
            }
            Payload::Verdict(verdict) => self.hear_verdict(shared, now, from, &verdict, actions),
            Payload::Asks(asks) => {
                if self.phase != Turn::Gathering {
                    return wrong(Breach::OutOfTurn { kind });
                }
                if !asks.finished.is_empty() || asks.cut.is_some() || asks.shutdown {
                    // These are told by votes.
                    return wrong(Breach::NotItsPart { kind });
                }
                self.listed(shared, now, Some(from), *asks, actions)
            }
            Payload::Decision(decision) => {
                if self.rare.down.parent() != Some(from) {
                    return wrong(Breach::NotItsPart { kind });
                }
                if self.phase != Turn::Answer {
                    return wrong(Breach::OutOfTurn { kind });
                }
                self.decided(shared, now, &decision, actions)
            }
            Payload::Stop(reason) => {
                shared.check_rank(from).map_err(|breach| breach.by(from))?;
                fleet::Machine::stop(self, Some(from), &reason, actions);
                Ok(())
            }
            Payload::Probe(probe) => {
                shared.check_rank(probe.origin).map_err(|breach| breach.by(from))?;
                actions.push(lives(probe.origin));
                Ok(())
            }
            Payload::Missing(_) => {
                shared.check_rank(from).map_err(|breach| breach.by(from))?;
                self.guard.answered(from);
                Ok(())
            }
            Payload::Report(_)
            | Payload::Agreed(_)
            | Payload::Waits(_)
            | Payload::Idle(_)
            | Payload::Thaw(_) => wrong(Breach::NotItsPart { kind }),
        }
    }
}

impl fleet::Machine for Machine {
    const ACTS_ON_SUBMISSION: bool = false;

    fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    fn on(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if self.phase == Turn::Stopped {
            return Ok(());
        }
        let rank = self.rank;
        let own = |breach: Breach| breach.by(rank);
        match event {
            Event::Message { from, payload } => {
                return self.hear(shared, now, from, payload, actions);
            }
            Event::Start | Event::Timer { id: CYCLE } => return self.tick(shared, now, actions),
            Event::Submit(request) => return self.submit(shared, now, &[request], actions),
            Event::Register { tensor, signature } => {
                shared.check_tensor(tensor).map_err(own)?;
                self.rare.signatures.change(tensor, signature);
            }
            Event::Finished { operation } => {
                let over = shared.ledger(self.seen).over();
                self.rare.finished.finish(operation, over).map_err(own)?;
                self.tells = true;
            }
            Event::Cut { number } => {
                // Another rank's clock may have come to it before.
                if Some(number) > shared.ledger(self.seen).cut() {
                    self.rare.cut = self.rare.cut.max(Some(number));
                    self.tells = true;
                }
            }
            Event::Join => self.joins = !self.joined,
            Event::Shutdown => self.shuts_down = true,
            Event::Timer { id: WATCH } => {
                let silent = self.silent();
                if let Some(ranks) = self.guard.look(now, self.rank, || silent, actions) {
                    let reason = Arc::new(Reason::Silent { ranks, by: self.rank });
                    self.stop(None, &reason, actions);
                }
            }
            Event::Timer { .. } => {}
        }
        Ok(())
    }

    #[inline]
    fn hear_shared(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: &Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        match payload {
            Payload::Verdict(verdict) if self.phase != Turn::Stopped => {
                self.hear_verdict(shared, now, from, verdict, actions)
            }
            other => self.on(shared, now, Event::Message { from, payload: other.clone() }, actions),
        }
    }

    fn submit(
        &mut self,
        shared: &mut Shared,
        _: Time,
        requests: &[Request],
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if self.phase == Turn::Stopped {
            return Ok(());
        }
        let ledger = shared.ledger(self.seen);
        for request in requests {
            let checked = shared.check_tensor(request.tensor);
            checked
                .and_then(|()| shared.check_rank(request.root))
                .map_err(|breach| breach.by(self.rank))?;
            if !self.waiting.submit(self.rank, ledger, request) {
                actions.push(Action::Refused { tensor: request.tensor });
            }
        }
        Ok(())
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.phase = Turn::Stopped;
        let Rare { lists, down, .. } = &*self.rare;
        lists::stop(&[self.votes.place(), lists.place(), down], from, reason, actions);
    }

    fn repeats_until(&self, shared: &Shared) -> Option<Time> {
        let told = self.joins || self.shuts_down || self.tells;
        let repeats = self.phase == Turn::Pause && self.is_quiet && !told;
        let repeats = repeats && self.waiting.has_nothing_new();
        repeats.then(|| {
            let half = half_stall(shared);
            self.waiting.ages_at(half).min(self.rare.lists.inspects_at(half, &shared.settings))
        })
    }

    fn skip(&mut self, by: Time) {
        self.started = self.started.checked_add(by).unwrap_or(Time::MAX);
    }

    fn waves(all: &mut Together<Self>) -> Option<&mut dyn Waves> {
        Some(all)
    }
}
