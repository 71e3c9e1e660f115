//! Rank 0 decides: every cycle all requests go to it, and its answer comes back to all. The state
//! machine of `coordinator` (the lists come straight from everyone) and `tree` (merged on the way).

use std::sync::Arc;

use allrail_core::Time;

use super::bits::Bits;
use super::guard::{Guard, lives};
use super::ledger::{Ledger, Outcome};
use super::lists::{self, Lists};
use super::messages::{Decision, Payload, Reason, Request};
use super::place::Place;
use super::{Action, CYCLE, Coordinator, Event, Job, Settings, WATCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
    settings: Arc<Settings>,
    ledger: Arc<Ledger>,
    lists: Lists,
    down: Place,
    phase: Phase,
    started: Time,
    guard: Guard,
    /// Submitted, not launched.
    open: Bits,
    unsent: Vec<Request>,
    joins: bool,
    shuts_down: bool,
    /// Whether the last cycle changed nothing.
    is_quiet: bool,
}

impl Machine {
    /// Lists travel up a tree of `gather` children a node, answers down one of `broadcast`.
    pub(super) fn new(job: &Job, rank: u32, gather: u32, broadcast: u32) -> Self {
        Self {
            rank,
            settings: job.settings.clone(),
            ledger: job.ledger.clone(),
            lists: Lists::new(Place::new(rank, job.ranks, gather)),
            down: Place::new(rank, job.ranks, broadcast),
            phase: Phase::Pause,
            started: Time::ZERO,
            guard: Guard::new(job.settings.patience),
            open: Bits::default(),
            unsent: Vec::new(),
            joins: false,
            shuts_down: false,
            is_quiet: false,
        }
    }

    fn tick(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.started = now;
        self.is_quiet = self.unsent.is_empty() && !self.joins && !self.shuts_down;
        if let Some(reason) = self.lists.inspect(now, self.settings.stall, &self.settings, actions)
        {
            return self.stop(None, &reason, actions);
        }
        let own = lists::own(self.rank, &mut self.unsent, self.joins, self.shuts_down);
        self.joins = false;
        self.phase = Phase::Gathering;
        self.listed(now, None, own, actions);
    }

    fn listed(
        &mut self,
        now: Time,
        from: Option<u32>,
        asks: super::messages::Asks,
        actions: &mut Vec<Action>,
    ) {
        self.shuts_down |= asks.shutdown;
        self.is_quiet &= asks.entries.is_empty() && asks.joined.is_empty();
        self.lists.add(now, from, asks);
        if !self.lists.is_complete() {
            if from.is_none() {
                self.guard.wait(now, actions);
            }
            return;
        }
        if let Some(parent) = self.lists.place().parent() {
            self.phase = Phase::Answer;
            self.guard.wait(now, actions);
            let payload = Payload::Asks(self.lists.take());
            actions.push(Action::Send { to: parent, payload });
        } else {
            let mut decision = self.lists.decide();
            decision.stop = self.shuts_down.then(|| Arc::new(Reason::Asked));
            self.decided(now, &Arc::new(decision), actions);
        }
    }

    fn decided(&mut self, now: Time, decision: &Arc<Decision>, actions: &mut Vec<Action>) {
        lists::forward(&self.down, Payload::Decision(decision.clone()), actions);
        self.guard.heard();
        if !decision.complete.is_empty() || decision.all_joined {
            self.is_quiet = false;
            let outcome = Outcome {
                complete: decision.complete.clone(),
                all_joined: decision.all_joined,
                ..Outcome::default()
            };
            let (ledger, launch) = self.ledger.after(&outcome);
            self.ledger = ledger;
            if let Some(launch) = launch {
                self.open.subtract(&launch.tensors);
                actions.push(Action::Ready(launch));
            }
        }
        if let Some(reason) = &decision.stop {
            self.phase = Phase::Stopped;
            actions.push(Action::Stop(reason.clone()));
            return;
        }
        self.phase = Phase::Pause;
        let at = self.started.checked_add(self.settings.cycle).unwrap_or(Time::MAX).max(now);
        actions.push(Action::SetTimer { id: CYCLE, at });
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.phase = Phase::Stopped;
        lists::stop(&[self.lists.place(), &self.down], from, reason, actions);
    }
}

impl Coordinator for Machine {
    fn on(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        if self.phase == Phase::Stopped {
            return;
        }
        match event {
            Event::Start | Event::Timer { id: CYCLE } => self.tick(now, actions),
            Event::Submit(request) => {
                let tensor = request.tensor as usize;
                if self.open.contains(tensor) {
                    actions.push(Action::Refused { tensor: request.tensor });
                } else {
                    self.open.insert(tensor);
                    self.unsent.push(request);
                }
            }
            Event::Join => self.joins = true,
            Event::Shutdown => self.shuts_down = true,
            Event::Message { from, payload } => match payload {
                Payload::Asks(asks) => self.listed(now, Some(from), *asks, actions),
                Payload::Decision(decision) => self.decided(now, &decision, actions),
                Payload::Stop(reason) => self.stop(Some(from), &reason, actions),
                Payload::Probe(probe) => actions.push(lives(probe.origin)),
                Payload::Missing(_) => self.guard.answered(from),
                _ => {}
            },
            Event::Timer { id: WATCH } => {
                let (lists, down) = (&self.lists, &self.down);
                let silent = || match down.parent().filter(|_| self.phase == Phase::Answer) {
                    Some(parent) => vec![parent],
                    None => lists.silent(),
                };
                if let Some(ranks) = self.guard.look(now, self.rank, silent, actions) {
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
        let fresh = !self.unsent.is_empty() || self.joins || self.shuts_down;
        let repeats = self.phase == Phase::Pause && self.is_quiet && !fresh;
        repeats.then(|| self.lists.inspects_at(self.settings.stall, &self.settings))
    }

    fn skip(&mut self, by: Time) {
        self.started += by;
    }
}
