//! What ranks tell each other: votes, decisions, reports, questions.

use std::sync::Arc;

use allrail_schedule::operation::Key;
use serde::{Deserialize, Serialize};

use super::bits::Bits;
use super::broken::{Breach, Broken, Kind};
use super::cause::Cause;
use super::ledger::Consensus;
use super::requests::{Asks, Completed};

/// What a rank, or a subtree, votes in a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Slots of the cache whose tensors are ready: intersected.
    pub ready: Bits,
    /// Slots that no longer hold: united.
    pub invalid: Bits,
    /// Whether someone has a request that is not in the cache.
    pub uncached: bool,
    /// Whether someone wants to stop.
    pub shutdown: bool,
    /// Operations that have finished, by their distance from the first that is not over: intersected.
    pub finished: Option<Box<Bits>>,
    /// The last cut that someone's clock has come to.
    pub cut: Option<u64>,
}

impl Vote {
    /// In how many words it says what has finished.
    #[inline]
    #[must_use]
    pub fn finished(&self) -> u64 {
        self.finished.as_ref().map_or(0, |bits| bits.words() as u64)
    }

    /// Combines another vote into this one.
    #[inline]
    pub fn combine(&mut self, other: &Self) {
        self.ready.intersect(&other.ready);
        self.invalid.unite(&other.invalid);
        self.uncached |= other.uncached;
        self.shutdown |= other.shutdown;
        self.cut = self.cut.max(other.cut);
        if let Some(finished) = &mut self.finished {
            match &other.finished {
                Some(other) => finished.intersect(other),
                None => self.finished = None,
            }
        }
    }
}

/// What all ranks' votes come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Slots that no longer hold; freed first.
    pub invalid: Bits,
    /// What is ready everywhere, of what is left.
    pub outcome: Consensus,
    /// Whether someone has a request that is not in the cache.
    pub uncached: bool,
    /// Whether all stop.
    pub shutdown: bool,
}

/// Rank 0's answer to the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What all have asked for, in the order in which rank 0 first heard of it.
    pub complete: Vec<Arc<Completed>>,
    /// Whether the last rank has run out of data.
    pub all_joined: bool,
    /// Whether all stop.
    pub stop: Option<Arc<Reason>>,
    /// Operations that have finished everywhere, ascending.
    pub finished: Vec<u64>,
    /// A cut that all make here.
    pub cut: Option<u64>,
}

impl Decision {
    /// What all ranks make of it.
    #[must_use]
    pub fn outcome(&self) -> Consensus {
        Consensus {
            complete: self.complete.clone(),
            all_joined: self.all_joined,
            finished: self.finished.clone(),
            cut: self.cut,
            ..Consensus::default()
        }
    }

    /// What is wrong with its entries, in a job of `tensors` tensors and `ranks` ranks, for a rank that
    /// has asked for `asked`, or of which more is not known.
    ///
    /// # Errors
    /// The first entry that cannot be.
    pub fn check(
        &self,
        rank: u32,
        ranks: u32,
        tensors: u32,
        asked: Option<&Bits>,
    ) -> Result<(), Breach> {
        for one in &self.complete {
            let tensor = one.request.tensor;
            if tensor >= tensors {
                return Err(Breach::Tensor { tensor, tensors });
            }
            if one.sizes.len() > ranks as usize || one.request.root >= ranks {
                return Err(Breach::Rank { rank: one.request.root.max(ranks), ranks });
            }
            if asked.is_some_and(|asked| !asked.contains(tensor as usize)) {
                return Err(Breach::NotAsked { tensor, rank });
            }
        }
        Ok(())
    }
}

/// What goes up the tree of `agreed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// How often all ranks had joined before.
    pub epoch: u64,
    /// How many agreed events the sender had taken in: slots mean what they meant then.
    pub heard: u64,
    /// Slots that have become ready in the whole subtree.
    pub ready: Bits,
    /// Requests without a slot, of the whole subtree, and joins.
    pub asks: Option<Box<Asks>>,
    /// Slots whose tensors have changed.
    pub forget: Option<Box<Bits>>,
}

/// What comes down the tree of `agreed`: the next event that all ranks agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Slots that are ready everywhere.
    pub ready: Bits,
    /// Slots that no longer hold.
    pub forget: Option<Bits>,
    /// Rank 0's answer to requests without a slot.
    pub decision: Option<Decision>,
}

/// Why all ranks stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// A rank asked for it.
    Asked,
    /// These ranks have said nothing for too long.
    Silent {
        /// Who.
        ranks: Vec<u32>,
        /// Who noticed.
        by: u32,
    },
    /// These ranks have not submitted a tensor for too long.
    Stalled {
        /// Which.
        tensor: u32,
        /// Who.
        missing: Vec<u32>,
    },
    /// A rank has broken the rules.
    Broken {
        /// Who, and how.
        broken: Broken,
        /// Who noticed.
        by: u32,
    },
    /// Something outside of the talk has gone wrong at a rank.
    Fault(Cause),
}

