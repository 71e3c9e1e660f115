//! A [`CollectivePlan`]: what a chunk scheduler decided, as data.
//!
//! Every chunk, its stages, the dimension of each, and the order in which every dimension runs its
//! stages. The same plan is simulated in every network model, drawn, saved, reused in the next iteration
//! and executed. It is checked when it is loaded: a plan that lost a stage, runs one twice or asks
//! for an order that can never make progress is refused with the chunk and the stage named.

use allrail_core::{Bytes, DimensionId, FieldError, Time, counted};
use allrail_fabric::Fabric;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::algorithm::OwnPrograms;
use crate::{Algorithm, CollectiveError, DimensionSet, Operation, SizeRange};

/// The version of the plan's schema.
pub const SCHEMA_VERSION: u32 = 1;

/// One phase of one chunk on one dimension.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// What it does there.
    pub operation: Operation,
    /// Where.
    pub dimension: DimensionId,
}

/// A chunk: a part of the collective's buffer with an order of its own over the dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChunkPlan {
    /// Its share of the buffer.
    pub bytes: Bytes,
    /// Its stages, in the order in which it takes them.
    pub stages: Vec<Stage>,
}

/// A stage of a chunk, by position.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct StageRef {
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the stage within the chunk.
    pub stage: u32,
}

/// A scheduled collective.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectivePlan {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The chunk scheduler that made it.
    pub policy: String,
    /// The fabric that it was made for.
    pub fabric: Fabric,
    /// What it does.
    pub operation: Operation,
    /// The whole buffer.
    pub size: Bytes,
    /// The sizes that it holds for; without them, its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<SizeRange>,
    /// The dimensions that it spans.
    pub dimensions: Vec<DimensionId>,
    /// The algorithm on each dimension of the fabric.
    pub algorithms: Vec<String>,
    /// The programs of a user's own among them.
    #[serde(default, skip_serializing_if = "OwnPrograms::is_empty")]
    pub programs: OwnPrograms,
    /// Added to every step.
    pub endpoint_delay: Time,
    /// The chunks, in the order in which they are issued.
    pub chunks: Vec<ChunkPlan>,
    /// For every dimension of the fabric, the order in which it runs its stages.
    pub dimension_order: Vec<Vec<StageRef>>,
    /// The network model whose runs fixed that order, if it was not the model of `dims`.
    #[serde(default = "dims", skip_serializing_if = "is_dims")]
    pub order_made_in: String,
    /// The hash of the planner's inputs and version.
    pub key: String,
}

/// Where a planner fixes an order unless it runs the plan in another network model.
fn dims() -> String {
    "dims".to_owned()
}

fn is_dims(network_model: &str) -> bool {
    network_model == "dims"
}

/// The dimensions over which a chunk is scattered before its first stage: those that it gathers
/// without having scattered them. An all-gather's are all of them, an all-reduce's none.
#[must_use]
pub fn scattered_at_start(stages: &[Stage]) -> DimensionSet {
    let mut at_start = DimensionSet::default();
    let mut visited = DimensionSet::default();
    for stage in stages {
        if stage.operation == Operation::AllGather && !visited.contains(stage.dimension) {
            at_start = at_start.with(stage.dimension);
        }
        visited = visited.with(stage.dimension);
    }
    at_start
}

/// Names a stage in messages.
fn name(chunk: usize, index: usize, stage: Stage) -> String {
    format!(
        "chunk {chunk}, stage {index} ({} on {})",
        stage.operation.tag(),
        stage.dimension.name()
    )
}

fn refuse(text: String) -> CollectiveError {
    CollectiveError::Plan(text)
}

