//! A data plane that is not this node's: process groups that pair launches by their order.
//!
//! The engine decides as ever, with [`Ordering::Common`](allrail_engine::Ordering::Common): ranks agree over the
//! control connections, and each hands the same launches out in the same order on every dimension. Who carries
//! them takes them by [`Node::next_launches`](crate::Node::next_launches), gives them to the group of their
//! dimension in that order, and says which are over. A group queues what it is given, so a dimension is free
//! for the next launch as soon as it has one; the credit bounds how far that goes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_collective::rank::{Chunk, RankPlan};
use allrail_engine::engine::Event;
use allrail_engine::{Broken, CollectiveId, Run};
use allrail_schedule::{Key, OperationName};

use super::State;
use crate::{Launch, RuntimeError};

/// What was handed out, or waits for it.
#[derive(Default)]
pub(crate) struct Elsewhere {
    waiting: VecDeque<Launch>,
    parts: BTreeMap<CollectiveId, Arc<RankPlan>>,
    /// By number.
    running: BTreeMap<u64, (CollectiveId, StageRef, OperationName)>,
    numbers: u64,
}

impl Elsewhere {
    pub(super) fn begin(&mut self, id: CollectiveId, part: Arc<RankPlan>) {
        self.parts.insert(id, part);
    }

    pub(super) fn over(&mut self, id: CollectiveId) {
        self.parts.remove(&id);
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

impl State {
    /// A stage is launched: whoever carries it takes it from here.
    pub(super) fn hand_over(&mut self, run: &Run, operation: OperationName) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        let Some(part) = elsewhere.parts.get(&run.collective) else { return };
        let StageRef { chunk, stage } = run.at;
        let start = |chunk: usize| part.chunks.get(chunk).map(Chunk::start);
        let from = start(chunk as usize).unwrap_or_default();
        let to = start(chunk as usize + 1).unwrap_or(part.buffer.elements());
        let stages = part.chunks.get(chunk as usize).map_or(&[][..], |one| one.stages());
        let Some(kind) = stages.get(stage as usize).map(|one| one.operation) else { return };
        let slices = self.engine.slices(run.collective).unwrap_or_default();
        let number = elsewhere.numbers;
        elsewhere.numbers += 1;
        elsewhere.running.insert(number, (run.collective, run.at, operation));
        elsewhere.waiting.push_back(Launch {
            number,
            operation,
            chunk,
            stage: (stage, stages.len() as u32),
            kind,
            dimension: run.port,
            slices: slices.iter().map(|one| (one.key, one.elements.clone())).collect(),
            elements: from..to,
        });
        self.wakes.waiters = true;
        self.tell_or_note(Event::PortFree { port: run.port });
    }

    /// What was launched since this was asked last.
    pub(crate) fn take_launches(&mut self) -> Vec<Launch> {
        let waiting = self.elsewhere.as_mut().map(|one| std::mem::take(&mut one.waiting));
        waiting.unwrap_or_default().into()
    }

    fn take_running(
        &mut self,
        number: u64,
    ) -> Result<(CollectiveId, StageRef, OperationName), RuntimeError> {
        let running = self.elsewhere.as_mut().and_then(|one| one.running.remove(&number));
        running.ok_or_else(|| {
            let hint = "say of every launch of `next_launches` once that it is over";
            RuntimeError::setting("launch", number, "it is not under way", hint)
        })
    }

    /// A launch is over on this rank.
    pub(crate) fn launch_over(&mut self, number: u64) -> Result<(), RuntimeError> {
        let (id, at, _) = self.take_running(number)?;
        match self.tell(Event::StageOver { id, at }) {
            // The end came first.
            Ok(()) | Err(Broken::Stopped) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }

    /// A launch cannot be carried on: the job is over.
    pub(crate) fn launch_failed(&mut self, number: u64, why: String) -> Result<(), RuntimeError> {
        let (_, _, operation) = self.take_running(number)?;
        match self.tell(Event::Failed { operation, why }) {
            Ok(()) | Err(Broken::Stopped) => Ok(()),
            Err(broken) => Err(broken.into()),
        }
    }

    /// The tensor that this rank has to submit before this one can go on, where their order is frozen.
    pub(crate) fn blocked(&self, key: Key) -> Option<&str> {
        let other = self.engine.blocked(key)?;
        self.tensors.get(&other).map(|one| one.name.as_str())
    }
}
