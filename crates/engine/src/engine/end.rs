//! How a job ends: for one reason, which every rank that is left gives in the same words.
//!
//! Whoever meets a fault tells the ranks whose places are 1, 2, 4, … after and before its own, and so does
//! everyone who hears of it for the first time. So a stop needs no coordinator and no tree whose inner nodes
//! may be the dead; it reaches all in log₂ of the ranks at most, and as each rank has up to 2 log₂ `N` ways to
//! hear of it, all but as many may be lost on the way. A stop that a coordinator has agreed upon is at one
//! place of the list that all ranks see, and is not told again.

use std::sync::Arc;

use allrail_coordinate::cause::{About, Cause};
use allrail_coordinate::{Payload, Reason};
use allrail_schedule::OperationName;

use super::event::{Action, Stopped};
use super::running::Running;
use crate::Broken;
use crate::signature_hash::Differs;

/// The places 1, 2, 4, … after and before one of `ranks`, each once.
fn neighbours(rank: u32, ranks: u32) -> impl Iterator<Item = u32> {
    let steps = (0..32).map(|power| 1u32 << power).take_while(move |step| *step < ranks);
    steps.flat_map(move |step| {
        let back = ranks - step;
        let back = (!back.is_power_of_two()).then_some(back);
        let at = move |step: u32| ((u64::from(rank) + u64::from(step)) % u64::from(ranks)) as u32;
        std::iter::once(step).chain(back).map(at)
    })
}

impl Running {
    /// Something has broken on this rank, or a peer has broken it.
    pub(super) fn fail(&mut self, error: Broken, out: &mut Vec<Action>) {
        let cause = match error {
            Broken::Fault(cause) => cause,
            other => Cause::Rank { by: self.rank, what: other.to_string() },
        };
        self.end(&Arc::new(Reason::Fault(cause.bounded())), true, out);
    }

    /// What a peer has under a name is something else here.
    pub(super) fn fail_with(
        &mut self,
        from: u32,
        operation: OperationName,
        differs: Differs,
        out: &mut Vec<Action>,
    ) {
        let (by, about) = (self.rank, self.about(operation));
        let what = differs.told(from, by, self.ranks);
        self.fail(Cause::Differs { from, by, about, what }.into(), out);
    }

    /// The end, once. Whether this rank tells its neighbours: not of what all see in one list.
    pub(super) fn end(&mut self, reason: &Arc<Reason>, tells: bool, out: &mut Vec<Action>) {
        if self.stopped {
            return;
        }
        self.stopped = true;
        self.timers.clear();
        let lost = match **reason {
            Reason::Fault(Cause::Lost { rank }) => Some(rank),
            _ => None,
        };
        if tells {
            let told = neighbours(self.rank, self.ranks).filter(|to| Some(*to) != lost);
            out.extend(told.map(|to| Action::Send { to, payload: Payload::Stop(reason.clone()) }));
        }
        let (error, tensors) = (self.because(reason), self.tensors.report());
        let calls = self.calls.report();
        out.push(Action::Stop(Box::new(Stopped { error, tensors, calls })));
    }

    /// What an error is about: an operation by its name, and its tensor.
    pub(super) fn about(&self, operation: OperationName) -> About {
        let tensor = self.tensors.of_key(operation.key).ok().map(|tensor| tensor.name.as_str());
        let call = || self.named.as_ref()?.name(operation.key);
        let tensor = tensor.or_else(call).map(str::to_owned);
        About { operation, tensor }
    }

    /// Why all ranks stop, as an error.
    fn because(&self, reason: &Reason) -> Broken {
        match reason {
            Reason::Fault(cause) => Broken::Fault(cause.clone()),
            Reason::Broken { broken, .. } => Broken::Coordination(broken.clone()),
            Reason::Asked => Broken::Asked,
            Reason::Silent { ranks, by } => Broken::Silent { ranks: ranks.clone(), by: *by },
            Reason::Stalled { tensor, missing } => {
                let name = self.tensors.all.get(*tensor as usize).map_or("?", |one| &one.name);
                Broken::Stalled { name: name.to_owned(), missing: missing.clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Whom a word reaches that begins at `from`, where these are lost.
    fn reached(from: u32, ranks: u32, lost: &BTreeSet<u32>) -> usize {
        let (mut known, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(rank) = next.pop() {
            let told = neighbours(rank, ranks).filter(|to| !lost.contains(to));
            next.extend(told.filter(|to| known.insert(*to)));
        }
        known.len()
    }

    #[test]
    fn everyone_left_hears_of_it_whoever_is_lost() {
        for ranks in 1..40 {
            let told: Vec<u32> = neighbours(3 % ranks, ranks).collect();
            let once: BTreeSet<u32> = told.iter().copied().collect();
            assert_eq!(once.len(), told.len(), "{ranks} ranks: {told:?}");
            assert!(once.iter().all(|to| *to < ranks && *to != 3 % ranks));
            for (one, other) in (0..ranks).flat_map(|one| (0..ranks).map(move |o| (one, o))) {
                let lost = BTreeSet::from([one, other]);
                let Some(from) = (0..ranks).find(|rank| !lost.contains(rank)) else { continue };
                assert_eq!(reached(from, ranks, &lost), ranks as usize - lost.len());
            }
        }
    }
}
