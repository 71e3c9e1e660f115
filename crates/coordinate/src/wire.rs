//! Messages as bytes: a byte for the version, then the message in postcard's form (variable-length integers,
//! nothing that describes itself), so a vote is a dozen bytes.
//!
//! A peer's bytes are not trusted. The length is checked before anything is read. A count that exceeds the
//! bytes that are left reserves nothing, so what is decoded is at most a fixed multiple of the message (a
//! test counts); sets stay in their short form until all numbers in them are known to be in range. What is
//! out of range, ends early or goes on too long is an error, never a panic.
//!
//! ```
//! use allrail_coordinate::Payload;
//! use allrail_coordinate::messages::Vote;
//! use allrail_coordinate::wire::{Limits, decode, encode};
//! let vote = Payload::Vote(Box::new(Vote { ready: [3, 5].into_iter().collect(), ..Vote::default() }));
//! let mut bytes = Vec::new();
//! encode(&vote, &mut bytes).unwrap();
//! assert_eq!(bytes.len(), 9);
//! assert_eq!(decode(&bytes, &Limits::default()), Ok(vote));
//! assert!(decode(&bytes[..5], &Limits::default()).is_err());
//! ```

use allrail_core::{counted, either};
use allrail_schedule::registry::MOST_TENSORS;
use allrail_schedule::signature::Signed;

use super::bits::Bits;
use super::cause::MOST_CAUSE;
use super::finishes::WINDOW;
use super::ledger::Consensus;
use super::messages::{Decision, Payload, Reason};
use super::ranks::Ranks;
use super::requests::{Asked, Asks, Completed, Request, Side, Trouble};

/// The form that this build writes and reads.
pub const VERSION: u8 = 4;

/// How much a message may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ranks are below this.
    pub ranks: u32,
    /// Tensors, and so their slots, are below this.
    pub tensors: u32,
    /// Entries in a list.
    pub entries: usize,
    /// Bytes of the whole message.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            ranks: 1 << 20,
            tensors: MOST_TENSORS as u32,
            entries: MOST_TENSORS,
            bytes: 64 << 20,
        }
    }
}

/// The longest name or dtype of a tensor, in bytes.
pub const MOST_TEXT: usize = 4096;
/// The most directions of a tensor.
pub const MOST_DIRECTIONS: usize = 64;

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// There is nothing.
    #[error("a message of no bytes")]
    Empty,
    /// It was written by another build.
    #[error("the message has version {found}, this build reads version {known}")]
    Version {
        /// Of the message.
        found: u8,
        /// Of this build.
        known: u8,
    },
    /// It is longer than any that is sent.
    #[error("the message has {bytes}, at most {most} are taken", bytes = counted(*.bytes, "byte"))]
    TooLong {
        /// As received.
        bytes: usize,
        /// As allowed.
        most: usize,
    },
    /// It ends early, or says what cannot be.
    #[error("the message is malformed: {0}")]
    Malformed(postcard::Error),
    /// It goes on after its end.
    #[error(
        "{bytes} {follow} after the message",
        bytes = counted(*.bytes, "byte"),
        follow = either(.bytes, "follows", "follow")
    )]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A number that is out of range.
    #[error("{what} is {value}, at most {most} is taken")]
    Beyond {
        /// Of what.
        what: &'static str,
        /// As received.
        value: u64,
        /// As allowed.
        most: u64,
    },
}

/// Appends a message.
///
/// # Errors
/// None that a payload of this crate can cause.
pub fn encode(payload: &Payload, into: &mut Vec<u8>) -> Result<(), WireError> {
    into.push(VERSION);
    let bytes = postcard::to_extend(payload, std::mem::take(into));
    *into = bytes.map_err(WireError::Malformed)?;
    Ok(())
}

/// Reads a message that is all of `bytes`.
///
/// # Errors
/// Whatever is not a message within the limits.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Payload, WireError> {
    if bytes.len() > limits.bytes {
        return Err(WireError::TooLong { bytes: bytes.len(), most: limits.bytes });
    }
    let (found, rest) = bytes.split_first().ok_or(WireError::Empty)?;
    if *found != VERSION {
        return Err(WireError::Version { found: *found, known: VERSION });
    }
    let (payload, rest) = postcard::take_from_bytes(rest).map_err(WireError::Malformed)?;
    if !rest.is_empty() {
        return Err(WireError::Trailing { bytes: rest.len() });
    }
    limits.payload(&payload)?;
    Ok(payload)
}

type Checked = Result<(), WireError>;

fn most(what: &'static str, value: u64, most: u64) -> Checked {
    if value <= most { Ok(()) } else { Err(WireError::Beyond { what, value, most }) }
}

impl Limits {
    fn rank(&self, rank: u32) -> Checked {
        most("a rank", rank.into(), u64::from(self.ranks).saturating_sub(1))
    }

    fn each_rank(&self, ranks: &[u32]) -> Checked {
        self.count(ranks.len())?;
        ranks.iter().try_for_each(|rank| self.rank(*rank))
    }

    fn tensor(&self, tensor: u32) -> Checked {
        most("a tensor", tensor.into(), u64::from(self.tensors).saturating_sub(1))
    }

    fn each_tensor(&self, tensors: &[u32]) -> Checked {
        self.count(tensors.len())?;
        tensors.iter().try_for_each(|tensor| self.tensor(*tensor))
    }

    fn count(&self, entries: usize) -> Checked {
        most("the length of a list", entries as u64, self.entries as u64)
    }

