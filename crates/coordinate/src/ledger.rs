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
//! A ledger is changed in place, and what is freed is used again: it is as large after a billion events as
//! after a thousand. (Many ranks of one process share theirs: `ledgers`.)

use std::collections::BTreeSet;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_core::Bytes;
use serde::{Deserialize, Serialize};

use super::bits::Bits;
use super::finishes::Over;
use super::requests::{Completed, Request, Trouble};

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
}

/// An event that all ranks agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consensus {
    /// Slots that no longer hold; taken out first.
    pub invalid: Bits,
    /// Slots that are ready everywhere.
    pub ready: Bits,
    /// Tensors without a slot that are ready everywhere.
    pub complete: Vec<Arc<Completed>>,
    /// Whether the last rank has run out of data.
    pub all_joined: bool,
    /// Operations that have finished on every rank, ascending.
    pub finished: Vec<u64>,
    /// A cut that all make here.
    pub cut: Option<u64>,
}

impl Consensus {
    /// Whether both are the same: as `==`, for the many ranks that ask it of outcomes without lists. (To
    /// compare nothing with nothing through the C library costs more than all the rest.)
    #[inline]
    pub(super) fn is(&self, other: &Self) -> bool {
        let Self { invalid, ready, complete, all_joined, finished, cut } = self;
        let lists = complete.len() + finished.len() == 0;
        let other_lists = other.complete.len() + other.finished.len() == 0;
        let flags = (*all_joined, *cut) == (other.all_joined, other.cut);
        let bits = *ready == other.ready && *invalid == other.invalid;
        let alike = lists || *complete == other.complete && *finished == other.finished;
        flags && bits && lists == other_lists && alike
    }

    /// Whether nothing comes of it, but that slots are free.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let says = self.all_joined || self.cut.is_some() || !self.finished.is_empty();
        self.ready.is_empty() && self.complete.is_empty() && !says
    }
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

/// What one outcome comes to: the same list, in the same order, on every rank. A rank that has joined
/// takes part with zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Operations that have finished on every rank, ascending.
    pub finished: Vec<u64>,
    /// A cut: the timers of all clocks up to this one are over.
    pub cut: Option<u64>,
    /// What is launched now, in order; what a response holds travels together.
    pub responses: Vec<Response>,
    /// Its tensors.
    pub tensors: Bits,
    /// Whether every rank had joined; they are all back in the job.
    pub all_joined: bool,
}

/// One of the events that every rank sees in one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// An operation has finished on every rank: its credit is free again.
    Finished(u64),
    /// Time is cut here.
    Cut(u64),
    /// These tensors are ready on every rank, and go together.
    Ready(&'a Response),
    /// Every rank had run out of data.
    AllJoined,
}

impl Launch {
    /// All of it in the order that holds everywhere: what is over frees its credit before time is cut, and
    /// both are known to whoever starts what is ready.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let finished = self.finished.iter().map(|operation| Step::Finished(*operation));
        let ready = self.responses.iter().map(Step::Ready);
        let joined = self.all_joined.then_some(Step::AllJoined);
        finished.chain(self.cut.map(Step::Cut)).chain(ready).chain(joined)
    }
}

/// The state that all ranks share.
#[derive(Clone, Debug)]
pub struct Ledger {
    rules: Arc<Rules>,
    slots: Vec<Option<Arc<Completed>>>,
    /// Slots of nobody.
    free: BTreeSet<usize>,
    /// When each slot was last launched, in counts of launches.
    used: Vec<u64>,
    /// Which event gave each slot to its tensor.
    given: Vec<u64>,
    clock: u64,
    slot_of: Vec<u32>,
    /// Agreed on, but its group is not complete; in order.
    held: Vec<Arc<Completed>>,
    over: Over,
    cut: Option<u64>,
    events: u64,
}

const NONE: u32 = u32::MAX;

