//! What the ranks of a collective do.

use std::path::PathBuf;

use allrail_core::{Bytes, Time};

/// What one rank does, one node after the other as its file has them.
pub(super) struct Rank {
    pub(super) file: PathBuf,
    pub(super) nodes: Vec<Node>,
}

pub(super) struct Node {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) does: Does,
    /// Places in the file.
    pub(super) after: Vec<usize>,
}

impl Node {
    pub(super) fn title(&self) -> String {
        format!("node {} (`{}`)", self.id, self.name)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Send(Message),
    Receive(Message),
    Compute(Time),
}

/// A message as one end of it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Message {
    /// The other rank's position.
    pub(super) peer: u32,
    pub(super) tag: u64,
    pub(super) bytes: Bytes,
}
