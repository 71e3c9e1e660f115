//! What goes up the tree: reports of children taken in, and one's own; on rank 0, an event is made of them.

use std::sync::Arc;

use allrail_core::Time;

use super::machine::Machine;
use crate::bits::Bits;
use crate::broken::{Breach, Broken, Kind};
use crate::fleet::Shared;
use crate::messages::{Agreed, Decision, Payload, Reason, Report};
use crate::requests::Asked;
use crate::{Action, CYCLE};

impl Machine {
    /// Takes in what a child says.
    pub(super) fn report(
        &mut self,
        shared: &Shared,
        now: Time,
        from: u32,
        report: Report,
    ) -> Result<(), Breach> {
        let kind = Kind::Report;
        let child = self.place.is_child(from).ok_or(Breach::NotItsPart { kind })?;
        let ledger = shared.ledger(self.seen);
        // What is agreed comes to a child from here.
        if report.epoch > self.epoch || report.heard > self.seen {
            return Err(Breach::OutOfTurn { kind });
        }
        let slots = ledger.slots();
        let named = [Some(&report.ready), report.forget.as_deref()];
        let beyond = named.into_iter().flatten().filter_map(Bits::highest).max();
        if let Some(slot) = beyond.filter(|slot| *slot >= slots) {
            return Err(Breach::Slot { slot: slot as u64, slots: slots as u64 });
        }
        if let Some(asks) = &report.asks {
            asks.check(&self.place.span_of(child as u32), shared.ranks, shared.tensors)?;
            // Operations go on when all ranks have joined.
            let parties = self.place.children() as usize + 1;
            self.tally.add(child, parties, &asks.finished, ledger.over())?;
            if asks.cut.is_some() {
                let news = self.news.asks.get_or_insert_default();
                news.cut = news.cut.max(asks.cut);
            }
        }
        if report.epoch != self.epoch {
            return Ok(());
        }
        let holds = |slot: &usize| ledger.entry_since(*slot, report.heard).is_some();
        let ready: Bits = report.ready.iter().filter(holds).collect();
        self.below[child].unite(&ready);
        if let Some(forget) = report.forget {
            let forget: Bits = forget.iter().filter(holds).collect();
            if !forget.is_empty() {
                self.news.forget.get_or_insert_default().unite(&forget);
            }
        }
        if let Some(mut asks) = report.asks {
            self.shuts_down |= asks.shutdown;
            // What was counted goes up when it is whole; a list of nothing else goes up at once.
            let counted = !asks.finished.is_empty() || asks.cut.is_some();
            asks.finished.clear();
            asks.cut = None;
            if !counted || !asks.is_empty() {
                let news = self.news.asks.get_or_insert_default();
                news.joined.unite(&asks.joined);
                news.shutdown |= asks.shutdown;
            }
            self.table.add(now, *asks);
        }
        Ok(())
    }

    /// Says what is new, if there is anything, and it may speak.
    pub(super) fn speak(
        &mut self,
        shared: &mut Shared,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        while !self.is_stopped && self.gate.is_none_or(|gate| gate <= now) {
            let ledger = shared.ledger(self.seen);
            if self.finished.has_news(ledger.over()) {
                let told = self.finished.tell(ledger.over());
                let parties = self.place.children() as usize + 1;
                let counted = self.tally.add(parties - 1, parties, &told, ledger.over());
                counted.map_err(|breach| breach.by(self.rank))?;
            }
            let mut report = std::mem::take(&mut self.news);
            report.epoch = self.epoch;
            report.heard = self.seen;
            report.ready = if self.joined { Bits::below(ledger.slots()) } else { self.own.clone() };
            self.below.iter().for_each(|below| report.ready.intersect(below));
            report.ready.subtract(&self.said);
            if let Some(forget) = &report.forget {
                report.ready.subtract(forget);
            }
            let Some(parent) = self.place.parent() else {
                if !self.agree(shared, now, report, actions)? {
                    break;
                }
                continue;
            };
            let whole = self.table.take_whole();
            if !whole.is_empty() {
                self.asked.unite(&whole.iter().map(|one| one.request.tensor as usize).collect());
                report.asks.get_or_insert_default().entries = sorted(whole);
            }
            let finished = self.tally.take_whole();
            if !finished.is_empty() {
                report.asks.get_or_insert_default().finished = finished;
            }
            if report.ready.is_empty() && report.asks.is_none() && report.forget.is_none() {
                break;
            }
            self.said.unite(&report.ready);
            let payload = Payload::Report(Box::new(report));
            actions.push(Action::Send { to: parent, payload });
            self.shut_gate(shared, now, actions);
        }
        Ok(())
    }

    fn shut_gate(&mut self, shared: &Shared, now: Time, actions: &mut Vec<Action>) {
        let cycle = shared.settings.cycle;
        if cycle > Time::ZERO {
            let at = now.checked_add(cycle).unwrap_or(Time::MAX);
            self.gate = Some(at);
            actions.push(Action::SetTimer { id: CYCLE, at });
        }
    }

    /// On rank 0: makes an event of what is new. Whether there was anything.
    fn agree(
        &mut self,
        shared: &mut Shared,
        now: Time,
        report: Report,
        actions: &mut Vec<Action>,
    ) -> Result<bool, Broken> {
        let ledger = shared.ledger(self.seen);
        let mut forget = report.forget.map(|forget| *forget).unwrap_or_default();
        forget = forget.iter().filter(|slot| ledger.entry(*slot).is_some()).collect();
        let cut = report.asks.and_then(|asks| asks.cut);
        let all_joined = self.table.all_joined();
        let decision = Decision {
            complete: self.table.take_complete(),
            all_joined,
            stop: self.shuts_down.then(|| Arc::new(Reason::Asked)),
            finished: self.tally.take_whole(),
            cut: cut.filter(|_| cut > ledger.cut()),
        };
        let ready = if all_joined { Bits::default() } else { report.ready };
        let decides = decision != Decision::default();
        if ready.is_empty() && forget.is_empty() && !decides {
            return Ok(false);
        }
        let event = Agreed {
            ready,
            forget: (!forget.is_empty()).then_some(forget),
            decision: decides.then_some(decision),
        };
        self.shut_gate(shared, now, actions);
        self.take_in(shared, now, &Arc::new(event), actions)
            .map_err(|breach| breach.by(self.rank))?;
        Ok(true)
    }
}

fn sorted(mut asked: Vec<Asked>) -> Vec<Asked> {
    asked.sort_unstable_by_key(|one| one.request.tensor);
    asked
}
