//! A chunk under way on one rank: which sends may leave, which frames may be combined, which lie aside.
//!
//! What may be done when is all in [`Chunk::waits_for`]: a message is done once everything that it waits
//! for is done, and a send waits beside that until its stage was chosen. Frames may come in any order, as
//! soon as a peer sends them: before this rank has chosen the stage, and before it has begun an earlier
//! one. One that may not be combined yet is kept aside; there are never more elements of those than
//! [`Chunk::most_aside`], and a peer that would have more kept has broken the plan.
//!
//! Every message is done once. A frame that comes twice, that no step awaits or that has another length is
//! refused, and nothing has changed then.
//!
//! Calls, by kind:
//!
//! - what has happened: [`ChunkRun::begin`] (the executor has chosen a stage), [`ChunkRun::frame`] (a frame
//!   has come), [`ChunkRun::done`] (what was handed out is done);
//! - what is to be done: [`ChunkRun::next_work`] until it returns `None`. The driver reads the bytes of a
//!   send when it leaves, and combines frames in whatever order and on whatever thread: what is handed out
//!   at one time touches no elements in common, but for sends that read the same;
//! - getters: [`ChunkRun::is_over`] (then the driver says [`stage_over`](crate::Executor::stage_over)),
//!   [`ChunkRun::is_sending`] (once it is not, the link is idle and the
//!   [port free](crate::Executor::port_free) for another stage; the stage may send again after frames have
//!   come).

use std::collections::VecDeque;

use allrail_collective::rank::{Action, Chunk, Message};
use allrail_core::counted;
use thiserror::Error;

/// The name of a frame within a chunk; sender and receiver give it the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameAt {
    /// The stage of the chunk.
    pub stage: u32,
    /// The step of the stage.
    pub step: u32,
    /// Who has sent it.
    pub from: u32,
    /// Tells several of one sender in one step apart.
    pub index: u32,
}

/// What a driver or a peer did that the chunk's plan does not know. The run is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misfit {
    /// No step awaits it.
    #[error("{0:?} is awaited by no step")]
    Unawaited(FrameAt),
    /// It has come before.
    #[error("{0:?} has come before")]
    Twice(FrameAt),
    /// It is longer or shorter than the plan says.
    #[error("{at:?} has {bytes}; the plan says {expected}", bytes = counted(*.bytes, "byte"))]
    Length {
        /// Which.
        at: FrameAt,
        /// As it came.
        bytes: u64,
        /// As planned.
        expected: u64,
    },
    /// With it, more would lie aside than can if all keep to the plan.
    #[error(
        "{at:?} would be {aside} aside, and there are at most {most}",
        aside = counted(*.aside, "element")
    )]
    TooEarly {
        /// Which.
        at: FrameAt,
        /// How many would lie aside.
        aside: u64,
        /// How many can.
        most: u64,
    },
    /// The chunk has no such stage, or it was begun before.
    #[error("stage {0} cannot begin")]
    Stage(u32),
    /// A message that was not handed out, or is done already.
    #[error("message {0} is not being done")]
    NotHanded(u32),
}

impl Misfit {
    /// Who sent the frame, if it is about one.
    #[must_use]
    pub fn from(&self) -> Option<u32> {
        match self {
            Self::Unawaited(at)
            | Self::Twice(at)
            | Self::Length { at, .. }
            | Self::TooEarly { at, .. } => Some(at.from),
            Self::Stage(_) | Self::NotHanded(_) => None,
        }
    }
}

/// Something that the driver does now. The message in its place is `chunk().messages()[place]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work<F> {
    /// Read its elements and send them.
    Send {
        /// The message's place.
        place: u32,
    },
    /// Combine its elements with what came.
    Combine {
        /// The message's place.
        place: u32,
        /// As it came.
        frame: F,
    },
}

