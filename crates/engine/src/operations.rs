//! The bytes of all operations on one rank: which frame is whose, and what may be done now.
//!
//! Frames carry their full name, so nothing has to be in order. A frame of an operation that this rank has
//! not opened yet is kept until it is, in bounded memory; one of an operation that is closed, or of another
//! life of the job, is refused. What is refused has changed nothing.
//!
//! Calls, by kind:
//!
//! - commands: [`Operations::open`] (before the first stage of an operation runs), [`Operations::close`]
//!   (after its last, or to give it up), [`Operations::exchanged`] (after the last of a generation),
//!   [`Operations::forget`] (of a name of calls);
//! - what has happened: [`Operations::begin`], [`Operations::frame`], [`Operations::done`];
//! - what is to be done: [`Operations::next_work`] until it returns `None`;
//! - getters: [`Operations::run`], [`Operations::is_over`], [`Operations::is_sending`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_collective::rank::RankPlan;
use allrail_core::Bytes;
use allrail_schedule::operation::{Key, OperationName};
use thiserror::Error;

use crate::chunk_run::{ChunkRun, FrameAt, Misfit, Work};
use crate::closed::Closed;
use crate::signature_hash::{Differs, SignatureHash};

/// The whole name of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameName {
    /// Of what.
    pub operation: OperationName,
    /// Of which chunk.
    pub chunk: u32,
    /// Where in it.
    pub at: FrameAt,
}

/// Why a frame or a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It belongs to another life of the job.
    #[error("{name:?} is of epoch {}, and this is epoch {epoch}", name.operation.epoch)]
    Epoch {
        /// The frame.
        name: FrameName,
        /// This rank's.
        epoch: u32,
    },
    /// Its operation is over on this rank.
    #[error("{0:?} has come late: the operation is over")]
    Late(FrameName),
    /// It came before its operation was opened, and again.
    #[error("{0:?} has come before")]
    Twice(FrameName),
    /// More would be kept for operations that are not open than there is room for.
    #[error(
        "with {name:?}, {bytes} would be kept of operations that are not open here; at most {most}"
    )]
    NoRoom {
        /// The frame.
        name: FrameName,
        /// With it.
        bytes: Bytes,
        /// The bound.
        most: Bytes,
    },
    /// It does not fit the plan of its chunk.
    #[error("{operation}, chunk {chunk}: {misfit}")]
    Misfit {
        /// Of what.
        operation: OperationName,
        /// Of which chunk.
        chunk: u32,
        /// What is wrong.
        misfit: Misfit,
    },
    /// It is of another operation than this rank has under that name.
    #[error("it is of another operation than is under this name here: {differs}")]
    Signature {
        /// The frame.
        name: FrameName,
        /// How.
        differs: Differs,
    },
    /// It is of a part that no rank can have: the others of its tensor's generation are over.
    #[error("{0:?} is of a part that is not there")]
    Beyond(FrameName),
    /// The operation has no such chunk.
    #[error("{0:?} is of a chunk that is not there")]
    NoChunk(FrameName),
    /// The operation has no such chunk.
    #[error("{operation} has no chunk {chunk}")]
    Chunk {
        /// Of what.
        operation: OperationName,
        /// Which.
        chunk: u32,
    },
    /// The operation is not open.
    #[error("{0} is not open")]
    NotOpen(OperationName),
    /// The operation was opened before.
    #[error("{0} was opened before")]
    Opened(OperationName),
}

impl Refused {
    /// Who sent the frame, by its rank in the fabric; none where a call of the driver was refused.
    #[must_use]
    pub fn from(&self) -> Option<u32> {
        match self {
            Self::Epoch { name, .. }
            | Self::Late(name)
            | Self::Twice(name)
            | Self::NoRoom { name, .. }
            | Self::Signature { name, .. }
            | Self::Beyond(name)
            | Self::NoChunk(name) => Some(name.at.from),
            Self::Misfit { misfit, .. } => misfit.from(),
            Self::Chunk { .. } | Self::NotOpen(_) | Self::Opened(_) => None,
        }
    }
}

/// A frame whose operation is not open.
struct Early<F> {
    signature: SignatureHash,
    bytes: u64,
    frame: F,
}