/// Checks that `stages` do `operation` over `dimensions`; `chunk` is for messages.
///
/// Each dimension is visited once (all-reduce: a reduce-scatter and, after the last
/// reduce-scatter, an all-gather; or one all-reduce in place of both).
///
/// # Errors
/// [`CollectiveError::Plan`] naming the chunk and the stage.
pub fn check_stages(
    chunk: usize,
    stages: &[Stage],
    operation: Operation,
    dimensions: &[DimensionId],
) -> Result<(), CollectiveError> {
    let mut scattered = vec![false; dimensions.len()];
    let mut done = vec![false; dimensions.len()];
    let mut gathering = false;
    for (index, stage) in stages.iter().enumerate() {
        let label = || name(chunk, index, *stage);
        let Some(d) = dimensions.iter().position(|id| *id == stage.dimension) else {
            return Err(refuse(format!(
                "{}: the collective does not span that dimension",
                label()
            )));
        };
        match (operation, stage.operation) {
            (Operation::AllReduce, Operation::ReduceScatter) => {
                if gathering {
                    return Err(refuse(format!("{} comes after an all-gather has begun", label())));
                }
                if scattered[d] || done[d] {
                    return Err(refuse(format!("{} is there twice", label())));
                }
                scattered[d] = true;
            }
            (Operation::AllReduce, Operation::AllReduce) => {
                if scattered[d] || done[d] {
                    return Err(refuse(format!("{} is there twice", label())));
                }
                if gathering {
                    return Err(refuse(format!("{} comes after an all-gather has begun", label())));
                }
                done[d] = true;
            }
            (Operation::AllReduce, Operation::AllGather) => {
                gathering = true;
                if done[d] {
                    return Err(refuse(format!("{} is there twice", label())));
                }
                if !scattered[d] {
                    return Err(refuse(format!("{} has no reduce-scatter before it", label())));
                }
                done[d] = true;
            }
            (whole, part) if whole == part => {
                if done[d] {
                    return Err(refuse(format!("{} is there twice", label())));
                }
                done[d] = true;
            }
            _ => return Err(refuse(format!("{} is no part of {operation}", label()))),
        }
    }
    if let Some(d) = done.iter().position(|done| !done) {
        let missing = if operation == Operation::AllReduce && scattered[d] {
            Operation::AllGather
        } else if operation == Operation::AllReduce {
            Operation::ReduceScatter
        } else {
            operation
        };
        return Err(refuse(format!(
            "chunk {chunk} has no {missing} on {}: stage {}, or one before it, is missing",
            dimensions[d].name(),
            stages.len(),
        )));
    }
    Ok(())
}

impl CollectivePlan {
    /// From how many ranks of this dimension on ranks are counted in turn, chunk by chunk; 1 where that is
    /// always the first. See [`Algorithm::turns`].
    #[must_use]
    pub fn turns(&self, dimension: DimensionId) -> u32 {
        let algorithm = self.algorithm(dimension);
        algorithm.map_or(1, |one| one.turns(self.fabric.dimension(dimension).size).max(1))
    }

    /// The algorithm of a dimension.
    ///
    /// # Errors
    /// [`CollectiveError::Plan`] if it names none; [`CollectiveError::UnknownAlgorithm`].
    pub fn algorithm(&self, dimension: DimensionId) -> Result<&dyn Algorithm, CollectiveError> {
        let name = self.algorithms.get(dimension.index()).ok_or_else(|| {
            CollectiveError::Plan(format!("it names no algorithm for {}", dimension.name()))
        })?;
        self.programs.named(name)
    }

    /// Checks that the plan holds together.
    ///
    /// # Errors
    /// [`CollectiveError::Plan`] naming the chunk and the stage that is wrong.
    pub fn check(&self) -> Result<(), CollectiveError> {
        if self.schema_version != SCHEMA_VERSION {
            return Err(refuse(format!(
                "schema_version is {}, this version reads {SCHEMA_VERSION}",
                self.schema_version
            )));
        }
        self.fabric.validate().map_err(|error| refuse(error.to_string()))?;
        let count = self.fabric.dimensions.len();
        if self.algorithms.len() != count || self.dimension_order.len() != count {
            return Err(refuse(format!(
                "the fabric has {count}, but `algorithms` has {} and `dimension_order` {}",
                self.algorithms.len(),
                self.dimension_order.len(),
                count = counted(count, "dimension")
            )));
        }
        let mut spanned = vec![false; count];
        for dimension in &self.dimensions {
            match spanned.get_mut(dimension.index()) {
                Some(seen) if !*seen => *seen = true,
                Some(_) => {
                    return Err(refuse(format!("`dimensions` names {} twice", dimension.name())));
                }
                None => {
                    return Err(refuse(format!("the fabric has no {}", dimension.name())));
                }
            }
        }
        if self.chunks.is_empty() || self.dimensions.is_empty() {
            return Err(refuse("it has no chunk or spans no dimension".to_owned()));
        }
        if let Some(range) = self.sizes
            && (!range.contains(self.size) || range.from == Bytes::default())
        {
            return Err(refuse(format!(
                "its `sizes` are {range}; they begin at 1 B at least and hold its own size, {}",
                self.size
            )));
        }
        let mut total = 0u64;
        for (i, chunk) in self.chunks.iter().enumerate() {
            check_stages(i, &chunk.stages, self.operation, &self.dimensions)?;
            if chunk.bytes == Bytes::default() {
                return Err(refuse(format!("chunk {i} has no bytes")));
            }
            total = total
                .checked_add(chunk.bytes.count())
                .ok_or_else(|| refuse(format!("the bytes of chunks 0 to {i} overflow")))?;
        }
        if total != self.size.count() {
            return Err(refuse(format!(
                "its chunks hold {total}, the collective {}",
                self.size.count(),
                total = counted(total, "byte")
            )));
        }
        self.check_order()
    }

