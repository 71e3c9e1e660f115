//! What is under way, and the tags by which a network model speaks of it.

use std::collections::BTreeMap;
use std::rc::Rc;

use allrail_collective::{Pace, StageRef};
use allrail_core::Time;
use allrail_engine::{CollectiveId, DataflowRun, Run, StageRun, StageTask};

use super::lowered::{Carried, Lowered, StageTimes};

/// Something carried: a collective on its ranks, or a message.
pub(super) struct Flight {
    pub(super) lowered: Rc<Lowered>,
    /// The actor at each position.
    pub(super) members: Rc<[u32]>,
    /// Of messages, and where stages are kept: by position and chunk.
    pub(super) chunks: Vec<Chunk>,
    /// The number of its first chunk.
    pub(super) first_slot: u32,
    /// Positions that are not over.
    pub(super) left: u32,
    pub(super) tag: u64,
    pub(super) communicator: u32,
    pub(super) priority: i64,
    /// How many had begun before it.
    pub(super) begun: u64,
    /// Before the first byte of its first chunk.
    pub(super) overhead: Time,
    /// Whether its sender is told that it has left.
    pub(super) tell_left: bool,
    /// On the executor at each position.
    pub(super) ids: Vec<CollectiveId>,
}

impl Flight {
    /// Where the chunk of a position is kept.
    #[inline]
    pub(super) fn place(&self, position: u32, chunk: u32) -> usize {
        (position * self.lowered.chunks() + chunk) as usize
    }

    /// The stage of a chunk in which a transfer's step is, at a position.
    pub(super) fn task_of(&self, position: u32, chunk: u32, step: u64) -> Option<&StageTask> {
        let stages = self.lowered.stages(position);
        let tasks = stages.chunk(chunk);
        let tasks = &stages.tasks()[tasks.start as usize..tasks.end as usize];
        match &self.lowered.carried {
            Carried::Stages(_) => tasks.iter().find(|task| u64::from(task.stage) == step),
            Carried::Messages(steps) => tasks
                .iter()
                .rev()
                .find(|task| steps.first(StageRef { chunk, stage: task.stage }) <= step),
        }
    }
}

/// A chunk on one rank.
#[derive(Clone, Default)]
pub(super) struct Chunk {
    pub(super) run: StageRun,
    /// Of the stage that runs: its place among the rank's tasks, and its span.
    pub(super) task: u32,
    pub(super) span: u32,
    /// How many messages its current step expects.
    pub(super) expected: u32,
    /// Under a window: which of its messages have left.
    pub(super) pace: Option<Box<Pace>>,
    /// Where messages wait for their own blocks only, and whether such a stage runs.
    pub(super) messages: Option<Box<Messages>>,
    pub(super) running: bool,
}

/// A chunk's messages on one rank, where each waits for its own blocks only.
#[derive(Clone, Default)]
pub(super) struct Messages {
    /// Of the stage that runs.
    pub(super) run: DataflowRun,
    /// The numbers, counted through the chunk's stages, of what has come for a stage that was not chosen yet.
    pub(super) early: Vec<u64>,
}

/// A transfer of a network model, as its tag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Going {
    /// Where it goes.
    pub(super) position: u32,
    /// A chunk of something under way, as [`Slots`] number them.
    pub(super) slot: u32,
    /// Its step, counted through the chunk's stages; in `dims` its stage.
    pub(super) step: u32,
}

const STEP_BITS: u32 = 20;
const SLOT_BITS: u32 = 24;

impl Going {
    /// As a tag: no memory is looked up for a message until it arrives.
    ///
    /// # Panics
    /// Beyond 2^20 steps of a chunk or ranks, or 2^24 chunks under way.
    #[inline]
    pub(super) fn pack(self) -> u64 {
        assert!(self.step < 1 << STEP_BITS && self.slot < 1 << SLOT_BITS, "too many at once");
        let (position, slot) = (u64::from(self.position), u64::from(self.slot));
        position << (STEP_BITS + SLOT_BITS) | slot << STEP_BITS | u64::from(self.step)
    }

    /// From a tag.
    #[inline]
    pub(super) fn unpack(tag: u64) -> Self {
        Self {
            position: (tag >> (STEP_BITS + SLOT_BITS)) as u32,
            slot: (tag >> STEP_BITS) as u32 & ((1 << SLOT_BITS) - 1),
            step: tag as u32 & ((1 << STEP_BITS) - 1),
        }
    }
}

/// Numbers for the chunks of all that is under way; used again when it is over.
#[derive(Default)]
pub(super) struct Slots {
    /// The flight of each.
    of: Vec<u32>,
    /// Where runs of so many begin that nobody has.
    free: BTreeMap<u32, Vec<u32>>,
}

impl Slots {
    /// The first of `chunks` numbers, one after the other, for a flight.
    pub(super) fn take(&mut self, chunks: u32, flight: u32) -> u32 {
        let first = self.free.get_mut(&chunks).and_then(Vec::pop).unwrap_or_else(|| {
            let first = u32::try_from(self.of.len()).expect("fewer than 2^32 chunks");
            self.of.resize(self.of.len() + chunks as usize, 0);
            first
        });
        self.of[first as usize..(first + chunks) as usize].fill(flight);
        first
    }

    /// They are free.
    pub(super) fn give_back(&mut self, first: u32, chunks: u32) {
        self.free.entry(chunks).or_default().push(first);
    }

    /// Whose a number is.
    #[inline]
    pub(super) fn flight(&self, slot: u32) -> u32 {
        self.of[slot as usize]
    }
}

/// In `dims`: a stage that was chosen.
#[derive(Clone, Copy)]
pub(super) struct Service {
    pub(super) flight: u32,
    pub(super) position: u32,
    pub(super) run: Run,
    pub(super) times: StageTimes,
    /// Before its bytes.
    pub(super) overhead: Time,
}

/// Of an actor on one dimension.
#[derive(Clone, Default)]
pub(super) struct Port {
    /// Messages whose last byte has not left.
    pub(super) unsent: u32,
    /// In `dims`: whether its executor was not told yet that it may choose; when it may.
    pub(super) taken: bool,
    pub(super) free_at: Time,
    pub(super) busy: Time,
    pub(super) sent: f64,
}

/// Of the timers of a time, those below [`AFTER`] come before the network model's events, the others after.
pub(super) const BEFORE: u8 = 0;
pub(super) const SEND: u8 = 1;
pub(super) const AFTER: u8 = 2;
pub(super) const LEFT: u8 = 3;

/// What happens beside the network model.
#[derive(Clone, Copy)]
pub(super) enum Inner {
    /// The messages of a step may be sent.
    Send { flight: u32, position: u32, chunk: u32 },
    /// Under a window: a message that has come is reduced.
    Reduced { flight: u32, position: u32, chunk: u32 },
    /// A message that has come is combined.
    Combined { flight: u32, position: u32, at: StageRef, number: u32 },
    /// A stage is over.
    StageOver { flight: u32, position: u32, chunk: u32 },
    /// A port of `dims` is free.
    Free { actor: u32, port: u32 },
    /// A link of `dims` can begin a stage that it was handed ahead.
    LinkFree { actor: u32, port: u32 },
    /// A message of `dims` has left its sender.
    Left { tag: u64 },
    /// A flight is over.
    Over { flight: u32 },
    /// A message has waited at its end.
    Waited { going: Going },
    /// A flight begins, after what it waited for.
    Begin { flight: u32 },
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
