//! What ranks tell each other: requests, votes, decisions.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_core::Bytes;

use super::bits::Bits;
use super::ledger::Outcome;

/// What a rank asks for: one collective on one tensor. Every rank must ask for the same, but for the
/// bytes of an all-gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Numbered from 0, everywhere alike (in the runtime, by name).
    pub tensor: u32,
    /// What is to be done.
    pub operation: Operation,
    /// This rank's buffer.
    pub bytes: Bytes,
    /// Of a broadcast: whose buffer it is; else 0.
    pub root: u32,
}

impl Request {
    /// Whether two ranks may meet in one collective.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let sizes = self.operation == Operation::AllGather || self.bytes == other.bytes;
        sizes && self.operation == other.operation && self.root == other.root
    }
}

/// Why ranks cannot meet in a collective that all have asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// They ask for different things.
    Mismatch {
        /// A rank, and what it asks for.
        one: (u32, Request),
        /// Another, and what it asks for.
        other: (u32, Request),
    },
    /// The root of a broadcast has run out of data.
    RootJoined {
        /// The root.
        root: u32,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { one, other } => {
                let side = |(rank, request): &(u32, Request)| {
                    let Request { operation, bytes, root, .. } = request;
                    format!("rank {rank} asks for {operation} of {bytes} with root {root}")
                };
                write!(f, "{}, {}", side(one), side(other))
            }
            Self::RootJoined { root } => write!(f, "rank {root}, the root, has no more data"),
        }
    }
}

/// A set of ranks as spans, ascending; a span costs no memory of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    first: Range<u32>,
    rest: Vec<Range<u32>>,
}

impl Ranks {
    /// The ranks of a span.
    #[must_use]
    pub fn span(span: Range<u32>) -> Self {
        Self { first: span, rest: Vec::new() }
    }

    /// From spans that ascend and do not touch.
    #[must_use]
    pub fn from_spans(spans: Vec<Range<u32>>) -> Self {
        let mut spans = spans.into_iter();
        Self { first: spans.next().unwrap_or_default(), rest: spans.collect() }
    }

    /// The spans, ascending, none empty.
    pub fn spans(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        std::iter::once(&self.first).chain(&self.rest).filter(|span| !span.is_empty()).cloned()
    }

    /// The lowest of them.
    #[must_use]
    pub fn lowest(&self) -> Option<u32> {
        self.spans().next().map(|span| span.start)
    }

    /// Whether none is in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lowest().is_none()
    }

    /// Adds others.
    pub fn unite(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        let mut spans: Vec<Range<u32>> = self.spans().chain(other.spans()).collect();
        spans.sort_by_key(|span| span.start);
        let mut merged: Vec<Range<u32>> = Vec::with_capacity(1);
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        *self = Self::from_spans(merged);
    }
}

/// A request and the ranks that make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The first of them.
    pub request: Request,
    /// Who.
    pub ranks: Ranks,
    /// Of an all-gather: each rank's bytes.
    pub sizes: Vec<(u32, Bytes)>,
    /// If they do not ask for the same.
    pub trouble: Option<Trouble>,
}

impl Asked {
    /// By one rank.
    #[must_use]
    pub fn by(rank: u32, request: Request) -> Self {
        let gathers = request.operation == Operation::AllGather;
        Self {
            request,
            ranks: Ranks::span(rank..rank + 1),
            sizes: if gathers { vec![(rank, request.bytes)] } else { Vec::new() },
            trouble: None,
        }
    }

    /// Adds others that ask for the same tensor.
    pub fn unite(&mut self, other: Self) {
        let ranks = other.ranks.clone();
        self.meet(other);
        self.ranks.unite(&ranks);
    }

    /// The same, but for who asks.
    pub fn meet(&mut self, other: Self) {
        if self.trouble.is_none() {
            self.trouble = other.trouble.or_else(|| {
                (!self.request.agrees(&other.request)).then(|| Trouble::Mismatch {
                    one: (self.ranks.lowest().unwrap_or(0), self.request),
                    other: (other.ranks.lowest().unwrap_or(0), other.request),
                })
            });
        }
        self.sizes.extend(other.sizes);
    }
}