/// A question that passes through the tree of `agreed`, or of a guard to those that it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Who asks.
    pub origin: u32,
    /// Who lacks these? Of a guard: none.
    pub tensors: Arc<[u32]>,
}

/// A call that has begun at the sender, and is not over there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Which, of its group: that of its number, or of its name.
    pub key: Key,
    /// How many calls of the name came before; 0 without a name.
    pub generation: u64,
    /// What it is at the sender.
    pub signature: u64,
}

/// A name that may be forgotten, at the sender.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Idle {
    /// Which.
    pub key: Key,
    /// How many calls of it were made; all are over.
    pub calls: u64,
}

/// What names may be forgotten at the sender, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleNames {
    /// How often ranks have decided on such lists before.
    pub round: u64,
    /// The names.
    pub names: Vec<Idle>,
}

/// Of launches whose order is frozen: it holds to the end of this round, and no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thaw {
    /// The last round.
    pub round: u64,
    /// Whether this answers the sender's peer, who has said so first.
    pub known: bool,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What the sender itself has not submitted.
    pub tensors: Vec<u32>,
    /// Whom it passed the question on to.
    pub passed: Vec<u32>,
}

/// A message: one pointer, as messages are moved often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Payload {
    /// Requests, towards rank 0.
    Asks(Box<Asks>),
    /// A vote, towards rank 0.
    Vote(Box<Vote>),
    /// What they come to, from rank 0.
    Verdict(Arc<Verdict>),
    /// The answer to requests, from rank 0.
    Decision(Arc<Decision>),
    /// `agreed`, towards rank 0.
    Report(Box<Report>),
    /// `agreed`, from rank 0.
    Agreed(Arc<Agreed>),
    /// Do you live? And in `agreed`: who with you or below lacks these? To be answered to the origin.
    Probe(Box<Probe>),
    /// The answer.
    Missing(Box<Missing>),
    /// Stop.
    Stop(Arc<Reason>),
    /// Of a call without a name, beside all coordination: I wait for it; is it the same with you?
    Waits(Box<Waits>),
    /// Of calls with names, beside all coordination: what may be forgotten here.
    Idle(Arc<IdleNames>),
    /// Beside all coordination: an order that was frozen does not fit any more.
    Thaw(Box<Thaw>),
}

impl Payload {
    /// Of which kind it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Asks(_) => Kind::Asks,
            Self::Vote(_) => Kind::Vote,
            Self::Verdict(_) => Kind::Verdict,
            Self::Decision(_) => Kind::Decision,
            Self::Report(_) => Kind::Report,
            Self::Agreed(_) => Kind::Agreed,
            Self::Probe(_) => Kind::Probe,
            Self::Missing(_) => Kind::Missing,
            Self::Stop(_) => Kind::Stop,
            Self::Waits(_) => Kind::Waits,
            Self::Idle(_) => Kind::Idle,
            Self::Thaw(_) => Kind::Thaw,
        }
    }

    /// Whether its receiver is done with its cycle, if it is rank 0's.
    #[must_use]
    pub fn ends_cycle(&self) -> bool {
        matches!(self, Self::Verdict(verdict) if !verdict.uncached && !verdict.shutdown)
    }

    /// How many requests or answers it lists: what its receiver has to parse and look up.
    #[must_use]
    pub fn entries(&self) -> u64 {
        let asks = |asks: &Asks| asks.entries.len();
        let entries = match self {
            Self::Asks(list) => asks(list),
            Self::Decision(decision) => decision.complete.len(),
            Self::Report(report) => report.asks.as_deref().map_or(0, asks),
            Self::Agreed(agreed) => agreed.decision.as_ref().map_or(0, |one| one.complete.len()),
            Self::Probe(probe) => probe.tensors.len(),
            Self::Missing(missing) => missing.tensors.len(),
            Self::Idle(idle) => idle.names.len(),
            Self::Vote(_) | Self::Verdict(_) | Self::Stop(_) | Self::Waits(_) | Self::Thaw(_) => 0,
        };
        entries as u64
    }

    /// How many finished operations it lists, one by one or by bits.
    #[inline]
    #[must_use]
    pub fn finished(&self) -> u64 {
        let finished = match self {
            Self::Asks(list) => list.finished.len(),
            Self::Decision(decision) => decision.finished.len(),
            Self::Report(report) => report.asks.as_deref().map_or(0, |asks| asks.finished.len()),
            Self::Agreed(agreed) => agreed.decision.as_ref().map_or(0, |one| one.finished.len()),
            Self::Vote(vote) => return vote.finished(),
            Self::Verdict(verdict) => verdict.outcome.finished.len(),
            Self::Probe(_)
            | Self::Missing(_)
            | Self::Stop(_)
            | Self::Waits(_)
            | Self::Idle(_)
            | Self::Thaw(_) => 0,
        };
        finished as u64
    }
}
