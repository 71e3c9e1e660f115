//! What is under way, and the tags by which a world speaks of it.

use std::rc::Rc;

use allrail_core::Time;
use allrail_engine::{CollectiveId, StageRun};

use super::lowered::Lowered;

/// Something carried: a collective on its ranks, or a message.
pub(super) struct Flight {
    pub(super) lowered: Rc<Lowered>,
    /// The actor at each position.
    pub(super) members: Rc<[u32]>,
    /// Of messages: by position and chunk.
    pub(super) chunks: Vec<Chunk>,
    /// Positions that are not over.
    pub(super) left: u32,
    pub(super) tag: u64,
    /// Before the first byte of its first chunk.
    pub(super) overhead: Time,
    /// Whether its sender is told that it has left.
    pub(super) tell_left: bool,
    /// On the executor at each position.
    pub(super) ids: Vec<CollectiveId>,
}

/// A chunk on one rank.
#[derive(Clone, Default)]
pub(super) struct Chunk {
    pub(super) run: StageRun,
    /// Of the stage that runs: its place among the rank's tasks, and its span.
    pub(super) task: u32,
    pub(super) span: u32,
}

/// A transfer of a world.
#[derive(Clone, Copy)]
pub(super) struct Going {
    pub(super) flight: u32,
    /// Where it goes.
    pub(super) position: u32,
    pub(super) chunk: u32,
    /// Its step, counted through the chunk's stages; in `dims` its stage.
    pub(super) step: u32,
    /// In `dims`: where its stage is kept.
    pub(super) span: u32,
}

/// Of an actor on one dimension.
#[derive(Clone, Default)]
pub(super) struct Port {
    /// Messages whose last byte has not left.
    pub(super) unsent: u32,
    /// In `dims`: whether it serves a stage, or did when its executor last heard of it; until when.
    pub(super) taken: bool,
    pub(super) free_at: Time,
    /// Whether a timer says when it is free.
    pub(super) wakes: bool,
    pub(super) busy: Time,
    pub(super) sent: f64,
}

/// What happens beside the world.
#[derive(Clone, Copy)]
pub(super) enum Inner {
    /// The messages of a step may be sent.
    Send { flight: u32, position: u32, chunk: u32 },
    /// A stage is over.
    StageOver { flight: u32, position: u32, chunk: u32 },
    /// A port of `dims` is free.
    Wake { actor: u32, port: u32 },
    /// A message of `dims` has left its sender.
    Left { tag: u64 },
    /// A flight is over.
    Over { flight: u32 },
    /// A message has waited at its end.
    Waited { going: Going },
    /// A flight begins, after what it waited for.
    Begin { flight: u32, priority: i64 },
}

/// A departure: from which port, and whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) actor: u32,
    pub(super) port: u32,
    /// Whether `of` is a flight whose sender is told; else it is a span.
    pub(super) told: bool,
    pub(super) of: u32,
}

impl Departure {
    /// As a tag.
    pub(super) fn pack(self) -> u64 {
        u64::from(self.actor) << 40
            | u64::from(self.told) << 39
            | u64::from(self.port & 0x7f) << 32
            | u64::from(self.of)
    }

    /// From a tag.
    pub(super) fn unpack(tag: u64) -> Self {
        Self {
            actor: (tag >> 40) as u32,
            port: (tag >> 32 & 0x7f) as u32,
            told: tag >> 39 & 1 == 1,
            of: tag as u32,
        }
    }
}
