//! Proves that the messages of a scenario's plans do what its collectives ask.
//!
//! Chunks with the same stages have the same messages; each kind is composed over the dimensions
//! and proved once.

use std::ops::ControlFlow;

use allrail_collective::{Stage, hierarchical, verify};
use allrail_core::{DimensionId, FieldError, counted};
use serde::Serialize;

use crate::collectives::plan_for_dims;
use crate::error::SimulateError;
use crate::runs::Runs;
use crate::scenario::CollectiveScenario;

/// More ranks than this are refused: the proof follows every block on every rank.
const MAX_RANKS: u64 = 1024;

/// What was proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Ranks of the largest collective.
    pub ranks: u32,
    /// Different chunk schedules proved.
    pub schedules: u64,
    /// Messages of one chunk of each.
    pub messages: u64,
    /// Steps of one chunk of each.
    pub steps: u64,
}

/// Plans a scenario and proves its messages right.
///
/// # Errors
/// Names the field that is wrong; the chunk, the rank and the step of a violation.
pub fn prove(scenario: &CollectiveScenario) -> Result<Proof, SimulateError> {
    let file = plan_for_dims(scenario, &mut Runs::new(&mut |_, _| ControlFlow::Continue(())))?;
    let mut proof = Proof::default();
    for plan in &file.plans {
        let size = |id: &DimensionId| scenario.fabric.dimension(*id).size;
        let ranks: u64 = plan.dimensions.iter().map(|id| u64::from(size(id))).product();
        if ranks > MAX_RANKS {
            return Err(FieldError::new(
                "fabric.dimensions",
                counted(ranks, "rank"),
                format!("a proof follows every block on every rank, {MAX_RANKS} at most"),
                "prove the same schedule on a smaller fabric",
            )
            .into());
        }
        let dimensions = plan
            .dimensions
            .iter()
            .map(|id| Ok((size(id), plan.algorithm(*id)?)))
            .collect::<Result<Vec<_>, SimulateError>>()?;
        let mut proved: Vec<Vec<Stage>> = Vec::new();
        for (i, chunk) in plan.chunks.iter().enumerate() {
            if proved.contains(&chunk.stages) {
                continue;
            }
            let stages = positions(&chunk.stages, &plan.dimensions);
            let program = hierarchical::compose(&dimensions, &stages, plan.operation)?;
            let proof_of_chunk = verify::verify(&program, plan.operation).map_err(|violation| {
                SimulateError::Wrong { chunk: i, violation: violation.to_string() }
            })?;
            proof.ranks = proof.ranks.max(proof_of_chunk.ranks);
            proof.messages += proof_of_chunk.messages;
            proof.steps += u64::from(proof_of_chunk.steps);
            proof.schedules += 1;
            proved.push(chunk.stages.clone());
        }
    }
    Ok(proof)
}

/// The stages with each dimension's place among those that the collective spans.
fn positions(stages: &[Stage], dimensions: &[DimensionId]) -> Vec<Stage> {
    stages
        .iter()
        .map(|stage| {
            let place = dimensions.iter().position(|id| *id == stage.dimension);
            let place = place.expect("a checked plan's stages are on its dimensions");
            let place = u32::try_from(place).expect("few dimensions");
            Stage { dimension: DimensionId(place), ..*stage }
        })
        .collect()
}
