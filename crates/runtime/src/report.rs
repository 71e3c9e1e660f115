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
    /// How many words of coordination it has said to others.
    pub coordination: u64,
    /// Whether the order of launches is frozen, and none are said.
    pub frozen: bool,
    /// What else was seen: strangers at the door, frames that were refused.
    pub notes: Vec<String>,
}
