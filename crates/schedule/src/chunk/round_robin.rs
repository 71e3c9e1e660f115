//! `round_robin`: the baseline's order, of every chunk begun one dimension later.
//!
//! Chunk `i` begins on dimension `i mod D` of the `D` that the collective spans and goes round; an all-reduce
//! gathers the same way back. Loads come out even where dimensions are alike, whatever the chunks' number; where one is
//! slower than the others it makes that one no better. ASTRA-sim's `roundRobin`, whose count goes on from one
//! collective to the next; here each begins on the first dimension.

use allrail_collective::{Operation, Stage};
use allrail_core::DimensionId;

use super::{ChunkScheduler, Composition, Problem, baseline};
use crate::error::ScheduleError;

pub(super) struct RoundRobin;

impl ChunkScheduler for RoundRobin {
    fn tag(&self) -> &'static str {
        "round_robin"
    }

    fn about(&self) -> &'static str {
        "as the baseline, but every chunk begins one dimension later than the one before"
    }

    fn version(&self) -> u32 {
        1
    }

    fn composes(&self, _composition: Composition) -> bool {
        true
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        let composition = problem.parameters.composition;
        let count = problem.dimensions.len();
        let turned = |by: usize| {
            let mut dimensions: Vec<DimensionId> = problem.dimensions.to_vec();
            // An all-gather counts from the other end.
            match problem.operation {
                Operation::AllGather | Operation::Broadcast => dimensions.rotate_right(by),
                _ => dimensions.rotate_left(by),
            }
            baseline::order(problem.operation, &dimensions, composition)
        };
        let turns: Vec<Vec<Stage>> = (0..count).map(turned).collect();
        Ok((0..problem.chunks.len()).map(|chunk| turns[chunk % count].clone()).collect())
    }
}
