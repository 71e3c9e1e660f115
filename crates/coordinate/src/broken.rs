//! What a peer, or the caller, may do wrong. None of it stops a process: the coordinator returns it as an
//! error that names the rank, tells its neighbours to stop, and does nothing more.

use std::fmt;

use allrail_core::counted;
use serde::{Deserialize, Serialize};

/// A rank has broken the rules of the talk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("rank {peer} has broken the rules of coordination: {breach}")]
pub struct Broken {
    /// Who: the sender of the message, or the rank itself where its caller did it.
    pub peer: u32,
    /// What.
    pub breach: Breach,
}

/// What is wrong with a message or a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Breach {
    /// A rank that the job does not have.
    #[error("rank {rank} is none of the job's {ranks}", ranks = counted(*.ranks, "rank"))]
    Rank {
        /// As given.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A tensor that nobody registered.
    #[error("tensor {tensor} is not registered, there are {tensors}")]
    Tensor {
        /// As given.
        tensor: u32,
        /// How many there are.
        tensors: u32,
    },
    /// A slot that no tensor can have, or none has.
    #[error("slot {slot} is given to no tensor, there are {slots}")]
    Slot {
        /// As given.
        slot: u64,
        /// How many there are.
        slots: u64,
    },
    /// A message of a kind that this rank does not take from that one, or not from anyone.
    #[error("it sent {kind}, which is not its part")]
    NotItsPart {
        /// Of which kind.
        kind: Kind,
    },
    /// A message that was not its turn.
    #[error("it sent {kind} out of turn")]
    OutOfTurn {
        /// Of which kind.
        kind: Kind,
    },
    /// It speaks for ranks that are not in its subtree.
    #[error("it speaks for ranks that are not below it")]
    NotBelow,
    /// Entries that do not ascend.
    #[error("its entries do not ascend by tensor")]
    Order,
    /// It says that all ranks have a tensor, which this one has not.
    #[error("it decided on tensor {tensor}, for which rank {rank} has not asked")]
    NotAsked {
        /// Which.
        tensor: u32,
        /// Who has not.
        rank: u32,
    },
    /// It says that an operation has finished, which has not, or which everyone knew.
    #[error("operation {operation} has finished already, or cannot have")]
    Finished {
        /// Which.
        operation: u64,
    },
    /// An event that others of this process saw differently.
    #[error("event {event} is another one here than on other ranks")]
    Differs {
        /// Counted from 0.
        event: u64,
    },
    /// A cut that everyone has made.
    #[error("cut {number} is over already")]
    Cut {
        /// Which.
        number: u64,
    },
}

impl Breach {
    /// By this rank.
    #[must_use]
    pub fn by(self, peer: u32) -> Broken {
        Broken { peer, breach: self }
    }
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Requests.
    Asks,
    /// A vote.
    Vote,
    /// What votes come to.
    Verdict,
    /// The answer to requests.
    Decision,
    /// News of a subtree.
    Report,
    /// An agreed event.
    Agreed,
    /// A question.
    Probe,
    /// Its answer.
    Missing,
    /// The end.
    Stop,
    /// A word about a call.
    Waits,
    /// About names that may be forgotten.
    Idle,
    /// A word about a frozen order.
    Thaw,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asks => "a list of requests",
            Self::Vote => "a vote",
            Self::Verdict => "a verdict",
            Self::Decision => "a decision",
            Self::Report => "a report",
            Self::Agreed => "an agreed event",
            Self::Probe => "a probe",
            Self::Missing => "an answer to a probe",
            Self::Stop => "a stop",
            Self::Waits => "a word about a call",
            Self::Idle => "a list of idle names",
            Self::Thaw => "a word about a frozen order",
        })
    }
}