    fn ranks(&self, ranks: &Ranks) -> Checked {
        ranks.spans().try_for_each(|span| self.rank(span.end - 1))
    }

    /// There are never more slots than tensors.
    fn slots(&self, bits: &Bits) -> Checked {
        let highest = bits.highest().map_or(0, |slot| slot as u64 + 1);
        most("the number of slots", highest, self.tensors.into())
    }

    fn signature(signature: Option<&Signed>) -> Checked {
        let Some(signed) = signature else { return Ok(()) };
        let text = signed.name.len().max(signed.dtype.len());
        most("the length of a name", text as u64, MOST_TEXT as u64)?;
        let directions = signed.shape.len().max(signed.strides.len());
        most("the number of directions", directions as u64, MOST_DIRECTIONS as u64)
    }

    fn request(&self, request: &Request) -> Checked {
        self.tensor(request.tensor)?;
        self.rank(request.root)
    }

    fn trouble(&self, trouble: Option<&Trouble>) -> Checked {
        match trouble {
            None => Ok(()),
            Some(Trouble::RootJoined { root }) => self.rank(*root),
            Some(Trouble::Mismatch { one, other }) => {
                [one, other].into_iter().try_for_each(|side| {
                    let Side { rank, request, signature } = &**side;
                    self.rank(*rank)?;
                    self.request(request)?;
                    Self::signature(signature.as_ref())
                })
            }
        }
    }

    fn asks(&self, asks: &Asks) -> Checked {
        self.count(asks.entries.len())?;
        self.ranks(&asks.joined)?;
        Self::finished(&asks.finished)?;
        asks.entries.iter().try_for_each(|asked| {
            let Asked { request, ranks, sizes, trouble, signature } = asked;
            self.request(request)?;
            self.ranks(ranks)?;
            most("the length of a list", sizes.len() as u64, self.ranks.into())?;
            sizes.iter().try_for_each(|(rank, _)| self.rank(*rank))?;
            self.trouble(trouble.as_ref())?;
            Self::signature(signature.as_ref())
        })
    }

    fn finished(operations: &[u64]) -> Checked {
        most("the number of finished operations", operations.len() as u64, WINDOW)
    }

    fn outcome(&self, outcome: &Consensus) -> Checked {
        self.slots(&outcome.invalid)?;
        self.slots(&outcome.ready)?;
        Self::finished(&outcome.finished)?;
        self.completed(outcome.complete.iter().map(|one| &**one))
    }

    fn completed<'a>(&self, mut all: impl ExactSizeIterator<Item = &'a Completed>) -> Checked {
        self.count(all.len())?;
        all.try_for_each(|one| {
            let Completed { request, sizes, trouble } = one;
            self.request(request)?;
            most("the length of a list", sizes.len() as u64, self.ranks.into())?;
            self.trouble(trouble.as_ref())
        })
    }

    fn decision(&self, decision: &Decision) -> Checked {
        Self::finished(&decision.finished)?;
        self.completed(decision.complete.iter().map(|one| &**one))?;
        decision.stop.as_deref().map_or(Ok(()), |reason| self.reason(reason))
    }

    fn reason(&self, reason: &Reason) -> Checked {
        match reason {
            Reason::Asked => Ok(()),
            Reason::Silent { ranks, by } => {
                self.each_rank(ranks)?;
                self.rank(*by)
            }
            Reason::Stalled { tensor, missing } => {
                self.tensor(*tensor)?;
                self.each_rank(missing)
            }
            // The breach may hold what is out of range: it is what was wrong.
            Reason::Broken { by, .. } => self.rank(*by),
            Reason::Fault(cause) => {
                cause.ranks().try_for_each(|rank| self.rank(rank))?;
                cause.texts().try_for_each(|text| {
                    most("the length of a cause", text.len() as u64, MOST_CAUSE as u64)
                })
            }
        }
    }

    fn payload(&self, payload: &Payload) -> Checked {
        match payload {
            Payload::Asks(asks) => self.asks(asks),
            Payload::Vote(vote) => {
                self.slots(&vote.ready)?;
                self.slots(&vote.invalid)?;
                let finished = vote.finished.as_ref().and_then(|bits| bits.highest());
                let finished = finished.map_or(0, |after| after as u64 + 1);
                most("the number of finished operations", finished, WINDOW)
            }
            Payload::Verdict(verdict) => {
                self.slots(&verdict.invalid)?;
                self.outcome(&verdict.outcome)
            }
            Payload::Decision(decision) => self.decision(decision),
            Payload::Report(report) => {
                self.slots(&report.ready)?;
                report.forget.as_deref().map_or(Ok(()), |bits| self.slots(bits))?;
                report.asks.as_deref().map_or(Ok(()), |asks| self.asks(asks))
            }
            Payload::Agreed(agreed) => {
                self.slots(&agreed.ready)?;
                agreed.forget.as_ref().map_or(Ok(()), |bits| self.slots(bits))?;
                agreed.decision.as_ref().map_or(Ok(()), |one| self.decision(one))
            }
            Payload::Probe(probe) => {
                self.rank(probe.origin)?;
                self.each_tensor(&probe.tensors)
            }
            Payload::Missing(missing) => {
                self.each_tensor(&missing.tensors)?;
                self.each_rank(&missing.passed)
            }
            Payload::Stop(reason) => self.reason(reason),
            Payload::Idle(idle) => self.count(idle.names.len()),
            Payload::Waits(_) | Payload::Thaw(_) => Ok(()),
        }
    }
}