impl<F> Work<F> {
    /// The place of its message.
    #[must_use]
    pub fn place(&self) -> u32 {
        match self {
            Self::Send { place } | Self::Combine { place, .. } => *place,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A send whose stage was not chosen, or a frame that has not come.
    Absent,
    /// There, and waits for others.
    Waits,
    /// Ready, or handed out.
    Handed,
    Done,
}

#[derive(Clone, Debug)]
struct Place<F> {
    state: State,
    /// How many messages must be done before.
    pending: u32,
    frame: Option<F>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StageState {
    begun: bool,
    /// Messages that are not done.
    left: u32,
    /// Sends that may leave and have not.
    sending: u32,
}

/// See the module. `F` is whatever the driver has a frame in.
#[derive(Clone, Debug)]
pub struct ChunkRun<F> {
    chunk: Chunk,
    width: u32,
    places: Vec<Place<F>>,
    stages: Vec<StageState>,
    ready: VecDeque<u32>,
    aside: u64,
}

impl<F> ChunkRun<F> {
    /// Of a chunk whose elements are `width` bytes wide; nothing has begun.
    #[must_use]
    pub fn new(chunk: Chunk, width: u32) -> Self {
        let (places, stages, ready) = (Vec::new(), Vec::new(), VecDeque::new());
        let mut run = Self { chunk, width, places, stages, ready, aside: 0 };
        run.fill();
        run
    }

    /// The same for another chunk, in the memory of this one.
    pub(crate) fn renew(&mut self, chunk: Chunk, width: u32) {
        (self.chunk, self.width, self.aside) = (chunk, width, 0);
        self.ready.clear();
        self.fill();
    }

    fn fill(&mut self) {
        let Self { chunk, places, stages, .. } = self;
        places.clear();
        places.extend(chunk.messages().iter().map(|message| Place {
            state: State::Absent,
            pending: u32::try_from(chunk.waits_for(message.place).len()).unwrap_or(u32::MAX),
            frame: None,
        }));
        stages.clear();
        stages.extend((0..chunk.stages().len()).map(|stage| StageState {
            left: u32::try_from(chunk.stage_messages(stage).len()).unwrap_or(u32::MAX),
            ..StageState::default()
        }));
    }

    /// What runs.
    #[must_use]
    pub fn chunk(&self) -> &Chunk {
        &self.chunk
    }

    /// The message in a place that was handed out.
    #[must_use]
    pub fn message(&self, place: u32) -> Option<&Message> {
        self.chunk.messages().get(place as usize)
    }

    /// The executor has chosen a stage: its sends may leave.
    ///
    /// # Errors
    /// [`Misfit::Stage`].
    pub fn begin(&mut self, stage: u32) -> Result<(), Misfit> {
        let state = self.stages.get_mut(stage as usize).filter(|state| !state.begun);
        state.ok_or(Misfit::Stage(stage))?.begun = true;
        let messages = self.chunk.stage_messages(stage as usize);
        let range = messages.first().map_or(0, |first| first.place)
            ..messages.last().map_or(0, |last| last.place + 1);
        for place in range {
            if self.chunk.messages()[place as usize].action == Action::Send {
                self.places[place as usize].state = State::Waits;
                self.try_ready(place);
            }
        }
        Ok(())
    }

    /// A frame of `bytes` bytes has come.
    ///
    /// # Errors
    /// [`Misfit::Unawaited`], [`Misfit::Twice`], [`Misfit::Length`], [`Misfit::TooEarly`]; the frame is
    /// dropped.
    pub fn frame(&mut self, at: FrameAt, bytes: u64, frame: F) -> Result<(), Misfit> {
        let FrameAt { stage, step, from, index } = at;
        let message = self.chunk.receive(stage as usize, step as usize, from, index);
        let message = message.ok_or(Misfit::Unawaited(at))?;
        let (place, elements) = (message.place, message.elements);
        let state = &mut self.places[place as usize];
        if state.state != State::Absent {
            return Err(Misfit::Twice(at));
        }
        let expected = elements.saturating_mul(u64::from(self.width));
        if bytes != expected {
            return Err(Misfit::Length { at, bytes, expected });
        }
        if state.pending > 0 {
            let (aside, most) = (self.aside + elements, self.chunk.most_aside());
            if aside > most {
                return Err(Misfit::TooEarly { at, aside, most });
            }
            self.aside = aside;
        }
        state.state = State::Waits;
        state.frame = Some(frame);
        self.try_ready(place);
        Ok(())
    }

    fn try_ready(&mut self, place: u32) {
        let state = &mut self.places[place as usize];
        if state.state != State::Waits || state.pending > 0 {
            return;
        }
        state.state = State::Handed;
        let message = &self.chunk.messages()[place as usize];
        if message.action == Action::Send {
            self.stages[message.stage as usize].sending += 1;
        }
        self.ready.push_back(place);
    }

    /// The next thing to do now.
    pub fn next_work(&mut self) -> Option<Work<F>> {
        let place = self.ready.pop_front()?;
        Some(match self.places[place as usize].frame.take() {
            Some(frame) => Work::Combine { place, frame },
            None => Work::Send { place },
        })
    }

    /// A message that was handed out is done: its bytes were read, or are combined. Returns its stage.
    ///
    /// # Errors
    /// [`Misfit::NotHanded`].
    pub fn done(&mut self, place: u32) -> Result<u32, Misfit> {
        let state = self.places.get_mut(place as usize);
        let state = state.filter(|state| state.state == State::Handed && state.frame.is_none());
        state.ok_or(Misfit::NotHanded(place))?.state = State::Done;
        let message = &self.chunk.messages()[place as usize];
        let stage = message.stage;
        let of_stage = &mut self.stages[stage as usize];
        of_stage.left -= 1;
        if message.action == Action::Send {
            of_stage.sending -= 1;
        }
        for i in 0..self.chunk.frees(place).len() {
            let next = self.chunk.frees(place)[i];
            let freed = &mut self.places[next as usize];
            freed.pending -= 1;
            if freed.pending == 0 && freed.frame.is_some() {
                self.aside -= self.chunk.messages()[next as usize].elements;
            }
            self.try_ready(next);
        }
        Ok(stage)
    }

    /// Whether a stage was begun, and all its messages are done.
    #[must_use]
    pub fn is_over(&self, stage: u32) -> bool {
        self.stages.get(stage as usize).is_some_and(|state| state.begun && state.left == 0)
    }

    /// Whether a stage has sends that may leave and have not.
    #[must_use]
    pub fn is_sending(&self, stage: u32) -> bool {
        self.stages.get(stage as usize).is_some_and(|state| state.sending > 0)
    }

    /// Elements of frames that have come and must wait.
    #[must_use]
    pub fn aside(&self) -> u64 {
        self.aside
    }
}
