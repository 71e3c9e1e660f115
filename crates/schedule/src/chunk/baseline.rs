//! `baseline`: every chunk takes the same fixed order, as in multi-rail hierarchical collectives.
//!
//! Reduce-scatter from the innermost dimension outwards, all-gather back inwards, so that the
//! outer dimensions see the smallest buffers; all-to-all outwards, broadcast inwards.

use allrail_collective::{Operation, Stage};
use allrail_core::DimensionId;

use super::{ChunkScheduler, Composition, Problem, composed, stages};
use crate::error::ScheduleError;

pub(super) struct Baseline;

impl ChunkScheduler for Baseline {
    fn tag(&self) -> &'static str {
        "baseline"
    }

    fn about(&self) -> &'static str {
        "every chunk in the same fixed order: reduce-scatter outwards, all-gather inwards"
    }

    fn version(&self) -> u32 {
        1
    }

    fn composes(&self, _composition: Composition) -> bool {
        true
    }

    fn keeps_the_order(&self) -> bool {
        true
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        let order = order(problem.operation, problem.dimensions, problem.parameters.composition);
        Ok(vec![order; problem.chunks.len()])
    }
}

/// The fixed order of every chunk.
pub(super) fn order(
    operation: Operation,
    dimensions: &[DimensionId],
    composition: Composition,
) -> Vec<Stage> {
    let outwards = dimensions.to_vec();
    let inwards: Vec<DimensionId> = dimensions.iter().rev().copied().collect();
    match (operation, composition) {
        (Operation::AllReduce, _) => composed(operation, &outwards, &inwards, composition),
        (Operation::AllGather | Operation::Broadcast, _) => stages(operation, &inwards, &[]),
        _ => stages(operation, &outwards, &[]),
    }
}
