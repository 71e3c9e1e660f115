//! The ledger: what every rank knows alike. From its state and the next outcome alone follow what is
//! launched, in which order, fused how, and which entry of the response cache goes: so ranks that
//! agree on outcomes never need to agree on decisions.
//!
//! - A tensor that was launched has a *slot*; from then on its slot's bit says everything about it.
//!   At capacity the entry that was launched longest ago gives its slot up.
//! - A tensor of a group is *held* until the whole group has been agreed on.
//! - What is launched at once is fused: all-reduces in order, up to the threshold; a group is never
//!   split, a tensor above the threshold goes alone.
//!
//! Ledgers are values: an outcome makes a new one, and the old one remembers it. Where many ranks live
//! in one process, all that are at the same point share one ledger, and only the first to take a step
//! computes it; a rank whose outcome differs computes its own.

use std::sync::{Arc, OnceLock};

use allrail_collective::Operation;
use allrail_core::Bytes;

use super::bits::Bits;
use super::messages::{Completed, Request, Trouble};

/// What the ledgers of a job have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How many tensors have a slot at most.
    pub capacity: usize,
    /// How much is fused at most.
    pub threshold: Bytes,
    /// The group of every tensor that is in one; `group_of[tensor]`, `None` beyond its end.
    pub group_of: Vec<Option<u32>>,
    /// How many tensors a group has.
    pub group_sizes: Vec<u32>,
    /// Whether slots are given again. `agreed` does not: a late bit must not mean another tensor.
    pub reuse: bool,
}

/// An event that all ranks agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Slots that no longer hold; taken out first.
    pub invalid: Bits,
    /// Slots that are ready everywhere.
    pub ready: Bits,
    /// Tensors without a slot that are ready everywhere.
    pub complete: Vec<Arc<Completed>>,
    /// Whether the last rank has run out of data.
    pub all_joined: bool,
}

/// One collective to be launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// What it does.
    pub operation: Operation,
    /// The tensors, in the order of the buffer.
    pub tensors: Vec<u32>,
    /// All of them.
    pub bytes: Bytes,
    /// Of an all-gather: each rank's bytes.
    pub sizes: Vec<Bytes>,
    /// Of a broadcast: whose buffer.
    pub root: u32,
    /// Why it is not launched, but reported to all who asked.
    pub trouble: Option<Trouble>,
}

/// What is launched at once: the same list, in the same order, on every rank. A rank that has joined
/// takes part with zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// In order.
    pub responses: Vec<Response>,
    /// Their tensors.
    pub tensors: Bits,
    /// Whether every rank had joined; they are all back in the job.
    pub all_joined: bool,
}

/// The state that all ranks share.
#[derive(Debug)]
pub struct Ledger {
    rules: Arc<Rules>,
    slots: Vec<Option<Arc<Completed>>>,
    /// When each slot was last launched, in counts of launches.
    used: Vec<u64>,
    clock: u64,
    slot_of: Vec<u32>,
    /// Agreed on, but its group is not complete; in order.
    held: Vec<Arc<Completed>>,
    next: OnceLock<(Outcome, Arc<Ledger>, Option<Arc<Launch>>)>,
}

const NONE: u32 = u32::MAX;

