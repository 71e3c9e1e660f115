//! What a rank does with one chunk: its messages in their places, and which waits for which.

use std::ops::Range;
use std::sync::Arc;

use allrail_core::DimensionId;

use crate::Operation;
use crate::program::Combine;
use crate::waits::Lists;

/// What a message is for the rank whose plan it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The rank sends it.
    Send,
    /// The rank awaits it, and combines it so.
    Receive(Combine),
}

/// One message that a rank sends or awaits. Sender and receiver give it the same name: chunk, stage,
/// step, the sender's rank and [`index`](Self::index). It is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its place among the messages of its chunk, from 0: in the order of the stages, of their steps,
    /// and within a step sends first.
    pub place: u32,
    /// Index of the stage within the chunk.
    pub stage: u32,
    /// The step of the stage.
    pub step: u32,
    /// To whom, or from whom: a rank of the fabric.
    pub peer: u32,
    /// Tells several messages from one rank to another in one step apart.
    pub index: u32,
    /// Whether it is sent, or how it is combined.
    pub action: Action,
    /// How many elements it carries.
    pub elements: u64,
    pub(super) ranges: Range<u32>,
}

/// A stage of a chunk, on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// Where.
    pub dimension: DimensionId,
    /// What it does there.
    pub operation: Operation,
    /// For each of its steps the first message, where its receives begin, and where it ends.
    pub(super) steps: Vec<[u32; 3]>,
}

impl Stage {
    /// How many steps it has: the same on all ranks, though a rank may have nothing to do in one.
    #[must_use]
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }
}

/// What a rank sends and awaits in one step of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// In the order in which they are to leave.
    pub sends: &'a [Message],
    /// In the order in which they are combined where they touch the same elements.
    pub receives: &'a [Message],
}

/// The messages of chunks that are alike but for where they begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) stages: Vec<Stage>,
    pub(super) messages: Vec<Message>,
    pub(super) ranges: Vec<Range<u64>>,
    pub(super) before: Lists,
    pub(super) after: Lists,
    pub(super) most_aside: u64,
}

/// What a rank does with one chunk. Chunks touch no elements in common, so each runs on its own.
///
/// A message is *done* when it has left (its bytes are read) or has been combined. It may be done as
/// soon as all that it [`waits_for`](Self::waits_for) is done: nothing else, in whatever order the
/// others come, changes the result by a bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub(super) shape: Arc<Shape>,
    pub(super) offset: u64,
}

impl Chunk {
    /// Its first element in the buffer; the next chunk's is where it ends.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.offset
    }

    /// Its stages, as in the plan; one in which the rank has nothing to do has no messages.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.shape.stages
    }

    /// All its messages; the one in place `i` is `messages()[i]`.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.shape.messages
    }

    /// The messages of a stage; none if there is no such stage.
    #[must_use]
    pub fn stage_messages(&self, stage: usize) -> &[Message] {
        match self.shape.stages.get(stage).map(|stage| stage.steps.as_slice()) {
            Some([first, .., last]) => &self.shape.messages[first[0] as usize..last[2] as usize],
            Some([only]) => &self.shape.messages[only[0] as usize..only[2] as usize],
            Some([]) | None => &[],
        }
    }

    /// A step of a stage; `None` if there is none.
    #[must_use]
    pub fn step(&self, stage: usize, step: usize) -> Option<Step<'_>> {
        let [first, middle, end] =
            self.shape.stages.get(stage)?.steps.get(step)?.map(|i| i as usize);
        let messages = &self.shape.messages;
        Some(Step { sends: &messages[first..middle], receives: &messages[middle..end] })
    }

    /// The receive that a frame of this name is for; `None` if the rank awaits none.
    #[must_use]
    pub fn receive(&self, stage: usize, step: usize, from: u32, index: u32) -> Option<&Message> {
        let receives = self.step(stage, step)?.receives;
        receives.iter().find(|message| message.peer == from && message.index == index)
    }

    /// The elements that a message carries, in the order in which it carries them: to the receiver's
    /// ranges go the bytes of the sender's, both laid end to end. Never empty ones; neighbours that
    /// touch are one range.
    pub fn ranges(&self, message: &Message) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        let ranges = message.ranges.start as usize..message.ranges.end as usize;
        self.shape.ranges[ranges].iter().map(|r| r.start + self.offset..r.end + self.offset)
    }

    /// The places of the messages that must be done before the one in `place` may be: for a send, the
    /// receives that touch its elements; for a receive, the receives and sends before it that do.
    /// What these wait for themselves is left out.
    #[must_use]
    pub fn waits_for(&self, place: u32) -> &[u32] {
        self.shape.before.of(place)
    }

    /// The places of the messages that wait for the one in `place`.
    #[must_use]
    pub fn frees(&self, place: u32) -> &[u32] {
        self.shape.after.of(place)
    }

    /// The most elements that can have come and not be combined yet, whatever the order: those of the
    /// receives that may find another undone. A receive that only replaces does not (but in an
    /// all-to-all): what comes was made of what this rank sent from there.
    #[must_use]
    pub fn most_aside(&self) -> u64 {
        self.shape.most_aside
    }
}
