//! What the driver remembers of ports and chunks, and the tags of its transfers.

use std::collections::VecDeque;

use allrail_schedule::queue::DimensionQueue;

/// Of one actor on one dimension.
pub(super) struct Port {
    pub(super) queue: Box<dyn DimensionQueue>,
    /// Transfers whose last byte has not left.
    pub(super) unsent: u32,
    /// Stages begun and not over.
    pub(super) active: u32,
    pub(super) choosing: bool,
}

/// Of one chunk on one actor.
#[derive(Default)]
pub(super) struct Progress {
    /// Index of the stage that waits or runs.
    pub(super) stage: u32,
    /// How many steps the stages before it had.
    pub(super) base: u32,
    /// Step of the running stage; meaningful if `running`.
    pub(super) step: u32,
    pub(super) running: bool,
    /// Whether the step's transfers have been submitted.
    pub(super) issued: bool,
    /// Arrivals for the current step and those after it.
    pub(super) arrived: VecDeque<u32>,
    /// Index of the running stage's span.
    pub(super) span: u32,
    /// The port on which the stage waits or runs.
    pub(super) port: u32,
}

pub(super) enum Timer {
    /// A collective is issued.
    Start { collective: u32 },
    /// A step's transfers may be submitted.
    Send { actor: u32, chunk: u32 },
    /// A stage is over.
    Finish { actor: u32, chunk: u32 },
}

const STEP_BITS: u32 = 20;
pub(super) const CHUNK_BITS: u32 = 24;

/// The tag of a transfer: an actor, a chunk, and a step (or a dimension).
pub(super) fn pack(actor: u32, chunk: u32, step: u32) -> u64 {
    u64::from(actor) << (STEP_BITS + CHUNK_BITS) | u64::from(chunk) << STEP_BITS | u64::from(step)
}

pub(super) fn unpack(tag: u64) -> (u32, u32, u32) {
    let part = |shift: u32, bits: u32| {
        u32::try_from(tag >> shift & ((1 << bits) - 1)).expect("a masked part fits")
    };
    (part(STEP_BITS + CHUNK_BITS, 20), part(STEP_BITS, CHUNK_BITS), part(0, STEP_BITS))
}
