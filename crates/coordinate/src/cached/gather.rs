//! What has no slot: requests gathered as in `central`, rank 0's answer, and the launch that ends a cycle.

use std::sync::Arc;

use allrail_core::Time;

use super::{Machine, Turn};
use crate::broken::{Breach, Broken};
use crate::fleet::Shared;
use crate::ledger::Launch;
use crate::lists;
use crate::messages::{Decision, Payload};
use crate::requests::Asks;
use crate::{Action, CYCLE, make_room};

impl Machine {
    pub(super) fn listed(
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

    pub(super) fn decided(
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
    pub(super) fn pause(
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
    pub(super) fn next(&mut self, shared: &Shared, now: Time) -> Time {
        self.phase = Turn::Pause;
        self.started.checked_add(shared.settings.cycle).unwrap_or(Time::MAX).max(now)
    }
}
