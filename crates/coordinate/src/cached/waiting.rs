//! What a rank has submitted and what has not been launched, against the ledger that says which of it
//! has a slot in the cache.

use std::sync::Arc;

use allrail_core::Time;

use crate::bits::Bits;
use crate::broken::Breach;
use crate::fleet::Shared;
use crate::ledger::{Consensus, Launch, Ledger};
use crate::requests::{Completed, Request};

/// What stood in slots.
type Entries = Vec<(usize, Arc<Completed>)>;

/// Of one rank.
#[derive(Default)]
pub(super) struct Waiting {
    /// Submitted, not launched; by tensor.
    open: Bits,
    /// Submitted since the last cycle, with a slot.
    fresh_hits: Bits,
    /// The slots of what is submitted and not launched.
    hits: Bits,
    /// Slots that have waited since `aged_since`.
    aged: Bits,
    aged_since: Time,
    /// What has no slot.
    uncached: Option<Box<Uncached>>,
}

/// Requests that rank 0 is to hear of.
#[derive(Default)]
struct Uncached {
    /// Submitted since the last cycle.
    fresh: Vec<Request>,
    /// Not yet sent to rank 0.
    unsent: Vec<Request>,
}

impl Waiting {
    /// What is submitted and not launched, by tensor.
    pub(super) fn open(&self) -> &Bits {
        &self.open
    }

    /// Whether it has voted for all of these.
    #[inline]
    pub(super) fn has_voted(&self, slots: &Bits) -> bool {
        slots.is_within(&self.hits)
    }

    /// The rank has a tensor ready. Not taken in if it waits already.
    #[inline]
    pub(super) fn submit(&mut self, rank: u32, ledger: &Ledger, request: &Request) -> bool {
        let tensor = request.tensor as usize;
        if self.open.contains(tensor) {
            return false;
        }
        self.open.insert(tensor);
        match ledger.hit(rank, request) {
            Some(slot) => self.fresh_hits.insert(slot),
            None => self.uncached.get_or_insert_default().fresh.push(*request),
        }
        true
    }

    /// Whether nothing was submitted since the last cycle, or is to be sent to rank 0.
    #[inline]
    pub(super) fn has_nothing_new(&self) -> bool {
        let none = |one: &Uncached| one.fresh.is_empty() && one.unsent.is_empty();
        self.fresh_hits.is_empty() && self.uncached.as_deref().is_none_or(none)
    }

