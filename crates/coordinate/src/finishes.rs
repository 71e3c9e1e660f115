//! Operations that have finished on every rank.
//!
//! An operation's number is its place in the order in which all ranks start operations; that order follows
//! from agreed events, so the number means the same everywhere. A finish is local until all ranks have told
//! theirs: then it is agreed, once, at one place in the order of events.
//!
//! Only the operations of a window behind the oldest that is not agreed are talked of: so what a peer can
//! make a rank remember is bounded. A finish beyond it waits until the window moves.

use std::collections::{BTreeMap, BTreeSet};

use super::bits::Bits;
use super::broken::Breach;

/// How many operations the window holds.
pub const WINDOW: u64 = 4096;

/// Which operations all ranks know to be over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// All before this one.
    next: u64,
    /// And these after it.
    beyond: BTreeSet<u64>,
}

impl Over {
    /// The first that is not over.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether an operation is over.
    #[must_use]
    pub fn contains(&self, operation: u64) -> bool {
        operation < self.next || self.beyond.contains(&operation)
    }

    /// Whether it can be talked of: it is in the window, and not over.
    #[must_use]
    pub fn is_open(&self, operation: u64) -> bool {
        operation >= self.next && operation - self.next < WINDOW && !self.contains(operation)
    }

    /// All ranks agree that these are over.
    pub(super) fn extend(&mut self, operations: &[u64]) {
        self.beyond.extend(operations);
        while self.beyond.first() == Some(&self.next) {
            self.beyond.pop_first();
            self.next += 1;
        }
    }
}

/// What has finished at one rank and is not agreed.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Not told yet.
    untold: BTreeSet<u64>,
    /// Told.
    told: BTreeSet<u64>,
}

impl Own {
    pub(super) fn finish(&mut self, operation: u64, over: &Over) -> Result<(), Breach> {
        let known = over.contains(operation) || self.told.contains(&operation);
        if known || !self.untold.insert(operation) {
            return Err(Breach::Finished { operation });
        }
        Ok(())
    }

    /// Whether all that has finished is agreed.
    pub(super) fn is_empty(&self) -> bool {
        self.untold.is_empty() && self.told.is_empty()
    }

    /// Whether something can be told that was not.
    pub(super) fn has_news(&self, over: &Over) -> bool {
        self.untold.first().is_some_and(|operation| over.is_open(*operation))
    }

    /// What to tell, ascending; it is told then.
    pub(super) fn tell(&mut self, over: &Over) -> Vec<u64> {
        let open = self.untold.iter().copied().take_while(|operation| over.is_open(*operation));
        let open: Vec<u64> = open.collect();
        for operation in &open {
            self.untold.remove(operation);
            self.told.insert(*operation);
        }
        open
    }

    /// All that was told and is not agreed, by distance from the first that is not over.
    pub(super) fn bits(&self, over: &Over) -> Bits {
        self.told.iter().map(|operation| (operation - over.next()) as usize).collect()
    }

    /// These are agreed.
    pub(super) fn agree(&mut self, operations: &[u64]) -> Result<(), Breach> {
        for operation in operations {
            if !self.told.remove(operation) {
                return Err(Breach::Finished { operation: *operation });
            }
        }
        Ok(())
    }
}

/// Counts at a node of a tree who has told of which operation: itself, and each child for its subtree.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// By operation: which parties have told.
    told: BTreeMap<u64, Bits>,
    whole: Vec<u64>,
}

impl Tally {
    /// A party, of `parties`, has told of these.
    pub(super) fn add(
        &mut self,
        party: usize,
        parties: usize,
        operations: &[u64],
        over: &Over,
    ) -> Result<(), Breach> {
        for operation in operations {
            let known = self.told.get(operation).is_some_and(|told| told.contains(party));
            if known || !over.is_open(*operation) {
                return Err(Breach::Finished { operation: *operation });
            }
            let told = self.told.entry(*operation).or_default();
            told.insert(party);
            if told.len() == parties {
                self.whole.push(*operation);
            }
        }
        Ok(())
    }

    /// Takes out what all parties have told of, ascending.
    pub(super) fn take_whole(&mut self) -> Vec<u64> {
        let mut whole = std::mem::take(&mut self.whole);
        whole.sort_unstable();
        whole
    }

    /// These are agreed: until then it is known who has told of them.
    pub(super) fn agree(&mut self, operations: &[u64]) {
        for operation in operations {
            self.told.remove(operation);
        }
    }
}
