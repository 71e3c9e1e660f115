//! What a rank has submitted and what has not been launched, against the ledger that says which of it
//! has a slot in the cache.

use std::sync::Arc;

use allrail_core::Time;

use crate::coordinate::bits::Bits;
use crate::coordinate::ledger::{Launch, Ledger, Outcome};
use crate::coordinate::messages::Request;

/// Of one rank.
pub(super) struct Waiting {
    rank: u32,
    ledger: Arc<Ledger>,
    /// Submitted, not launched; by tensor.
    open: Bits,
    /// Submitted since the last cycle, with a slot.
    fresh_hits: Bits,
    /// The slots of what is submitted and not launched.
    hits: Bits,
    /// Slots that have waited since `aged_since`.
    aged: Bits,
    aged_since: Time,
    /// Submitted since the last cycle, without a slot.
    fresh: Vec<Request>,
    /// Not in the cache, not yet sent to rank 0.
    unsent: Vec<Request>,
}

impl Waiting {
    pub(super) fn new(rank: u32, ledger: Arc<Ledger>) -> Self {
        Self {
            rank,
            ledger,
            open: Bits::default(),
            fresh_hits: Bits::default(),
            hits: Bits::default(),
            aged: Bits::default(),
            aged_since: Time::ZERO,
            fresh: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// The rank has a tensor ready. Not taken in if it waits already.
    #[inline]
    pub(super) fn submit(&mut self, request: &Request) -> bool {
        let tensor = request.tensor as usize;
        if self.open.contains(tensor) {
            return false;
        }
        self.open.insert(tensor);
        match self.ledger.hit(self.rank, request) {
            Some(slot) => self.fresh_hits.insert(slot),
            None => self.fresh.push(*request),
        }
        true
    }

    /// Whether nothing was submitted since the last cycle, or is to be sent to rank 0.
    #[inline]
    pub(super) fn has_nothing_new(&self) -> bool {
        self.fresh_hits.is_empty() && self.fresh.is_empty() && self.unsent.is_empty()
    }

    /// Whether something is to be sent to rank 0.
    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// What is to be sent to rank 0.
    pub(super) fn unsent(&mut self) -> &mut Vec<Request> {
        &mut self.unsent
    }

    /// A cycle begins. Adds slots that no longer hold, or have waited for `patience`, to `invalid`; says
    /// whether the cycle can be as the last one was.
    #[inline]
    pub(super) fn begin(&mut self, now: Time, patience: Time, invalid: &mut Bits) -> bool {
        let nothing_new = self.has_nothing_new();
        self.hits.unite(&self.fresh_hits);
        self.fresh_hits = Bits::default();
        if !self.fresh.is_empty() {
            self.look_up(invalid);
        }
        let ages = self.aged.is_empty();
        if !ages {
            if now.saturating_sub(self.aged_since) >= patience {
                invalid.unite(&self.aged);
                self.aged = Bits::default();
            }
        } else if !self.hits.is_empty() {
            self.aged = self.hits.clone();
            self.aged_since = now;
            return false;
        }
        nothing_new
    }

    /// Finds the slots of what came without one, or sees to it that it is asked for.
    fn look_up(&mut self, invalid: &mut Bits) {
        for request in std::mem::take(&mut self.fresh) {
            // Its tensor may have got a slot since.
            match self.ledger.hit(self.rank, &request) {
                Some(slot) => self.hits.insert(slot),
                None => {
                    let slot = self.ledger.slot(request.tensor);
                    slot.into_iter().for_each(|slot| invalid.insert(slot));
                    self.unsent.push(request);
                }
            }
        }
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
    pub(super) fn ready(&self, joined: bool) -> Bits {
        if joined { Bits::below(self.ledger.slots()) } else { self.hits.clone() }
    }

    /// These no longer wait.
    #[inline]
    fn settle(&mut self, slots: &Bits) {
        self.hits.subtract(slots);
        self.aged.subtract(slots);
    }

    /// Frees slots; what waits with them is to be asked for anew.
    pub(super) fn free(&mut self, invalid: &Bits) {
        for slot in invalid.iter().filter(|slot| self.hits.contains(*slot)) {
            let entry = self.ledger.entry(slot);
            self.unsent.extend(entry.map(|entry| entry.request_of(self.rank)));
        }
        self.settle(invalid);
        let outcome = Outcome { invalid: invalid.clone(), ..Outcome::default() };
        let after = self.ledger.after(&outcome).0;
        let before = std::mem::replace(&mut self.ledger, after);
        self.doubt(&before);
    }

    /// Slots are another tensor's now, or nobody's: what is fresh may have lost its own.
    fn doubt(&mut self, before: &Ledger) {
        for slot in std::mem::take(&mut self.fresh_hits).iter() {
            let (old, new) = (before.entry(slot), self.ledger.entry(slot));
            match (old, new) {
                (Some(old), Some(new)) if Arc::ptr_eq(old, new) => self.fresh_hits.insert(slot),
                (Some(old), _) => self.fresh.push(old.request_of(self.rank)),
                (None, _) => {}
            }
        }
    }

    /// Takes an outcome in that gives nobody a slot.
    #[inline]
    pub(super) fn launch(&mut self, outcome: &Outcome) -> Option<Arc<Launch>> {
        if outcome.ready.is_empty() && outcome.complete.is_empty() && !outcome.all_joined {
            return None;
        }
        self.settle(&outcome.ready);
        let (ledger, launch) = self.ledger.after(outcome);
        self.ledger = ledger;
        if let Some(launch) = &launch {
            self.open.subtract(&launch.tensors);
        }
        launch
    }

    /// Takes an outcome in after which tensors may have the slots of others that wait.
    pub(super) fn decide(&mut self, outcome: &Outcome) -> Option<Arc<Launch>> {
        let before = self.ledger.clone();
        let launch = self.launch(outcome);
        self.doubt(&before);
        for slot in self.hits.clone().iter() {
            let (old, new) = (before.entry(slot), self.ledger.entry(slot));
            if let Some(old) = old.filter(|old| new.is_none_or(|new| !Arc::ptr_eq(old, new))) {
                self.unsent.push(old.request_of(self.rank));
                self.settle(&std::iter::once(slot).collect());
            }
        }
        launch
    }
}
