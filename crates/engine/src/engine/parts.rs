//! This rank's part of a plan for each size, and what the executor has to know of it; kept, so that the
//! steady state makes none.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_collective::plan::scattered_at_start;
use allrail_collective::rank::{Buffer, Plans, RankPlan};
use allrail_collective::{CollectivePlan, DimensionSet, Operation};
use allrail_core::Bytes;

use crate::{Broken, StageTask, Stages};
use allrail_schedule::room::Share;

/// What it takes to run a collective of one size.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) plan: Arc<RankPlan>,
    pub(super) stages: Arc<Stages>,
}

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted {
    pub(super) operation: Operation,
    /// Of a broadcast: a place in the group.
    pub(super) root: u32,
    /// Of other operations: which of many it is, where plans have ranks take turns; below their number.
    pub(super) turn: u32,
    pub(super) elements: u64,
    /// Bytes of an element.
    pub(super) width: u32,
}

struct Kept {
    part: Part,
    used: u64,
}

/// Parts by what they do and on which buffer: the one not used for longest makes place.
pub(super) struct Parts {
    plans: Plans,
    dimensions: DimensionSet,
    /// Whether any plan has ranks take turns; else each size needs one part only.
    take_turns: bool,
    granule: Bytes,
    room: usize,
    kept: BTreeMap<Wanted, Kept>,
    clock: u64,
}

impl Parts {
    pub(super) fn new(plans: Plans, dimensions: DimensionSet, granule: Bytes, room: usize) -> Self {
        let (room, kept) = (room.max(1), BTreeMap::new());
        let take_turns = plans.take_turns();
        Self { plans, dimensions, take_turns, granule, room, kept, clock: 0 }
    }

    /// A buffer of so many elements of so many bytes.
    pub(super) fn buffer(&self, elements: u64, width: u32) -> Result<Buffer, Broken> {
        Ok(Buffer::new(elements, width)?.cut_at(self.granule)?)
    }

    /// Kept from before, or made. Nothing runs of a buffer without elements.
    pub(super) fn of(&mut self, mut wanted: Wanted) -> Result<Part, Broken> {
        self.clock += 1;
        if !self.take_turns {
            wanted.turn = 0;
        }
        if let Some(kept) = self.kept.get_mut(&wanted) {
            kept.used = self.clock;
            return Ok(kept.part.clone());
        }
        let Wanted { operation, root, turn, elements, width } = wanted;
        let buffer = self.buffer(elements, width)?;
        let whole = self.plans.find(operation, self.dimensions, buffer.size())?;
        let stages = match elements {
            0 => Stages::new(Vec::new()),
            _ => stages(whole, buffer.size()),
        };
        let plan = if turn > 0 {
            self.plans.part_in_turn(operation, self.dimensions, turn, buffer)?
        } else {
            self.plans.part_from(operation, self.dimensions, root, buffer)?
        };
        let part = Part { plan, stages: Arc::new(stages) };
        if self.kept.len() >= self.room {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            oldest.and_then(|key| self.kept.remove(&key));
        }
        self.kept.insert(wanted, Kept { part: part.clone(), used: self.clock });
        Ok(part)
    }
}

/// The stages of a plan for `size` bytes. All of them, also where the rank has nothing to send: where a
/// common order is needed, every rank of a line launches every stage.
fn stages(plan: &CollectivePlan, size: Bytes) -> Stages {
    let mut stages = Stages::new(plan.dimension_order.clone());
    for chunk in &plan.chunks {
        let share = u128::from(chunk.bytes.count()) * u128::from(size.count());
        let share = u64::try_from(share / u128::from(plan.size.count().max(1))).unwrap_or(u64::MAX);
        let mut scattered = scattered_at_start(&chunk.stages);
        let divided = |scattered: DimensionSet| {
            let sizes = (0u32..).zip(&plan.fabric.dimensions);
            let sizes = sizes.filter(|(d, _)| scattered.bits() >> d & 1 == 1);
            share / sizes.map(|(_, of)| u64::from(of.size)).product::<u64>().max(1)
        };
        let tasks: Vec<StageTask> = (0u32..)
            .zip(&chunk.stages)
            .map(|(stage, of)| {
                let before = divided(scattered);
                match of.operation {
                    Operation::ReduceScatter => scattered = scattered.with(of.dimension),
                    Operation::AllGather => scattered = scattered.without(of.dimension),
                    Operation::AllReduce | Operation::Broadcast | Operation::AllToAll => {}
                }
                let gathers = of.operation == Operation::AllGather;
                StageTask {
                    stage,
                    port: of.dimension.0,
                    operation: of.operation,
                    buffer: Bytes::new(if gathers { divided(scattered) } else { before }),
                    brought: Bytes::new(before),
                    load: before,
                    // No clock says how long it takes; `active_chunks` is a number here.
                    share: Share::default(),
                }
            })
            .collect();
        stages.push(tasks);
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_collective::StageRef;

    #[test]
    fn the_stages_of_a_plan_handle_what_is_left_of_the_chunk() {
        let plan = crate::engine::switches::plan(
            &[4, 2],
            Operation::AllReduce,
            "baseline",
            Bytes::new(1600),
            1,
        );
        let stages = stages(&plan, Bytes::new(1600));
        let seen: Vec<(Operation, u32, u64, u64)> = stages
            .tasks()
            .iter()
            .map(|task| (task.operation, task.port, task.buffer.count(), task.brought.count()))
            .collect();
        let (scatter, gather) = (Operation::ReduceScatter, Operation::AllGather);
        assert_eq!(
            seen,
            [
                (scatter, 0, 1600, 1600),
                (scatter, 1, 400, 400),
                (gather, 1, 400, 200),
                (gather, 0, 1600, 400)
            ]
        );
        let planned = |at| stages.planned().iter().any(|order| order.contains(&at));
        assert!((0..4).all(|stage| planned(StageRef { chunk: 0, stage })));
    }
}
