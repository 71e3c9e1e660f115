//! What a run tells: which lists were launched everywhere, what ranks have to say, how much was done.

use std::sync::Arc;

use allrail_coordinate::{Broken, Launch, Reason};
use allrail_core::Time;

/// A list that every rank has launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Everywhere {
    /// Counted from 0.
    pub place: u64,
    /// What.
    pub launch: Arc<Launch>,
    /// When the first rank launched it.
    pub first: Time,
    /// When the last one did.
    pub last: Time,
}

/// What a rank has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Tensors wait for ranks.
    Stall {
        /// Which tensor.
        tensor: u32,
        /// Who has not submitted it.
        missing: Vec<u32>,
    },
    /// It stops.
    Stop(Arc<Reason>),
    /// It has submitted a tensor twice.
    Refused {
        /// Which.
        tensor: u32,
    },
    /// It launches something else than the others.
    Mismatch,
    /// It was told something against the rules, and stops.
    Broken(Broken),
}

/// A list that some ranks have launched.
pub(super) struct Listed {
    pub(super) launch: Arc<Launch>,
    pub(super) first: Time,
    pub(super) last: Time,
    pub(super) ranks: u32,
}

/// How much was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that arrived.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Cycles of all ranks that were left out.
    pub skipped: u64,
    /// Cycles of all ranks that were run as waves.
    pub waves: u64,
}

impl Counts {
    /// Of so many process groups that are alike.
    #[must_use]
    pub fn times(self, groups: u64) -> Self {
        Self {
            messages: self.messages * groups,
            bytes: self.bytes * groups,
            skipped: self.skipped * groups,
            waves: self.waves * groups,
        }
    }
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            skipped: self.skipped + other.skipped,
            waves: self.waves + other.waves,
        }
    }
}
