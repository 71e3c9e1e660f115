//! What peers send to one rank: whether it is theirs to send now, and who takes it.

use std::sync::Arc;

use allrail_core::Time;

use super::{Machine, Turn};
use crate::Action;
use crate::broken::{Breach, Broken, Kind};
use crate::fleet::{self, Shared};
use crate::guard::lives;
use crate::messages::{Payload, Verdict};

impl Machine {
    /// A verdict has come.
    #[inline]
    pub(super) fn hear_verdict(
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
    pub(super) fn hear(
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
