//! What a node has done, for people and for the report of a step.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// What has gone over the connections of a port, with headers.
#[derive(Default)]
pub(crate) struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> PortReport {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        PortReport { sent: read(&self.sent), received: read(&self.received) }
    }
}

/// A dimension, on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PortReport {
    /// Bytes, with the headers of frames.
    pub sent: u64,
    /// Bytes, with the headers of frames.
    pub received: u64,
}

/// A tensor, on this rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// How often it was submitted.
    pub submitted: u64,
    /// How often its exchange is over.
    pub done: u64,
}

/// What is known of another rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerReport {
    /// Which.
    pub rank: u32,
    /// Nanoseconds that its machine's clock is ahead of this one's: from the middle of the quickest of the last
    /// round trips, so it is wrong by half of that at most. None before the second sign of life.
    pub offset: Option<i64>,
    /// Nanoseconds of that round trip.
    pub round_trip: Option<u64>,
    /// Of some of the last exchanges: the tensor, and by how many nanoseconds this peer has submitted it later
    /// than this rank.
    pub later: Vec<(String, i64)>,
}

/// A tensor under way, and for whom it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitsFor {
    /// Its name; of calls `call 7`.
    pub tensor: String,
    /// Nanoseconds since this rank has submitted it.
    pub since: u64,
    /// Who had not submitted it when it was heard of last.
    pub ranks: Vec<u32>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// This rank.
    pub rank: u32,
    /// Picoseconds since it was made.
    pub time: u64,
    /// Why the job is over, if it is.
    pub fault: Option<crate::Fault>,
    /// By dimension.
    pub dimensions: Vec<PortReport>,
    /// By name.
    pub tensors: Vec<TensorReport>,
    /// By rank.
    pub peers: Vec<PeerReport>,
    /// What is under way, the longest first.
    pub waits_for: Vec<WaitsFor>,
    /// What else was seen: strangers at the door, frames that were refused.
    pub notes: Vec<String>,
}