    /// Whether something is to be sent to rank 0.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        self.uncached.as_ref().is_some_and(|one| !one.unsent.is_empty())
    }

    /// What is to be sent to rank 0.
    pub(super) fn unsent(&mut self) -> &mut Vec<Request> {
        &mut self.uncached.get_or_insert_default().unsent
    }

    /// A cycle begins. Adds slots that no longer hold, or have waited for `patience`, to `invalid`; says
    /// whether the cycle can be as the last one was.
    #[inline]
    pub(super) fn begin(
        &mut self,
        rank: u32,
        ledger: &Ledger,
        now: Time,
        patience: Time,
        invalid: &mut Bits,
    ) -> bool {
        let nothing_new = self.has_nothing_new();
        self.hits.unite(&self.fresh_hits);
        self.fresh_hits.clear();
        if let Some(uncached) = &mut self.uncached {
            uncached.look_up(rank, ledger, &mut self.hits, invalid);
            if uncached.unsent.is_empty() {
                self.uncached = None;
            }
        }
        let ages = self.aged.is_empty();
        if !ages {
            if now.saturating_sub(self.aged_since) >= patience {
                invalid.unite(&self.aged);
                self.aged.clear();
            }
        } else if !self.hits.is_empty() {
            self.aged.clone_from(&self.hits);
            self.aged_since = now;
            return false;
        }
        nothing_new
    }

    /// When the oldest of it will have waited for `patience`.
    pub(super) fn ages_at(&self, patience: Time) -> Time {
        if self.aged.is_empty() {
            return Time::MAX;
        }
        self.aged_since.checked_add(patience).unwrap_or(Time::MAX)
    }

    /// The slots that this rank is ready for.
    #[inline]
    pub(super) fn ready(&self, ledger: &Ledger, joined: bool, ready: &mut Bits) {
        if joined {
            *ready = Bits::below(ledger.slots());
        } else {
            ready.clone_from(&self.hits);
        }
    }

    /// These no longer wait.
    #[inline]
    fn settle(&mut self, slots: &Bits) {
        self.hits.subtract(slots);
        self.aged.subtract(slots);
    }

    /// Frees slots; what waits with them is to be asked for anew.
    pub(super) fn free(
        &mut self,
        rank: u32,
        shared: &mut Shared,
        seen: &mut u64,
        invalid: &Bits,
    ) -> Result<(), Breach> {
        let ledger = shared.ledger(*seen);
        for slot in invalid.iter().filter(|slot| self.hits.contains(*slot)) {
            let unsent = &mut self.uncached.get_or_insert_default().unsent;
            unsent.extend(ledger.entry(slot).map(|entry| entry.request_of(rank)));
        }
        let before = entries(&self.fresh_hits, ledger);
        self.settle(invalid);
        let outcome = Consensus { invalid: invalid.clone(), ..Consensus::default() };
        shared.ledgers.step(seen, &outcome)?;
        self.doubt(rank, &before, shared.ledger(*seen));
        Ok(())
    }

    /// Slots are another tensor's now, or nobody's: what is fresh may have lost its own.
    fn doubt(&mut self, rank: u32, before: &Entries, ledger: &Ledger) {
        self.fresh_hits.clear();
        for (slot, old) in before {
            if ledger.entry(*slot).is_some_and(|new| Arc::ptr_eq(old, new)) {
                self.fresh_hits.insert(*slot);
            } else {
                self.uncached.get_or_insert_default().fresh.push(old.request_of(rank));
            }
        }
    }

    /// Takes an outcome in that gives nobody a slot.
    #[inline]
    pub(super) fn launch(
        &mut self,
        shared: &mut Shared,
        seen: &mut u64,
        outcome: &Consensus,
    ) -> Result<Option<Arc<Launch>>, Breach> {
        if outcome.is_empty() {
            return Ok(None);
        }
        self.settle(&outcome.ready);
        let launch = shared.ledgers.step(seen, outcome)?;
        if let Some(launch) = &launch {
            self.open.subtract(&launch.tensors);
        }
        Ok(launch)
    }

    /// As [`Waiting::launch`], of an outcome that another rank has taken in at this place: whether it launches.
    #[inline]
    pub(super) fn follow(
        &mut self,
        shared: &mut Shared,
        seen: &mut u64,
        outcome: &Consensus,
    ) -> Option<bool> {
        if outcome.is_empty() {
            return Some(false);
        }
        let launch = shared.ledgers.next(*seen)?;
        self.settle(&outcome.ready);
        if let Some(launch) = launch {
            self.open.subtract(&launch.tensors);
        }
        let launches = launch.is_some();
        shared.ledgers.follow(seen);
        Some(launches)
    }

    /// Takes an outcome in after which tensors may have the slots of others that wait.
    pub(super) fn decide(
        &mut self,
        rank: u32,
        shared: &mut Shared,
        seen: &mut u64,
        outcome: &Consensus,
    ) -> Result<Option<Arc<Launch>>, Breach> {
        let ledger = shared.ledger(*seen);
        let (fresh, waiting) = (entries(&self.fresh_hits, ledger), entries(&self.hits, ledger));
        let launch = self.launch(shared, seen, outcome)?;
        let ledger = shared.ledger(*seen);
        self.doubt(rank, &fresh, ledger);
        for (slot, old) in waiting {
            let kept = ledger.entry(slot).is_some_and(|new| Arc::ptr_eq(&old, new));
            if self.hits.contains(slot) && !kept {
                self.unsent().push(old.request_of(rank));
                self.settle(&std::iter::once(slot).collect());
            }
        }
        Ok(launch)
    }
}

impl Uncached {
    /// Finds the slots of what came without one, or sees to it that it is asked for.
    fn look_up(&mut self, rank: u32, ledger: &Ledger, hits: &mut Bits, invalid: &mut Bits) {
        // Its tensor may have got a slot since.
        self.fresh.retain(|request| match ledger.hit(rank, request) {
            Some(slot) => {
                hits.insert(slot);
                false
            }
            None => {
                let slot = ledger.slot(request.tensor);
                slot.into_iter().for_each(|slot| invalid.insert(slot));
                true
            }
        });
        if self.unsent.is_empty() {
            // Of tens of thousands of ranks this is memory: one list, not two.
            self.unsent = std::mem::take(&mut self.fresh);
        } else {
            self.unsent.append(&mut self.fresh);
        }
    }
}

/// What stands in these slots.
fn entries(slots: &Bits, ledger: &Ledger) -> Entries {
    let entry = |slot: usize| ledger.entry(slot).map(|entry| (slot, entry.clone()));
    slots.iter().filter_map(entry).collect()
}