    /// Every stage stands once in its dimension's order, and the orders can all be kept.
    fn check_order(&self) -> Result<(), CollectiveError> {
        let mut seen: Vec<Vec<bool>> =
            self.chunks.iter().map(|chunk| vec![false; chunk.stages.len()]).collect();
        for (d, order) in self.dimension_order.iter().enumerate() {
            for at in order {
                let (c, s) = (at.chunk as usize, at.stage as usize);
                let Some(stage) = self.chunks.get(c).and_then(|chunk| chunk.stages.get(s)) else {
                    return Err(refuse(format!(
                        "the order of dim{} names chunk {c}, stage {s}, which does not exist",
                        d + 1
                    )));
                };
                if stage.dimension.index() != d {
                    return Err(refuse(format!(
                        "the order of dim{} names {}",
                        d + 1,
                        name(c, s, *stage)
                    )));
                }
                if std::mem::replace(&mut seen[c][s], true) {
                    return Err(refuse(format!(
                        "the order of dim{} names {} twice",
                        d + 1,
                        name(c, s, *stage)
                    )));
                }
            }
        }
        for (c, stages) in seen.iter().enumerate() {
            if let Some(s) = stages.iter().position(|seen| !seen) {
                let stage = self.chunks[c].stages[s];
                return Err(refuse(format!(
                    "the order of {} leaves out {}",
                    stage.dimension.name(),
                    name(c, s, stage)
                )));
            }
        }
        self.check_progress()
    }

    /// Runs the orders without time: they must not wait for each other in a circle.
    fn check_progress(&self) -> Result<(), CollectiveError> {
        let mut next_stage = vec![0u32; self.chunks.len()];
        let mut next_place = vec![0usize; self.dimension_order.len()];
        loop {
            let mut moved = false;
            for (order, place) in self.dimension_order.iter().zip(&mut next_place) {
                while let Some(at) = order.get(*place) {
                    if next_stage[at.chunk as usize] != at.stage {
                        break;
                    }
                    next_stage[at.chunk as usize] += 1;
                    *place += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for (order, place) in self.dimension_order.iter().zip(&next_place) {
            if let Some(at) = order.get(*place) {
                let (c, s) = (at.chunk as usize, at.stage as usize);
                return Err(refuse(format!(
                    "the orders wait for each other in a circle at {}",
                    name(c, s, self.chunks[c].stages[s])
                )));
            }
        }
        Ok(())
    }
}

/// Divides `size` into `chunks` parts that differ by one byte at most, the larger ones spread
/// evenly.
///
/// # Errors
/// [`CollectiveError::Field`] if there is no chunk, or a chunk would be empty.
pub fn divide(size: Bytes, chunks: u32) -> Result<Vec<Bytes>, CollectiveError> {
    if chunks == 0 || u64::from(chunks) > size.count() {
        return Err(FieldError::new(
            "schedule.chunks",
            chunks,
            if chunks == 0 {
                "a collective has 1 chunk at least".to_owned()
            } else {
                format!("the collective has only {}", counted(size.count(), "byte"))
            },
            match size.count() {
                most @ 1..64 => format!("{most} at most"),
                _ => "64 is the usual number".to_owned(),
            },
        )
        .into());
    }
    let (size, chunks) = (u128::from(size.count()), u128::from(chunks));
    Ok((0..chunks)
        .map(|i| (i + 1) * size / chunks - i * size / chunks)
        .map(|bytes| Bytes::new(u64::try_from(bytes).expect("a part is no larger than the whole")))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_loses_nothing() {
        for (size, chunks) in [(1u64, 1u32), (7, 3), (1_000_000_000, 64), (64, 64)] {
            let parts = divide(Bytes::new(size), chunks).expect("enough bytes");
            assert_eq!(parts.iter().map(|part| part.count()).sum::<u64>(), size);
            let counts: Vec<u64> = parts.iter().map(|part| part.count()).collect();
            assert!(counts.iter().max().expect("one") - counts.iter().min().expect("one") <= 1);
        }
        assert!(divide(Bytes::new(3), 4).is_err());
        assert!(divide(Bytes::new(3), 0).is_err());
    }

    #[test]
    fn stages_must_do_the_operation() {
        let dims = [DimensionId(0), DimensionId(1)];
        let stage = |operation, d| Stage { operation, dimension: DimensionId(d) };
        use Operation::{AllGather as AG, AllReduce as AR, ReduceScatter as RS};
        let good = [stage(RS, 1), stage(RS, 0), stage(AG, 1), stage(AG, 0)];
        assert_eq!(check_stages(0, &good, AR, &dims), Ok(()));
        assert_eq!(check_stages(0, &[stage(RS, 0), stage(AR, 1), stage(AG, 0)], AR, &dims), Ok(()));
        for bad in [
            &good[..3],
            &[stage(RS, 0), stage(AG, 0), stage(RS, 1), stage(AG, 1)][..],
            &[stage(RS, 0), stage(RS, 0), stage(AG, 0), stage(AG, 0)][..],
            &[stage(AG, 0), stage(AG, 1)][..],
        ] {
            let error = check_stages(5, bad, AR, &dims).expect_err("refused");
            assert!(error.to_string().contains("chunk 5"), "{error}");
        }
    }
}
