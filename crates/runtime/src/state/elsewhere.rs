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
use allrail_engine::engine::Slice;
use allrail_engine::{CollectiveId, Run};
use allrail_schedule::OperationName;

use crate::tensor::Launch;

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

    /// A stage of an operation is launched, of these elements; none of a stage that its plan does not have.
    pub(super) fn hand_over(
        &mut self,
        run: &Run,
        operation: OperationName,
        slices: &[Slice],
    ) -> Option<()> {
        let part = self.parts.get(&run.collective)?;
        let StageRef { chunk, stage } = run.at;
        let start = |chunk: usize| part.chunks.get(chunk).map(Chunk::start);
        let from = start(chunk as usize).unwrap_or_default();
        let to = start(chunk as usize + 1).unwrap_or(part.buffer.elements());
        let stages = part.chunks.get(chunk as usize).map_or(&[][..], |one| one.stages());
        let kind = stages.get(stage as usize)?.operation;
        let number = self.numbers;
        self.numbers += 1;
        self.running.insert(number, (run.collective, run.at, operation));
        self.waiting.push_back(Launch {
            number,
            operation,
            chunk,
            stage: (stage, stages.len() as u32),
            kind,
            dimension: run.port,
            slices: slices.iter().map(|one| (one.key, one.elements.clone())).collect(),
            elements: from..to,
        });
        Some(())
    }

    /// What was launched since this was asked last.
    pub(crate) fn take_launches(&mut self) -> Vec<Launch> {
        std::mem::take(&mut self.waiting).into()
    }

    /// A launch is not under way any more: which stage it was.
    pub(super) fn take_running(
        &mut self,
        number: u64,
    ) -> Option<(CollectiveId, StageRef, OperationName)> {
        self.running.remove(&number)
    }
}
