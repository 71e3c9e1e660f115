//! What a node was told, what its engine wanted then, and for what its caller waited: the last of it, with times.
//!
//! The ring has a fixed number of places, taken once, and is always on: it is what a flight recorder writes, what
//! a [`Timeline`](crate::Timeline) is made of, and what [`replay`](crate::replay) drives an engine with. Everything
//! that goes into the engine is in it, in the order in which it went in, so nothing else decides.

use allrail_collective::Operation;
use allrail_core::Time;
use allrail_engine::engine::{Action, Event};
use allrail_engine::{Dtype, SignatureHash};
use allrail_schedule::Key;

/// Something that happened on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Since the node was made.
    pub at: Time,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The engine was told this, and took it.
    Told(Event),
    /// The engine was told of a call, and took it.
    Called {
        /// What it is called, if it has a name.
        name: Option<String>,
        /// Of which kind.
        operation: Operation,
        /// Of a broadcast: whose buffer all get.
        root: u32,
        /// The type of its elements.
        dtype: Dtype,
        /// How many.
        elements: u64,
        /// The highest goes first.
        priority: i64,
        /// What ranks compare, where that is more than the above says.
        signature: Option<SignatureHash>,
    },
    /// The engine was asked what runs now. Left out where nothing did.
    Settled,
    /// What the engine wanted after the last of these.
    Wants(Action),
    /// The caller begins to wait for an exchange, or a call.
    Waits {
        /// For which.
        key: Key,
        /// Which exchange of it; 0 of a call.
        generation: u64,
    },
    /// It waits no longer, or is looking for something else meanwhile.
    Waited {
        /// For which.
        key: Key,
        /// Which exchange of it; 0 of a call.
        generation: u64,
    },
}

/// The last so many records.
pub(crate) struct Ring {
    records: Vec<Record>,
    most: usize,
    /// The oldest, once all places are taken.
    oldest: usize,
    lost: u64,
}

impl Ring {
    pub(crate) fn new(most: u32) -> Self {
        let most = most as usize;
        Self { records: Vec::with_capacity(most), most, oldest: 0, lost: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.most > 0
    }

    pub(crate) fn push(&mut self, at: Time, what: What) {
        let record = Record { at, what };
        if self.records.len() < self.most {
            self.records.push(record);
        } else if let Some(oldest) = self.records.get_mut(self.oldest) {
            *oldest = record;
            self.oldest = (self.oldest + 1) % self.most;
            self.lost += 1;
        }
    }

    /// Something that went into the engine, with what came out.
    pub(crate) fn push_all(&mut self, at: Time, what: What, wants: &[Action]) {
        if self.is_on() {
            self.push(at, what);
            wants.iter().for_each(|action| self.push(at, What::Wants(action.clone())));
        }
    }

    /// From the oldest on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        let (newer, older) = self.records.split_at(self.oldest);
        older.iter().chain(newer)
    }

    /// How many were there before the oldest.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_in_their_order() {
        let mut ring = Ring::new(3);
        let place = ring.records.as_ptr();
        for ps in 0..8 {
            ring.push(Time::from_ps(ps), What::Settled);
        }
        let kept: Vec<u64> = ring.iter().map(|one| one.at.as_ps()).collect();
        assert_eq!((kept, ring.lost()), (vec![5, 6, 7], 5));
        assert_eq!(ring.records.as_ptr(), place, "no memory is taken later");
        let mut off = Ring::new(0);
        off.push(Time::ZERO, What::Settled);
        assert_eq!(off.iter().count(), 0);
    }
}
