//! A collective of a training step as the messages of its plan, over parts of dimensions.
//!
//! In `links`, whose fabric has dimensions, a collective is planned on its group's parts as in `dims`,
//! and a chunk's stages are the messages of their algorithms, one stage after the other.
//!
//! Ignored: the dimension queues. Chunks start together, and links serve their messages first come,
//! first served.

use std::sync::Arc;

use allrail_collective::{Operation, Program, Stage, Steps, algorithm};
use allrail_core::{Bytes, DimensionId};
use allrail_schedule::{Request, planner};
use allrail_workload::Part;

use super::lowered::Parts;
use crate::SimulateError;

/// More messages than this in one stage are refused.
const MOST_MESSAGES: u64 = 1 << 24;

/// A collective over the parts of dimensions of a group. Its ranks are numbered by their coordinates
/// on the parts, the first part fastest.
pub(super) fn on_dimensions(
    request: &Request,
    parts: &[Part],
    operation: Operation,
    bytes: Bytes,
) -> Result<Parts, SimulateError> {
    let parts: Vec<Part> = parts.iter().filter(|part| part.size > 1).copied().collect();
    let mut fabric = request.fabric.clone();
    fabric.dimensions = parts
        .iter()
        .map(|part| {
            let mut dimension = request.fabric.dimension(part.dimension).clone();
            dimension.size = part.size;
            dimension
        })
        .collect();
    let algorithms = request.algorithms.as_ref().map(|names| {
        parts.iter().filter_map(|part| names.get(part.dimension.index()).cloned()).collect()
    });
    let dimensions = Vec::new();
    let plan = planner::plan(&Request {
        fabric,
        operation,
        size: bytes,
        dimensions,
        algorithms,
        ..request.clone()
    })?;
    let mut shape = Vec::new();
    let mut stride = 1;
    for part in &parts {
        shape.push((part.size, stride));
        stride *= part.size;
    }
    let mut programs: Vec<(Operation, DimensionId, Arc<Program>)> = Vec::new();
    let mut chunks: Parts = Vec::new();
    for chunk in &plan.chunks {
        let mut scattered = allrail_collective::plan::scattered_at_start(&chunk.stages);
        let mut reached = vec![operation != Operation::Broadcast; parts.len()];
        let mut stages = Vec::new();
        for &Stage { operation, dimension } in &chunk.stages {
            let known = programs.iter().find(|known| (known.0, known.1) == (operation, dimension));
            let program = if let Some(known) = known {
                Arc::clone(&known.2)
            } else {
                let name = &plan.algorithms[dimension.index()];
                let algorithm = algorithm::named(name)?;
                let size = shape[dimension.index()].0;
                let messages = match operation {
                    Operation::AllToAll => u64::from(size).pow(3),
                    _ => u64::from(size).pow(2) * 2,
                };
                if messages > MOST_MESSAGES {
                    return Err(SimulateError::Field {
                        field: "world".to_owned(),
                        value: "links".to_owned(),
                        why: format!("`{name}` over {size} NPUs has too many messages"),
                        hint: "use `world: dims`".to_owned(),
                    });
                }
                let program = Arc::new(algorithm.program(operation, size));
                programs.push((operation, dimension, Arc::clone(&program)));
                program
            };
            let divisor: u64 = (0u32..)
                .zip(&shape)
                .filter(|(d, _)| scattered.without(dimension).bits() >> d & 1 == 1)
                .map(|(_, (size, _))| u64::from(*size))
                .product();
            reached[dimension.index()] = true;
            stages.push(StageSteps {
                block: Bytes::new(
                    chunk.bytes.count().div_ceil(divisor * u64::from(program.blocks)),
                ),
                dimension: dimension.index(),
                steps: u32::try_from(program.step_count()).expect("few steps"),
                program,
                reached: reached.clone(),
            });
            match operation {
                Operation::ReduceScatter => scattered = scattered.with(dimension),
                Operation::AllGather => scattered = scattered.without(dimension),
                _ => {}
            }
        }
        chunks.push(Arc::new(Staged { ranks: stride, shape: shape.clone(), stages }));
    }
    Ok(chunks)
}

/// A stage of a chunk.
struct StageSteps {
    program: Arc<Program>,
    steps: u32,
    dimension: usize,
    block: Bytes,
    /// Of a broadcast: the dimensions on which the data has spread, with this one.
    reached: Vec<bool>,
}

/// The stages of a chunk, one after the other.
struct Staged {
    ranks: u32,
    /// Size and stride of each part.
    shape: Vec<(u32, u32)>,
    stages: Vec<StageSteps>,
}

impl Staged {
    /// The stage, its step, and the rank's place on the stage's dimension if it takes part.
    fn at(&self, rank: u32, step: u32) -> Option<(&StageSteps, u32, u32)> {
        let mut left = step;
        let stage = self.stages.iter().find(|stage| {
            let found = left < stage.steps;
            if !found {
                left -= stage.steps;
            }
            found
        })?;
        let (size, stride) = self.shape[stage.dimension];
        let mut lines = self.shape.iter().zip(&stage.reached);
        let concerned = lines
            .all(|((size, stride), reached)| *reached || (rank / stride).is_multiple_of(*size));
        concerned.then(|| (stage, left, rank / stride % size))
    }
}

impl Steps for Staged {
    fn ranks(&self) -> u32 {
        self.ranks
    }

    fn steps(&self) -> u32 {
        self.stages.iter().map(|stage| stage.steps).sum()
    }

    fn sends(&self, rank: u32, step: u32, out: &mut Vec<(u32, Bytes)>) {
        let Some((stage, step, place)) = self.at(rank, step) else { return };
        let (_, stride) = self.shape[stage.dimension];
        for send in &stage.program.steps[place as usize][step as usize].sends {
            let to = rank - place * stride + send.to * stride;
            let bytes = stage.block.count() * u64::from(send.blocks.len());
            out.push((to, Bytes::new(bytes)));
        }
    }

    fn expected(&self, rank: u32, step: u32) -> u32 {
        self.at(rank, step).map_or(0, |(stage, step, place)| {
            let receives = &stage.program.steps[place as usize][step as usize].receives;
            u32::try_from(receives.len()).expect("few messages")
        })
    }
}