struct Open<F> {
    signature: SignatureHash,
    part: Arc<RankPlan>,
    chunks: Vec<ChunkRun<F>>,
}

/// See the module. `F` is whatever the driver has a frame in.
pub struct Operations<F> {
    epoch: u32,
    most_early: Bytes,
    open: BTreeMap<OperationName, Open<F>>,
    closed: Closed,
    early: BTreeMap<FrameName, Early<F>>,
    early_bytes: u64,
    work: VecDeque<(OperationName, u32, Work<F>)>,
    /// Runs whose memory is used again.
    spare: Vec<ChunkRun<F>>,
}

impl<F> Operations<F> {
    /// None yet; of operations that are not open, at most `most_early` bytes are kept.
    #[must_use]
    pub fn new(epoch: u32, most_early: Bytes) -> Self {
        Self {
            epoch,
            most_early,
            open: BTreeMap::new(),
            closed: Closed::default(),
            early: BTreeMap::new(),
            early_bytes: 0,
            work: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// An operation begins on this rank; frames of it that have come already are taken in.
    ///
    /// # Errors
    /// [`Refused::Opened`], or what is wrong with a frame that was kept; the operation is open then.
    pub fn open(
        &mut self,
        name: OperationName,
        signature: SignatureHash,
        part: Arc<RankPlan>,
    ) -> Result<(), Refused> {
        if self.open.contains_key(&name) || self.closed.contains(name) {
            return Err(Refused::Opened(name));
        }
        let width = part.buffer.width();
        let run = |chunk: &allrail_collective::rank::Chunk| match self.spare.pop() {
            Some(mut run) => {
                run.renew(chunk.clone(), width);
                run
            }
            None => ChunkRun::new(chunk.clone(), width),
        };
        let chunks = part.chunks.iter().map(run).collect();
        self.open.insert(name, Open { signature, part, chunks });
        let mut wrong = None;
        while let Some((name, Early { signature, bytes, frame })) = self.take_early(name) {
            if let Err(refused) = self.frame(name, signature, bytes, frame) {
                wrong.get_or_insert(refused);
            }
        }
        wrong.map_or(Ok(()), Err)
    }

    fn take_early(&mut self, operation: OperationName) -> Option<(FrameName, Early<F>)> {
        let least = FrameAt { stage: 0, step: 0, from: 0, index: 0 };
        let from = FrameName { operation, chunk: 0, at: least };
        let name = *self.early.range(from..).next()?.0;
        let kept = (name.operation == operation).then(|| self.early.remove(&name))??;
        self.early_bytes -= kept.bytes;
        Some((name, kept))
    }

    /// The driver is done with an operation: frames of it that still come are late.
    ///
    /// # Errors
    /// [`Refused::NotOpen`].
    pub fn close(&mut self, name: OperationName) -> Result<(), Refused> {
        let open = self.open.remove(&name).ok_or(Refused::NotOpen(name))?;
        self.spare.extend(open.chunks);
        self.closed.close(name);
        Ok(())
    }

    /// All parts of a tensor's generation, or of a call, are over.
    ///
    /// # Errors
    /// [`Refused::Beyond`], with a frame that was kept for a part that never began.
    pub fn exchanged(&self, group: u32, key: Key, generation: u64) -> Result<(), Refused> {
        let epoch = self.epoch;
        let operation = OperationName { epoch, group, key, generation, part: 0 };
        let least = FrameAt { stage: 0, step: 0, from: 0, index: 0 };
        let kept = self.early.range(FrameName { operation, chunk: 0, at: least }..).next();
        match kept {
            Some((name, _)) if OperationName { part: 0, ..name.operation } == operation => {
                Err(Refused::Beyond(*name))
            }
            _ => Ok(()),
        }
    }

    /// A name of calls may be forgotten: whether its frames are late only
    /// [`Engine::home`](crate::engine::Engine::home) says from now on, until its next call is closed.
    pub fn forget(&mut self, group: u32, key: Key) {
        self.closed.forget(group, key);
    }

    /// The executor has chosen a stage.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Chunk`], [`Refused::Misfit`].
    pub fn begin(&mut self, name: OperationName, at: StageRef) -> Result<(), Refused> {
        self.on(name, at.chunk, |run| run.begin(at.stage))
    }

    /// A frame of `bytes` bytes has come, of an operation that its sender has under this signature.
    ///
    /// # Errors
    /// As it is: of another epoch, late, twice, too early, of another operation, or unknown to the plan. It
    /// is dropped.
    pub fn frame(
        &mut self,
        name: FrameName,
        signature: SignatureHash,
        bytes: u64,
        frame: F,
    ) -> Result<(), Refused> {
        let FrameName { operation, chunk, at } = name;
        if operation.epoch != self.epoch {
            return Err(Refused::Epoch { name, epoch: self.epoch });
        }
        if let Some(open) = self.open.get(&operation) {
            if signature != open.signature {
                let differs = Differs { theirs: signature, ours: open.signature };
                return Err(Refused::Signature { name, differs });
            }
            if chunk as usize >= open.chunks.len() {
                return Err(Refused::NoChunk(name));
            }
            return self.on(operation, chunk, |run| run.frame(at, bytes, frame));
        }
        if self.closed.contains(operation) {
            return Err(Refused::Late(name));
        }
        if self.early.contains_key(&name) {
            return Err(Refused::Twice(name));
        }
        let all = self.early_bytes.saturating_add(bytes);
        if all > self.most_early.count() {
            return Err(Refused::NoRoom { name, bytes: Bytes::new(all), most: self.most_early });
        }
        self.early_bytes = all;
        self.early.insert(name, Early { signature, bytes, frame });
        Ok(())
    }

    /// A message that was handed out is done. Returns the stage that it belongs to.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Chunk`], [`Refused::Misfit`].
    pub fn done(
        &mut self,
        name: OperationName,
        chunk: u32,
        place: u32,
    ) -> Result<StageRef, Refused> {
        let stage = self.on(name, chunk, |run| run.done(place))?;
        Ok(StageRef { chunk, stage })
    }

    fn on<T>(
        &mut self,
        operation: OperationName,
        chunk: u32,
        change: impl FnOnce(&mut ChunkRun<F>) -> Result<T, Misfit>,
    ) -> Result<T, Refused> {
        let open = self.open.get_mut(&operation).ok_or(Refused::NotOpen(operation))?;
        let run = open.chunks.get_mut(chunk as usize);
        let run = run.ok_or(Refused::Chunk { operation, chunk })?;
        let misfit = |misfit| Refused::Misfit { operation, chunk, misfit };
        let result = change(run).map_err(misfit)?;
        while let Some(work) = run.next_work() {
            self.work.push_back((operation, chunk, work));
        }
        Ok(result)
    }

    /// The next thing to do now: of which operation, in which chunk.
    pub fn next_work(&mut self) -> Option<(OperationName, u32, Work<F>)> {
        self.work.pop_front()
    }

    /// A chunk of an open operation.
    #[must_use]
    pub fn run(&self, name: OperationName, chunk: u32) -> Option<&ChunkRun<F>> {
        self.open.get(&name)?.chunks.get(chunk as usize)
    }

    /// What the frames of an open operation carry beside its name.
    #[must_use]
    pub fn signature(&self, name: OperationName) -> Option<SignatureHash> {
        Some(self.open.get(&name)?.signature)
    }

    /// What an open operation does on this rank.
    #[must_use]
    pub fn part(&self, name: OperationName) -> Option<&Arc<RankPlan>> {
        Some(&self.open.get(&name)?.part)
    }

    /// Whether a stage was begun, and all its messages are done.
    #[must_use]
    pub fn is_over(&self, name: OperationName, at: StageRef) -> bool {
        self.run(name, at.chunk).is_some_and(|run| run.is_over(at.stage))
    }

    /// Whether a stage has sends that may leave and have not.
    #[must_use]
    pub fn is_sending(&self, name: OperationName, at: StageRef) -> bool {
        self.run(name, at.chunk).is_some_and(|run| run.is_sending(at.stage))
    }

    /// Operations that are not open here, and who has sent frames of them.
    pub fn early_names(&self) -> impl Iterator<Item = (u32, OperationName)> + '_ {
        self.early.keys().map(|name| (name.at.from, name.operation))
    }

    /// Bytes of frames whose operations are not open here.
    #[must_use]
    pub fn early(&self) -> Bytes {
        Bytes::new(self.early_bytes)
    }
}
