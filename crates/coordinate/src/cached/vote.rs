//! A cycle's vote at one rank: what it votes, what the votes below make together, and what is done about
//! the verdict.

use std::sync::Arc;

use allrail_core::Time;

use super::{Machine, Rare, Turn, half_stall};
use crate::bits::Bits;
use crate::broken::{Breach, Broken};
use crate::fleet::{self, Shared};
use crate::ledger::Consensus;
use crate::lists;
use crate::messages::{Payload, Reason, Verdict, Vote};
use crate::{Action, make_room};

impl Machine {
    pub(super) fn tick(
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
    pub(super) fn cast(
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
    pub(super) fn voted(
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
    pub(super) fn decide(
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
    pub(super) fn check(&self, shared: &Shared, verdict: &Verdict) -> Result<(), Breach> {
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
    pub(super) fn verdict(
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
}
