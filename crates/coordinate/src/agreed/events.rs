//! What comes down the tree: events that all ranks agree on.

use std::sync::Arc;

use allrail_core::Time;

use super::machine::Machine;
use crate::Action;
use crate::bits::Bits;
use crate::broken::Breach;
use crate::fleet::Shared;
use crate::ledger::Consensus;
use crate::lists;
use crate::messages::{Agreed, Decision, Payload};

impl Machine {
    /// What is wrong with an event, for one that has told what this rank has.
    fn check(&self, shared: &Shared, event: &Agreed) -> Result<(), Breach> {
        let slots = shared.ledger(self.seen).slots();
        let unknown = event.forget.as_ref().and_then(Bits::highest);
        let mut wrong = unknown.filter(|slot| *slot >= slots);
        let highest = event.ready.highest();
        if self.joined {
            wrong = wrong.or(highest.filter(|slot| *slot >= slots));
        } else if !event.ready.is_within(&self.own) {
            wrong = wrong.or(highest);
        }
        if let Some(slot) = wrong {
            return Err(Breach::Slot { slot: slot as u64, slots: slots as u64 });
        }
        let Some(decision) = &event.decision else { return Ok(()) };
        if let Some(number) =
            decision.cut.filter(|_| decision.cut <= shared.ledger(self.seen).cut())
        {
            return Err(Breach::Cut { number });
        }
        let asked = (!self.joined).then_some(&self.open);
        decision.check(self.rank, shared.ranks, shared.tensors, asked)
    }

    /// Takes an event in that all ranks agree on.
    pub(super) fn take_in(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: &Arc<Agreed>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        self.check(shared, event)?;
        lists::forward(&self.place, Payload::Agreed(event.clone()), actions);
        let mut again = Vec::new();
        if let Some(forget) = &event.forget {
            let ledger = shared.ledger(self.seen);
            for slot in forget.iter().filter(|slot| self.own.contains(*slot)) {
                again.extend(ledger.entry(slot).map(|entry| entry.request_of(self.rank)));
            }
            self.clear(forget);
        }
        self.clear(&event.ready);
        let decision = event.decision.as_ref();
        let outcome = Consensus {
            invalid: event.forget.clone().unwrap_or_default(),
            ready: event.ready.clone(),
            ..decision.map(Decision::outcome).unwrap_or_default()
        };
        if let Some(decision) = decision {
            self.finished.agree(&decision.finished)?;
            self.tally.agree(&decision.finished);
            for one in &decision.complete {
                self.asked.remove(one.request.tensor as usize);
            }
            if decision.all_joined {
                self.joined = false;
                self.epoch += 1;
                self.table.rejoin();
                self.said = Bits::default();
                self.below.fill(Bits::default());
            }
        }
        if let Some(launch) = shared.ledgers.step(&mut self.seen, &outcome)? {
            self.open.subtract(&launch.tensors);
            self.aged.subtract(&launch.tensors);
            actions.push(Action::Ready(launch));
        }
        // Whatever was said of these slots before was of other tensors.
        let ledger = shared.ledger(self.seen);
        let given = outcome.complete.iter().filter_map(|one| ledger.slot(one.request.tensor));
        self.clear(&given.collect());
        if let Some(reason) = decision.and_then(|decision| decision.stop.clone()) {
            self.is_stopped = true;
            actions.push(Action::Stop(reason));
            return Ok(());
        }
        again.into_iter().for_each(|request| self.note(shared, now, request));
        Ok(())
    }
}
