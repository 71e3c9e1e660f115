//! What ranks ask for, and what all of them have asked for.

use std::fmt;
use std::ops::Range;

use allrail_collective::Operation;
use allrail_core::Bytes;
use allrail_schedule::signature::{Fingerprint, Signed};
use serde::{Deserialize, Serialize};

use super::broken::Breach;
use super::few::Few;
use super::ranks::Ranks;

/// What a rank asks for: one collective on one tensor. Every rank must ask for the same, but for the
/// bytes of an all-gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Numbered from 0, everywhere alike: by a [`Registry`](allrail_schedule::registry::Registry).
    pub tensor: u32,
    /// What is to be done.
    pub operation: Operation,
    /// This rank's buffer.
    #[serde(with = "count")]
    pub bytes: Bytes,
    /// Of a broadcast: whose buffer it is; else 0.
    pub root: u32,
    /// Name, dtype, shape and strides; 0 where nobody said.
    pub signature: Fingerprint,
}

impl Request {
    /// An all-reduce of a tensor whose signature nobody asks for.
    #[must_use]
    pub fn all_reduce(tensor: u32, bytes: Bytes) -> Self {
        let (operation, signature) = (Operation::AllReduce, Fingerprint::default());
        Self { tensor, operation, bytes, root: 0, signature }
    }

    /// Whether two ranks may meet in one collective.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let sizes = self.operation == Operation::AllGather || self.bytes == other.bytes;
        sizes
            && self.operation == other.operation
            && self.root == other.root
            && self.signature == other.signature
    }
}

/// One side of a mismatch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The rank.
    pub rank: u32,
    /// What it asks for.
    pub request: Request,
    /// Of which tensor, if it said so.
    pub signature: Option<Signed>,
}

/// Why ranks cannot meet in a collective that all have asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// They ask for different things.
    Mismatch {
        /// A rank, and what it asks for.
        one: Box<Side>,
        /// Another, and what it asks for.
        other: Box<Side>,
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
                if let (Some(a), Some(b)) = (&one.signature, &other.signature) {
                    for (part, this, that) in a.differences(b) {
                        let (rank, second) = (one.rank, other.rank);
                        write!(
                            f,
                            "{part} differs: {this} on rank {rank}, {that} on rank {second}; "
                        )?;
                    }
                }
                let side = |side: &Side| {
                    let Request { operation, bytes, root, .. } = side.request;
                    let rank = side.rank;
                    let of = side.signature.as_ref().map(|one| format!(" of `{}`", one.name));
                    let of = of.unwrap_or_default();
                    format!("rank {rank} asks for {operation} of {bytes}{of} with root {root}")
                };
                write!(f, "{}, {}", side(one), side(other))
            }
            Self::RootJoined { root } => write!(f, "rank {root}, the root, has no more data"),
        }
    }
}

/// A request and the ranks that make it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The first of them.
    pub request: Request,
    /// Who.
    pub ranks: Ranks,
    /// Of an all-gather: each rank's bytes.
    #[serde(with = "counts_of_ranks")]
    pub sizes: Few<(u32, Bytes)>,
    /// If they do not ask for the same.
    pub trouble: Option<Trouble>,
    /// The first one's tensor, where its owner has registered it.
    pub signature: Option<Signed>,
}

impl Asked {
    /// By one rank.
    #[must_use]
    pub fn by(rank: u32, request: Request, signature: Option<Signed>) -> Self {
        let gathers = request.operation == Operation::AllGather;
        Self {
            request,
            ranks: Ranks::span(rank..rank + 1),
            sizes: if gathers { Few::from(vec![(rank, request.bytes)]) } else { Few::default() },
            trouble: None,
            signature,
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
            self.trouble = if other.trouble.is_some() {
                other.trouble
            } else if self.request.agrees(&other.request) {
                None
            } else {
                let side = |asked: &Self, signature| {
                    let rank = asked.ranks.lowest().unwrap_or(0);
                    Box::new(Side { rank, request: asked.request, signature })
                };
                let theirs = other.signature.clone();
                let (one, other) = (side(self, self.signature.clone()), side(&other, theirs));
                Some(Trouble::Mismatch { one, other })
            };
        }
        self.sizes.append(other.sizes);
    }
}

/// A list of requests on its way to rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asks {
    /// A tensor once, ascending.
    pub entries: Vec<Asked>,
    /// Who has run out of data.
    pub joined: Ranks,
    /// Whether someone wants to stop.
    pub shutdown: bool,
    /// Operations that have finished on all ranks of the sender's subtree, ascending; each is said once.
    pub finished: Vec<u64>,
    /// The last cut that someone's clock has come to.
    pub cut: Option<u64>,
}

impl Asks {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lists = self.entries.is_empty() && self.finished.is_empty();
        lists && self.joined.is_empty() && !self.shutdown && self.cut.is_none()
    }

    /// Merges another list into this one, but for what has finished: a node counts that.
    pub fn unite(&mut self, other: Self) {
        self.joined.unite(&other.joined);
        self.shutdown |= other.shutdown;
        self.cut = self.cut.max(other.cut);
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

    /// What is wrong with a list of the ranks `span`, in a job of `tensors` tensors and `ranks` ranks.
    ///
    /// # Errors
    /// The first thing that such a list cannot hold.
    pub fn check(&self, span: &Range<u32>, ranks: u32, tensors: u32) -> Result<(), Breach> {
        if !self.joined.are_within(span) {
            return Err(Breach::NotBelow);
        }
        let mut next = 0u64;
        for Asked { request, ranks: who, sizes, .. } in &self.entries {
            let tensor = request.tensor;
            if tensor >= tensors {
                return Err(Breach::Tensor { tensor, tensors });
            }
            if u64::from(tensor) < next {
                return Err(Breach::Order);
            }
            next = u64::from(tensor) + 1;
            let sized = sizes.iter().all(|(rank, _)| span.contains(rank));
            if who.is_empty() || !who.are_within(span) || !sized {
                return Err(Breach::NotBelow);
            }
            if request.root >= ranks {
                return Err(Breach::Rank { rank: request.root, ranks });
            }
        }
        Ok(())
    }
}

/// A tensor that all ranks have asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// What for; of an all-gather, with the bytes of rank 0.
    pub request: Request,
    /// Of an all-gather: each rank's bytes, zero of one that has joined.
    #[serde(with = "counts")]
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

/// Bytes as a number: elsewhere they are text for people.
mod count {
    use super::{Bytes, Deserialize};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(bytes.count())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Bytes, D::Error> {
        u64::deserialize(from).map(Bytes::new)
    }
}

/// Many of them.
mod counts {
    use super::{Bytes, Deserialize};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[Bytes], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|bytes| bytes.count()))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Bytes>, D::Error> {
        let counts = Vec::<u64>::deserialize(from)?;
        Ok(counts.into_iter().map(Bytes::new).collect())
    }
}

/// Many of them, with ranks.
mod counts_of_ranks {
    use super::{Bytes, Deserialize, Few};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[(u32, Bytes)], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|(rank, bytes)| (rank, bytes.count())))
    }

    pub(super) fn deserialize<'d, D>(from: D) -> Result<Few<(u32, Bytes)>, D::Error>
    where
        D: Deserializer<'d>,
    {
        let counts = Vec::<(u32, u64)>::deserialize(from)?;
        Ok(counts.into_iter().map(|(rank, count)| (rank, Bytes::new(count))).collect())
    }
}