/// A list of requests on its way to rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asks {
    /// A tensor once, ascending.
    pub entries: Vec<Asked>,
    /// Who has run out of data.
    pub joined: Ranks,
    /// Whether someone wants to stop.
    pub shutdown: bool,
}

impl Asks {
    /// Merges another list into this one.
    pub fn unite(&mut self, other: Self) {
        self.joined.unite(&other.joined);
        self.shutdown |= other.shutdown;
        let old = std::mem::take(&mut self.entries);
        let (mut ours, mut theirs) = (old.into_iter().peekable(), other.entries.into_iter());
        for their in theirs.by_ref() {
            while let Some(our) = ours.next_if(|our| our.request.tensor < their.request.tensor) {
                self.entries.push(our);
            }
            match ours.next_if(|our| our.request.tensor == their.request.tensor) {
                Some(mut our) => {
                    our.unite(their);
                    self.entries.push(our);
                }
                None => self.entries.push(their),
            }
        }
        self.entries.extend(ours);
    }
}

/// A tensor that all ranks have asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// What for; of an all-gather, with the bytes of rank 0.
    pub request: Request,
    /// Of an all-gather: each rank's bytes, zero of one that has joined.
    pub sizes: Vec<Bytes>,
    /// Why it cannot be done.
    pub trouble: Option<Trouble>,
}

impl Completed {
    /// What `rank` asked for when this was decided.
    #[must_use]
    pub fn request_of(&self, rank: u32) -> Request {
        match self.sizes.get(rank as usize) {
            Some(bytes) => Request { bytes: *bytes, ..self.request },
            None => self.request,
        }
    }
}

/// What a rank, or a subtree, votes in a cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// Slots of the cache whose tensors are ready: intersected.
    pub ready: Bits,
    /// Slots that no longer hold: united.
    pub invalid: Bits,
    /// Whether someone has a request that is not in the cache.
    pub uncached: bool,
    /// Whether someone wants to stop.
    pub shutdown: bool,
}

impl Vote {
    /// Combines another vote into this one.
    #[inline]
    pub fn combine(&mut self, other: &Self) {
        self.ready.intersect(&other.ready);
        self.invalid.unite(&other.invalid);
        self.uncached |= other.uncached;
        self.shutdown |= other.shutdown;
    }
}

/// What all ranks' votes come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Slots that no longer hold; freed first.
    pub invalid: Bits,
    /// What is ready everywhere, of what is left.
    pub outcome: Outcome,
    /// Whether someone has a request that is not in the cache.
    pub uncached: bool,
    /// Whether all stop.
    pub shutdown: bool,
}

/// Rank 0's answer to the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What all have asked for, in the order in which rank 0 first heard of it.
    pub complete: Vec<Arc<Completed>>,
    /// Whether the last rank has run out of data.
    pub all_joined: bool,
    /// Whether all stop.
    pub stop: Option<Arc<Reason>>,
}

/// What goes up the tree of `agreed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often all ranks had joined before.
    pub epoch: u32,
    /// Slots that have become ready in the whole subtree.
    pub ready: Bits,
    /// Requests without a slot, of the whole subtree, and joins.
    pub asks: Option<Box<Asks>>,
    /// Slots whose tensors have changed.
    pub forget: Option<Box<Bits>>,
}

/// What comes down the tree of `agreed`: the next event that all ranks agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Slots that are ready everywhere.
    pub ready: Bits,
    /// Slots that no longer hold.
    pub forget: Option<Bits>,
    /// Rank 0's answer to requests without a slot.
    pub decision: Option<Decision>,
}

/// Why all ranks stop.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// A question that passes through the tree of `agreed`, or of a guard to those that it waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Who asks.
    pub origin: u32,
    /// Who lacks these? Of a guard: none.
    pub tensors: Arc<[u32]>,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// What the sender itself has not submitted.
    pub tensors: Vec<u32>,
    /// Whom it passed the question on to.
    pub passed: Vec<u32>,
}

/// A message: one pointer, as messages are moved often.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

impl Payload {
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
            Self::Vote(_) | Self::Verdict(_) | Self::Stop(_) => 0,
        };
        entries as u64
    }
}
