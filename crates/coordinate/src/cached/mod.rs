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
mod gather;
mod hear;
mod vote;
mod voters;
mod waiting;

use std::sync::Arc;

use allrail_core::Time;

use self::ballot::Ballot;
use self::waiting::Waiting;
use super::broken::{Breach, Broken};
use super::central::BROADCAST_FAN_OUT;
use super::finishes::Own;
use super::fleet::{self, Alone, Shared, Together};
use super::guard::Guard;
use super::ledger::Consensus;
use super::lists::{self, Lists};
use super::messages::{Payload, Reason};
use super::place::Place;
use super::requests::Request;
use super::signatures::Signatures;
use super::{
    Action, CYCLE, CoordinationPolicy, CoordinationSpec, Coordinator, Event, Fleet, Settings,
    WATCH, Waves,
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
