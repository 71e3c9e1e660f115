//! What waits too long in `agreed`: complaints go up to rank 0, which asks down the tree who lacks it.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_core::Time;

use super::machine::Machine;
use super::search::Search;
use crate::bits::Bits;
use crate::fleet::{Machine as _, Shared};
use crate::messages::{Missing, Payload, Probe, Reason};
use crate::{Action, WATCH};

impl Machine {
    /// The tensors that it knows of and that are not agreed; by tensor.
    pub(super) fn waiting(&self, shared: &Shared) -> Bits {
        let ledger = shared.ledger(self.seen);
        let mut slots = self.own.clone();
        for (span, below) in self.place.below().zip(&*self.below) {
            // Of ranks that have joined all bits are set, and nobody waits.
            if !self.table.have_joined(span) {
                slots.unite(below);
            }
        }
        let entries = slots.iter().filter_map(|slot| ledger.entry(slot));
        let mut tensors: Bits = entries.map(|entry| entry.request.tensor as usize).collect();
        tensors.unite(&self.asked);
        tensors.unite(&self.table.tensors().map(|tensor| tensor as usize).collect());
        tensors
    }

    /// Whether it lacks a tensor itself, and which children's subtrees do.
    fn lacks(&self, shared: &Shared, tensor: u32) -> (bool, Vec<u32>) {
        if self.asked.contains(tensor as usize) {
            return (false, Vec::new());
        }
        let own = !self.joined && !self.open.contains(tensor as usize);
        let below = self.place.below().zip(&*self.below);
        let children = match shared.ledger(self.seen).slot(tensor) {
            Some(slot) => {
                below.filter(|(_, bits)| !bits.contains(slot)).map(|(span, _)| span.start).collect()
            }
            None => {
                let missing = self.table.missing(tensor);
                let lacking = below.filter(|(span, _)| missing.iter().any(|r| span.contains(r)));
                lacking.map(|(span, _)| span.start).collect()
            }
        };
        (own, children)
    }

    /// All of these that it or a child lacks: tensors of its own, and children.
    fn lacking(&self, shared: &Shared, tensors: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (mut own, mut children) = (Vec::new(), Vec::new());
        for tensor in tensors {
            let (lacks, below) = self.lacks(shared, *tensor);
            own.extend(lacks.then_some(*tensor));
            children.extend(below);
        }
        children.sort_unstable();
        children.dedup();
        (own, children)
    }

    /// Sees to it that its timer fires by `at`.
    fn watch(&mut self, at: Time, actions: &mut Vec<Action>) {
        if at < self.watch_at {
            self.watch_at = at;
            actions.push(Action::SetTimer { id: WATCH, at });
        }
    }

    pub(super) fn watch_soon(&mut self, shared: &Shared, now: Time, actions: &mut Vec<Action>) {
        if self.watch_at == Time::MAX {
            self.watch(after(now, shared.settings.stall), actions);
        }
    }

    /// Looks at what waits since it last looked.
    pub(super) fn look(&mut self, shared: &Shared, now: Time, actions: &mut Vec<Action>) {
        if now < self.watch_at {
            return;
        }
        self.watch_at = Time::MAX;
        if let Some(search) = &self.search {
            if now >= search.until {
                let silent = search.asked.iter().filter(|(_, answered)| !**answered);
                let ranks = silent.map(|(rank, _)| *rank).collect();
                let reason = Reason::Silent { ranks, by: self.rank };
                return self.stop(None, &Arc::new(reason), actions);
            }
            return self.watch(search.until, actions);
        }
        let waiting = self.waiting(shared);
        if waiting.is_empty() {
            return;
        }
        self.aged.intersect(&waiting);
        if self.aged.is_empty() {
            self.aged = waiting;
        } else {
            let tensors: Arc<[u32]> = self.aged.iter().map(|tensor| tensor as u32).collect();
            self.complain(shared, now, &tensors, actions);
        }
        self.watch_soon(shared, now, actions);
    }

    /// Tensors wait too long: rank 0 searches, others tell their parent.
    fn complain(
        &mut self,
        shared: &Shared,
        now: Time,
        tensors: &Arc<[u32]>,
        actions: &mut Vec<Action>,
    ) {
        let again = self.complained.is_none_or(|last| after(last, shared.settings.stall) <= now);
        if self.search.is_some() || !again {
            return;
        }
        self.complained = Some(now);
        let (mut missing, mut asked) = (Vec::new(), BTreeMap::new());
        if let Some(parent) = self.place.parent() {
            asked.insert(parent, false);
        } else {
            let (own, children) = self.lacking(shared, tensors);
            missing.extend(own.into_iter().map(|tensor| (tensor, self.rank)));
            asked.extend(children.into_iter().map(|child| (child, false)));
        }
        for to in asked.keys() {
            let probe = Probe { origin: self.rank, tensors: tensors.clone() };
            actions.push(Action::Send { to: *to, payload: Payload::Probe(Box::new(probe)) });
        }
        let until = after(now, shared.settings.patience);
        let search = Search { tensors: tensors.clone(), asked, missing, until };
        self.search = Some(Box::new(search));
        self.watch(until, actions);
        self.conclude(shared, now, actions);
    }

    /// Ends a search if all answers are here.
    pub(super) fn conclude(&mut self, shared: &Shared, now: Time, actions: &mut Vec<Action>) {
        let ended = |search: &mut Box<Search>| search.asked.values().all(|answered| *answered);
        let Some(search) = self.search.take_if(ended) else { return };
        let warned = std::mem::take(&mut self.warned);
        for tensor in &*search.tensors {
            let of = search.missing.iter().filter(|(other, _)| other == tensor);
            let mut missing: Vec<u32> = of.map(|(_, rank)| *rank).collect();
            missing.sort_unstable();
            if missing.is_empty() {
                continue;
            }
            let first = warned.iter().find(|(other, _)| other == tensor).map(|(_, time)| *time);
            self.warned.push((*tensor, first.unwrap_or(now)));
            let Some(first) = first else {
                actions.push(Action::Warn { tensor: *tensor, missing });
                continue;
            };
            let ends = shared.settings.stall_shutdown;
            if ends > Time::ZERO && after(now.saturating_sub(first), shared.settings.stall) >= ends
            {
                let reason = Reason::Stalled { tensor: *tensor, missing };
                return self.stop(None, &Arc::new(reason), actions);
            }
        }
    }

    /// Asked by its parent for rank 0, or told by a child.
    pub(super) fn probed(
        &mut self,
        shared: &Shared,
        now: Time,
        origin: u32,
        tensors: &Arc<[u32]>,
        actions: &mut Vec<Action>,
    ) {
        let complains = self.place.child(origin).is_some();
        let (own, passed) =
            if complains { (Vec::new(), Vec::new()) } else { self.lacking(shared, tensors) };
        for to in &passed {
            let probe = Probe { origin, tensors: tensors.clone() };
            actions.push(Action::Send { to: *to, payload: Payload::Probe(Box::new(probe)) });
        }
        let missing = Missing { tensors: own, passed };
        actions.push(Action::Send { to: origin, payload: Payload::Missing(Box::new(missing)) });
        if complains {
            self.complain(shared, now, tensors, actions);
        }
    }
}

fn after(time: Time, wait: Time) -> Time {
    time.checked_add(wait).unwrap_or(Time::MAX)
}
