//! The ranks of a process in cycles that are waves: as by messages, but for what nobody has to check.

use std::sync::Arc;

use allrail_core::Time;

use super::{Machine, Turn};
use crate::broken::Broken;
use crate::fleet::{self, Together};
use crate::messages::{Verdict, Vote};
use crate::{Action, Ended, Place, Waves};

impl Waves for Together<Machine> {
    fn place(&self, rank: u32) -> Place {
        *self.machines[rank as usize].votes.place()
    }

    #[inline]
    fn vote(&mut self, rank: u32, now: Time, vote: &mut Vote, actions: &mut Vec<Action>) {
        let machine = &mut self.machines[rank as usize];
        debug_assert_eq!(machine.phase, Turn::Pause, "rank {rank} is between cycles");
        if machine.cast(&self.shared, now, vote, actions) {
            let is_leaf = machine.votes.is_leaf();
            if is_leaf && rank > 0 {
                machine.phase = Turn::Verdict;
            }
            if !is_leaf || rank > 0 {
                machine.guard.wait(now, actions);
            }
        }
    }

    #[inline]
    fn pass_on(&mut self, rank: u32, now: Time, actions: &mut Vec<Action>) {
        let machine = &mut self.machines[rank as usize];
        machine.phase = Turn::Verdict;
        machine.guard.wait(now, actions);
    }

    fn decide(&mut self, now: Time, vote: Vote, actions: &mut Vec<Action>) -> Result<(), Broken> {
        let root = &mut self.machines[0];
        if root.phase == Turn::Stopped {
            return Ok(());
        }
        let decided = root.decide(&mut self.shared, now, vote, actions);
        decided.map_err(|one| fleet::broken(root, one, actions))
    }

    #[inline]
    fn end(&mut self, rank: u32, now: Time, verdict: &Arc<Verdict>) -> Option<Ended> {
        let machine = &mut self.machines[rank as usize];
        let Verdict { invalid, outcome, uncached, shutdown } = &**verdict;
        let more = *uncached || *shutdown || !invalid.is_empty() || !outcome.finished.is_empty();
        if more || machine.tells || machine.phase != Turn::Verdict {
            return None;
        }
        debug_assert_eq!(machine.check(&self.shared, verdict), Ok(()));
        let launches = machine.waiting.follow(&mut self.shared, &mut machine.seen, outcome)?;
        machine.guard.heard();
        machine.is_quiet &= outcome.is_empty();
        Some(Ended { next: machine.next(&self.shared, now), launches })
    }
}
