//! Rank 0 decides: every cycle all requests go to it, and its answer comes back to all. The state
//! machine of `central` (the lists come straight from everyone) and `tree` (merged on the way).

use std::sync::Arc;

use allrail_core::Time;

use super::bits::Bits;
use super::broken::{Breach, Broken};
use super::finishes::Own;
use super::fleet::{self, Shared};
use super::guard::{Guard, lives};
use super::lists::{self, Lists};
use super::messages::{Decision, Payload, Reason};
use super::place::Place;
use super::requests::{Asks, Request};
use super::signatures::Signatures;
use super::{Action, CYCLE, Event, WATCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Until the next cycle.
    Pause,
    /// For lists from below.
    Gathering,
    /// For rank 0's answer.
    Answer,
    Stopped,
}

/// One rank.
pub(super) struct Machine {
    rank: u32,
    /// How many outcomes it has seen.
    seen: u64,
    lists: Lists,
    down: Place,
    phase: Turn,
    started: Time,
    guard: Guard,
    /// Submitted, not launched.
    open: Bits,
    unsent: Vec<Request>,
    signatures: Signatures,
    finished: Own,
    cut: Option<u64>,
    joins: bool,
    /// Whether it has told that it has no more data.
    joined: bool,
    shuts_down: bool,
    /// Whether the last cycle changed nothing.
    is_quiet: bool,
}

impl Machine {
    /// Lists travel up a tree of `gather` children a node, answers down one of `broadcast`.
    pub(super) fn new(shared: &Shared, rank: u32, gather: u32, broadcast: u32) -> Self {
        Self {
            rank,
            seen: 0,
            lists: Lists::new(Place::new(rank, shared.ranks, gather)),
            down: Place::new(rank, shared.ranks, broadcast),
            phase: Turn::Pause,
            started: Time::ZERO,
            guard: Guard::new(shared.settings.patience),
            open: Bits::default(),
            unsent: Vec::new(),
            signatures: Signatures::default(),
            finished: Own::default(),
            cut: None,
            joins: false,
            joined: false,
            shuts_down: false,
            is_quiet: false,
        }
    }

    fn has_news(&self, shared: &Shared) -> bool {
        let told = self.joins || self.shuts_down || self.cut.is_some();
        told || !self.unsent.is_empty() || self.finished.has_news(shared.ledger(self.seen).over())
    }

    fn tick(
        &mut self,
        shared: &mut Shared,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        self.started = now;
        self.is_quiet = !self.has_news(shared);
        let Shared { settings, .. } = shared;
        if let Some(reason) = self.lists.inspect(now, settings.stall, settings, actions) {
            fleet::Machine::stop(self, None, &reason, actions);
            return Ok(());
        }
        let signature = |tensor| self.signatures.of(tensor, shared);
        let mut own = lists::own(self.rank, &mut self.unsent, self.joins, signature);
        own.shutdown = self.shuts_down;
        own.finished = self.finished.tell(shared.ledger(self.seen).over());
        own.cut = self.cut;
        self.joined |= self.joins;
        self.joins = false;
        self.phase = Turn::Gathering;
        self.listed(shared, now, None, own, actions)
    }

    fn listed(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: Option<u32>,
        asks: Asks,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        self.shuts_down |= asks.shutdown;
        let changes = !asks.finished.is_empty() || asks.cut.is_some();
        self.is_quiet &= asks.entries.is_empty() && asks.joined.is_empty() && !changes;
        self.lists.add(now, from, asks, shared, shared.ledger(self.seen).over())?;
        if !self.lists.is_complete() {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return Ok(());
        }
        if let Some(parent) = self.lists.place().parent() {
            self.phase = Turn::Answer;
            self.guard.wait(now, actions);
            let payload = Payload::Asks(self.lists.take());
            actions.push(Action::Send { to: parent, payload });
            return Ok(());
        }
        let mut decision = self.lists.decide(shared.ledger(self.seen).cut());
        decision.stop = self.shuts_down.then(|| Arc::new(Reason::Asked));
        self.decided(shared, now, &Arc::new(decision), actions)
    }