impl Ledger {
    /// The first one.
    #[must_use]
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            slots: Vec::new(),
            used: Vec::new(),
            clock: 0,
            slot_of: Vec::new(),
            held: Vec::new(),
            next: OnceLock::new(),
        }
    }

    /// The first one of another run of the same job.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self::new(self.rules.clone())
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a tensor.
    #[must_use]
    pub fn slot(&self, tensor: u32) -> Option<usize> {
        self.slot_of.get(tensor as usize).filter(|slot| **slot != NONE).map(|slot| *slot as usize)
    }

    /// What is in a slot.
    #[must_use]
    pub fn entry(&self, slot: usize) -> Option<&Arc<Completed>> {
        self.slots.get(slot)?.as_ref()
    }

    /// The slot of a request of `rank`, if it is what the slot says.
    #[must_use]
    pub fn hit(&self, rank: u32, request: &Request) -> Option<usize> {
        let slot = self.slot(request.tensor)?;
        (self.entry(slot)?.request_of(rank) == *request).then_some(slot)
    }

    /// The ledger after an outcome, and what is launched.
    #[must_use]
    pub fn after(self: &Arc<Self>, outcome: &Outcome) -> (Arc<Self>, Option<Arc<Launch>>) {
        let (known, ledger, launch) = self.next.get_or_init(|| {
            let (ledger, launch) = self.step(outcome);
            (outcome.clone(), Arc::new(ledger), launch.map(Arc::new))
        });
        if known == outcome {
            return (ledger.clone(), launch.clone());
        }
        let (ledger, launch) = self.step(outcome);
        (Arc::new(ledger), launch.map(Arc::new))
    }

    fn step(&self, outcome: &Outcome) -> (Self, Option<Launch>) {
        let mut next = Self {
            rules: self.rules.clone(),
            slots: self.slots.clone(),
            used: self.used.clone(),
            clock: self.clock,
            slot_of: self.slot_of.clone(),
            held: self.held.clone(),
            next: OnceLock::new(),
        };
        for slot in outcome.invalid.iter() {
            next.free(slot);
        }
        for slot in outcome.ready.iter() {
            if let Some(entry) = next.slots.get(slot).cloned().flatten() {
                next.touch(slot);
                next.held.push(entry);
            }
        }
        for one in &outcome.complete {
            if one.trouble.is_none() {
                next.keep(one);
            }
            next.held.push(one.clone());
        }
        let responses = next.release();
        let launches = !responses.is_empty() || outcome.all_joined;
        let tensors = responses.iter().flat_map(|one| &one.tensors).map(|t| *t as usize).collect();
        let launch = Launch { responses, tensors, all_joined: outcome.all_joined };
        (next, launches.then_some(launch))
    }

    fn free(&mut self, slot: usize) {
        if let Some(entry) = self.slots.get_mut(slot).and_then(Option::take) {
            self.slot_of[entry.request.tensor as usize] = NONE;
        }
    }

    fn touch(&mut self, slot: usize) {
        self.used[slot] = self.clock;
        self.clock += 1;
    }

    /// Gives a tensor a slot.
    fn keep(&mut self, one: &Arc<Completed>) {
        let tensor = one.request.tensor as usize;
        if self.slot_of.len() <= tensor {
            self.slot_of.resize(tensor + 1, NONE);
        }
        if let Some(slot) = self.slot(one.request.tensor) {
            self.free(slot);
        }
        let taken = self.slots.iter().flatten().count();
        if self.rules.capacity == 0 {
            return;
        }
        if taken >= self.rules.capacity {
            let oldest = (0..self.slots.len())
                .filter(|slot| self.slots[*slot].is_some())
                .min_by_key(|slot| self.used[*slot]);
            oldest.into_iter().for_each(|slot| self.free(slot));
        }
        let free = self.slots.iter().position(Option::is_none).filter(|_| self.rules.reuse);
        let slot = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.used.push(0);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(one.clone());
        self.slot_of[tensor] = u32::try_from(slot).expect("tensors are numbered in 32 bits");
        self.touch(slot);
    }

    fn group(&self, tensor: u32) -> Option<u32> {
        self.rules.group_of.get(tensor as usize).copied().flatten()
    }

    /// Takes what can be launched out of `held`, fused.
    fn release(&mut self) -> Vec<Response> {
        let mut waiting = vec![0u32; self.rules.group_sizes.len()];
        for one in &self.held {
            if let Some(group) = self.group(one.request.tensor) {
                waiting[group as usize] += 1;
            }
        }
        let whole = |group: u32| waiting[group as usize] >= self.rules.group_sizes[group as usize];
        let group_of = |one: &Arc<Completed>| self.group(one.request.tensor);
        let (launched, held): (Vec<_>, Vec<_>) =
            self.held.iter().cloned().partition(|one| group_of(one).is_none_or(whole));
        // A group goes where its first tensor stands.
        let mut units: Vec<Vec<Arc<Completed>>> = Vec::new();
        let mut unit_of: Vec<Option<usize>> = vec![None; waiting.len()];
        for one in launched {
            let known = group_of(&one).and_then(|group| unit_of[group as usize]);
            if let Some(unit) = known {
                units[unit].push(one);
                continue;
            }
            if let Some(group) = group_of(&one) {
                unit_of[group as usize] = Some(units.len());
            }
            units.push(vec![one]);
        }
        self.held = held;
        let mut responses: Vec<Response> = Vec::new();
        for unit in units {
            fuse(&mut responses, &unit, self.rules.threshold);
        }
        responses
    }
}

impl Drop for Ledger {
    /// One after the other: dropped one in the other, the ledgers of a long run exceed the stack.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some((_, ledger, _)) = next {
            next = Arc::into_inner(ledger).and_then(|mut ledger| ledger.next.take());
        }
    }
}

/// Appends a unit to the last response if it fits, else begins another.
fn fuse(responses: &mut Vec<Response>, unit: &[Arc<Completed>], threshold: Bytes) {
    let reduces =
        |one: &Completed| one.request.operation == Operation::AllReduce && one.trouble.is_none();
    let total = unit.iter().filter(|one| reduces(one)).map(|one| one.request.bytes.count()).sum();
    let mut fits = responses.last().is_some_and(|last: &Response| {
        last.operation == Operation::AllReduce
            && last.trouble.is_none()
            && last.bytes.count().saturating_add(total) <= threshold.count()
    });
    for one in unit {
        let Request { tensor, operation, bytes, root } = one.request;
        match responses.last_mut().filter(|_| fits && reduces(one)) {
            Some(last) => {
                last.tensors.push(tensor);
                last.bytes = Bytes::new(last.bytes.count().saturating_add(bytes.count()));
            }
            None => responses.push(Response {
                operation,
                tensors: vec![tensor],
                bytes,
                sizes: one.sizes.clone(),
                root,
                trouble: one.trouble.clone(),
            }),
        }
        fits = reduces(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first ledger keeps all that follow.
    #[test]
    fn a_long_run_fits_the_stack() {
        let rules = Rules {
            capacity: 1,
            threshold: Bytes::new(0),
            group_of: Vec::new(),
            group_sizes: Vec::new(),
            reuse: true,
        };
        let first = Arc::new(Ledger::new(Arc::new(rules)));
        let mut last = first.clone();
        for _ in 0..100_000 {
            last = last.after(&Outcome { all_joined: true, ..Outcome::default() }).0;
        }
        let kept = Arc::downgrade(&last);
        drop(last);
        assert!(kept.upgrade().is_some());
        drop(first);
        assert!(kept.upgrade().is_none());
    }
}