impl Ledger {
    /// The first one.
    #[must_use]
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            slots: Vec::new(),
            free: BTreeSet::new(),
            used: Vec::new(),
            given: Vec::new(),
            clock: 0,
            slot_of: Vec::new(),
            held: Vec::new(),
            over: Over::default(),
            cut: None,
            events: 0,
        }
    }

    /// Becomes like another, in the memory that it has.
    pub(super) fn copy(&mut self, other: &Self) {
        self.rules.clone_from(&other.rules);
        self.slots.clone_from(&other.slots);
        self.free.clone_from(&other.free);
        self.used.clone_from(&other.used);
        self.given.clone_from(&other.given);
        self.clock = other.clock;
        self.slot_of.clone_from(&other.slot_of);
        self.held.clone_from(&other.held);
        self.over.clone_from(&other.over);
        self.cut = other.cut;
        self.events = other.events;
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many outcomes it has seen.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The operations that are over everywhere.
    #[must_use]
    pub fn over(&self) -> &Over {
        &self.over
    }

    /// The last cut.
    #[must_use]
    pub fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// The slot of a tensor.
    #[inline]
    #[must_use]
    pub fn slot(&self, tensor: u32) -> Option<usize> {
        self.slot_of.get(tensor as usize).filter(|slot| **slot != NONE).map(|slot| *slot as usize)
    }

    /// What is in a slot.
    #[inline]
    #[must_use]
    pub fn entry(&self, slot: usize) -> Option<&Arc<Completed>> {
        self.slots.get(slot)?.as_ref()
    }

    /// What is in a slot, if it has been since the event number `heard`: then a rank that knew no more
    /// meant this tensor by it.
    #[must_use]
    pub fn entry_since(&self, slot: usize, heard: u64) -> Option<&Arc<Completed>> {
        self.entry(slot).filter(|_| self.given[slot] <= heard)
    }

    /// The slot of a request of `rank`, if it is what the slot says.
    #[inline]
    #[must_use]
    pub fn hit(&self, rank: u32, request: &Request) -> Option<usize> {
        let slot = self.slot(request.tensor)?;
        (self.entry(slot)?.request_of(rank) == *request).then_some(slot)
    }

    /// Takes an outcome in, and says what is launched.
    pub fn apply(&mut self, outcome: &Consensus) -> Option<Launch> {
        self.events += 1;
        for slot in outcome.invalid.iter() {
            self.release_slot(slot);
        }
        for slot in outcome.ready.iter() {
            if let Some(entry) = self.slots.get(slot).cloned().flatten() {
                self.touch(slot);
                self.held.push(entry);
            }
        }
        for one in &outcome.complete {
            if one.trouble.is_none() {
                self.keep(one);
            }
            self.held.push(one.clone());
        }
        self.over.extend(&outcome.finished);
        self.cut = self.cut.max(outcome.cut);
        let responses = self.release();
        let says = outcome.all_joined || !outcome.finished.is_empty() || outcome.cut.is_some();
        if responses.is_empty() && !says {
            return None;
        }
        let tensors = responses.iter().flat_map(|one| &one.tensors).map(|t| *t as usize).collect();
        let Consensus { finished, cut, all_joined, .. } = outcome;
        let (finished, cut, all_joined) = (finished.clone(), *cut, *all_joined);
        Some(Launch { finished, cut, responses, tensors, all_joined })
    }

    fn release_slot(&mut self, slot: usize) {
        if let Some(entry) = self.slots.get_mut(slot).and_then(Option::take) {
            self.slot_of[entry.request.tensor as usize] = NONE;
            self.free.insert(slot);
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
            self.release_slot(slot);
        }
        if self.rules.capacity == 0 {
            return;
        }
        if self.slots.len() - self.free.len() >= self.rules.capacity {
            let oldest = (0..self.slots.len())
                .filter(|slot| self.slots[*slot].is_some())
                .min_by_key(|slot| self.used[*slot]);
            oldest.into_iter().for_each(|slot| self.release_slot(slot));
        }
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(None);
            self.used.push(0);
            self.given.push(0);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(one.clone());
        self.given[slot] = self.events;
        // There are no more slots than tensors, which are numbered in 32 bits.
        self.slot_of[tensor] = slot as u32;
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
        let Request { tensor, operation, bytes, root, .. } = one.request;
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

    fn rules(capacity: usize) -> Arc<Rules> {
        let threshold = Bytes::new(0);
        Arc::new(Rules { capacity, threshold, group_of: Vec::new(), group_sizes: Vec::new() })
    }

    fn complete(tensor: u32, bytes: u64) -> Consensus {
        let request = Request::all_reduce(tensor, Bytes::new(bytes));
        let one = Completed { request, sizes: Vec::new(), trouble: None };
        Consensus { complete: vec![Arc::new(one)], ..Consensus::default() }
    }

    /// Tensors that change in every step get their slots again.
    #[test]
    fn slots_are_used_again() {
        for capacity in [3, usize::MAX] {
            let mut ledger = Ledger::new(rules(capacity));
            for step in 0..1_000u64 {
                for tensor in 0..5u32 {
                    let invalid = ledger.slot(tensor).into_iter().collect();
                    let outcome = Consensus { invalid, ..complete(tensor, step) };
                    let launch = ledger.apply(&outcome).expect("it is ready");
                    assert_eq!(launch.responses[0].tensors, [tensor]);
                    let slot = ledger.slot(tensor).expect("it has been launched");
                    assert!(slot < capacity.min(5), "slot {slot}");
                    let (now, before) = (ledger.events(), ledger.events() - 1);
                    assert!(ledger.entry_since(slot, now).is_some());
                    assert!(ledger.entry_since(slot, before).is_none());
                }
            }
        }
    }

    #[test]
    fn what_is_over_comes_before_a_cut_and_both_before_what_is_ready() {
        let mut ledger = Ledger::new(rules(9));
        let outcome =
            Consensus { finished: vec![0, 2], cut: Some(7), all_joined: true, ..complete(4, 1) };
        let launch = ledger.apply(&outcome).expect("it is ready");
        let steps: Vec<Step<'_>> = launch.steps().collect();
        let ready = Step::Ready(&launch.responses[0]);
        let finished = [Step::Finished(0), Step::Finished(2)];
        assert_eq!(steps, [&finished[..], &[Step::Cut(7), ready, Step::AllJoined]].concat());
        assert_eq!((ledger.over().next(), ledger.cut()), (1, Some(7)));
        assert!(ledger.over().contains(2) && !ledger.over().contains(1));
    }
}