    fn decided(
        &mut self,
        shared: &mut Shared,
        now: Time,
        decision: &Arc<Decision>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let parent = self.down.parent().unwrap_or(self.rank);
        let asked = (!self.joined).then_some(&self.open);
        let checked = decision.check(self.rank, shared.ranks, shared.tensors, asked);
        checked.map_err(|breach| breach.by(parent))?;
        self.finished.agree(&decision.finished).map_err(|breach| breach.by(parent))?;
        if let Some(number) =
            decision.cut.filter(|_| decision.cut <= shared.ledger(self.seen).cut())
        {
            return Err(Breach::Cut { number }.by(parent));
        }
        lists::forward(&self.down, Payload::Decision(decision.clone()), actions);
        self.guard.heard();
        self.lists.agree(&decision.finished);
        let changes = !decision.finished.is_empty() || decision.cut.is_some();
        if !decision.complete.is_empty() || decision.all_joined || changes {
            self.is_quiet = false;
            self.joined &= !decision.all_joined;
            self.cut = self.cut.filter(|_| self.cut > decision.cut);
            let launch = shared.ledgers.step(&mut self.seen, &decision.outcome());
            if let Some(launch) = launch.map_err(|breach| breach.by(parent))? {
                self.open.subtract(&launch.tensors);
                actions.push(Action::Ready(launch));
            }
        }
        if let Some(reason) = &decision.stop {
            self.phase = Turn::Stopped;
            actions.push(Action::Stop(reason.clone()));
            return Ok(());
        }
        self.phase = Turn::Pause;
        let cycle = shared.settings.cycle;
        let at = self.started.checked_add(cycle).unwrap_or(Time::MAX).max(now);
        actions.push(Action::SetTimer { id: CYCLE, at });
        Ok(())
    }

    fn take(
        &mut self,
        shared: &Shared,
        request: Request,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        shared.check_tensor(request.tensor)?;
        shared.check_rank(request.root)?;
        let tensor = request.tensor as usize;
        if self.open.contains(tensor) {
            actions.push(Action::Refused { tensor: request.tensor });
        } else {
            self.open.insert(tensor);
            self.unsent.push(request);
        }
        Ok(())
    }

    /// Whom it waits for.
    fn silent(&self) -> Vec<u32> {
        match self.down.parent().filter(|_| self.phase == Turn::Answer) {
            Some(parent) => vec![parent],
            None => self.lists.silent(),
        }
    }

    /// A message of a peer.
    fn hear(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let by = |breach: Breach| breach.by(from);
        shared.check_rank(from).map_err(by)?;
        let kind = payload.kind();
        match payload {
            Payload::Asks(asks) => {
                // A child may be quicker, but not by more than a cycle.
                let waits = matches!(self.phase, Turn::Pause | Turn::Gathering);
                if !waits {
                    return Err(by(Breach::OutOfTurn { kind }));
                }
                self.listed(shared, now, Some(from), *asks, actions)
            }
            Payload::Decision(decision) => {
                if self.down.parent() != Some(from) {
                    return Err(by(Breach::NotItsPart { kind }));
                }
                if self.phase != Turn::Answer {
                    return Err(by(Breach::OutOfTurn { kind }));
                }
                self.decided(shared, now, &decision, actions)
            }
            Payload::Stop(reason) => {
                fleet::Machine::stop(self, Some(from), &reason, actions);
                Ok(())
            }
            Payload::Probe(probe) => {
                shared.check_rank(probe.origin).map_err(by)?;
                actions.push(lives(probe.origin));
                Ok(())
            }
            Payload::Missing(_) => {
                self.guard.answered(from);
                Ok(())
            }
            Payload::Vote(_)
            | Payload::Verdict(_)
            | Payload::Report(_)
            | Payload::Agreed(_)
            | Payload::Waits(_)
            | Payload::Idle(_)
            | Payload::Thaw(_) => Err(by(Breach::NotItsPart { kind })),
        }
    }
}

impl fleet::Machine for Machine {
    const ACTS_ON_SUBMISSION: bool = false;

    fn rank(&self) -> u32 {
        self.rank
    }

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
            Event::Start | Event::Timer { id: CYCLE } => return self.tick(shared, now, actions),
            Event::Message { from, payload } => {
                return self.hear(shared, now, from, payload, actions);
            }
            Event::Submit(request) => self.take(shared, request, actions).map_err(own)?,
            Event::Register { tensor, signature } => {
                shared.check_tensor(tensor).map_err(own)?;
                self.signatures.change(tensor, signature);
            }
            Event::Finished { operation } => {
                let over = shared.ledger(self.seen).over();
                self.finished.finish(operation, over).map_err(own)?;
            }
            Event::Cut { number } => {
                // Another rank's clock may have come to it before.
                if Some(number) > shared.ledger(self.seen).cut() {
                    self.cut = self.cut.max(Some(number));
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

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.phase = Turn::Stopped;
        lists::stop(&[self.lists.place(), &self.down], from, reason, actions);
    }

    fn repeats_until(&self, shared: &Shared) -> Option<Time> {
        let repeats = self.phase == Turn::Pause && self.is_quiet && !self.has_news(shared);
        repeats.then(|| self.lists.inspects_at(shared.settings.stall, &shared.settings))
    }

    fn skip(&mut self, by: Time) {
        self.started = self.started.checked_add(by).unwrap_or(Time::MAX);
    }
}
