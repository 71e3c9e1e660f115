//! What is to be planned.

use std::borrow::Cow;

use allrail_collective::algorithm::{self, OwnPrograms};
use allrail_collective::model::topology_aware;
use allrail_collective::{Algorithm, Operation};
use allrail_core::{Bytes, DimensionId, FieldError, Time};
use allrail_fabric::{Dimension, Fabric, Fastest, Kind};

use crate::algorithms::{Algorithms, Choice};
use crate::chunk::{self, ChunkScheduler, Composition, MAX_CHUNKS, Parameters, Plugins};
use crate::error::ScheduleError;
use crate::queue::Order;
use crate::room::ActiveChunks;

/// What is to be planned.
#[derive(Clone, Debug)]
pub struct Request {
    /// The network.
    pub fabric: Fabric,
    /// What the collective does.
    pub operation: Operation,
    /// The whole buffer.
    pub size: Bytes,
    /// The dimensions that it spans; all where empty.
    pub dimensions: Vec<DimensionId>,
    /// The chunk scheduler.
    pub policy: String,
    /// The order within a dimension.
    pub order: Order,
    /// How many chunks.
    pub chunks: u32,
    /// The algorithm of each dimension; where `None`, see [`Request::said`].
    pub algorithms: Option<Algorithms>,
    /// What `algorithms` may name beside those of [`allrail_collective::algorithm::ALL`].
    pub programs: OwnPrograms,
    /// How many stages a dimension runs at once; no limit where `None`.
    pub active_chunks: Option<ActiveChunks>,
    /// Added to every step.
    pub endpoint_delay: Time,
    /// The policies' parameters.
    pub parameters: Parameters,
    /// For policies that draw.
    pub seed: u64,
    /// Chunk schedulers that `policy` may name beside those of this crate.
    pub plugins: Plugins,
}

fn field(
    name: &str,
    value: impl std::fmt::Display,
    why: impl Into<String>,
    hint: &str,
) -> ScheduleError {
    ScheduleError::Field(FieldError::new(name, value, why, hint))
}

impl Request {
    /// The dimensions that the collective spans.
    #[must_use]
    pub fn spanned(&self) -> Vec<DimensionId> {
        if self.dimensions.is_empty() {
            self.fabric.ids().collect()
        } else {
            self.dimensions.clone()
        }
    }

    /// As many chunks as a buffer of `size` can have of those that are asked for.
    #[must_use]
    pub fn chunks_of(&self, size: Bytes) -> u32 {
        if self.parameters.smallest_chunk > Bytes::default() {
            return self.chunks;
        }
        // A chunk has one byte at least.
        self.chunks.min(u32::try_from(size.count()).unwrap_or(u32::MAX))
    }

    /// What is said of the algorithms. Where nothing is: the usual one of each kind of dimension, and over one that
    /// stands for a network without dimensions, which has no usual one, what is counted to be the fastest.
    #[must_use]
    pub fn said(&self) -> Cow<'_, Algorithms> {
        if let Some(said) = &self.algorithms {
            return Cow::Borrowed(said);
        }
        let dimensions = &self.fabric.dimensions;
        let spanned = self.spanned();
        let mut spanned = spanned.iter().filter_map(|id| dimensions.get(id.index()));
        // A part of a ring, whose cables are a ring's, has a ring's usual one.
        if spanned.any(|one| one.wiring.is_some() && one.kind == Kind::Switch) {
            return Cow::Owned(Algorithms::Auto);
        }
        let usual = |one: &Dimension| topology_aware(one.kind, self.operation);
        Cow::Owned(dimensions.iter().map(usual).collect())
    }

    /// The name of the algorithm on each dimension, as they are named.
    ///
    /// # Errors
    /// If the list is not as long as the fabric's.
    pub(crate) fn names(&self) -> Result<Vec<String>, ScheduleError> {
        let each = self.said().each(self.fabric.dimensions.len())?;
        Ok(each.into_iter().map(String::from).collect())
    }

    /// The same, merged where that is the only way.
    pub(crate) fn merged(&self) -> Cow<'_, Self> {
        if !self.ends_whole() {
            return Cow::Borrowed(self);
        }
        let mut merged = self.clone();
        merged.parameters.composition = Composition::Merged;
        Cow::Owned(merged)
    }

    /// Whether an all-reduce of stages can only end in a whole one: the algorithm that is named for its last
    /// dimension does nothing else, and the policy merges the two stages there.
    pub(crate) fn ends_whole(&self) -> bool {
        let spanned = self.spanned();
        let stages = self.operation == Operation::AllReduce
            && self.parameters.composition == Composition::Stages
            && spanned.len() > 1;
        let Some(Algorithms::Each(each)) = self.algorithms.as_ref().filter(|_| stages) else {
            return false;
        };
        let last = spanned.last().and_then(|id| each.get(id.index()));
        let Some(name) = last.cloned().and_then(Choice::named) else { return false };
        let does = self.programs.named(&name).map(Algorithm::operations).unwrap_or_default();
        does.contains(&Operation::AllReduce)
            && !does.contains(&Operation::ReduceScatter)
            && self.plugins.named(&self.policy).is_ok_and(ChunkScheduler::keeps_the_order)
    }

    /// Refuses what is out of range.
    ///
    /// # Errors
    /// Names the field.
    pub(crate) fn validate(&self) -> Result<(), ScheduleError> {
        check_measured(&self.fabric)?;
        if self.chunks > MAX_CHUNKS {
            return Err(field(
                "schedule.chunks",
                self.chunks,
                format!("more than {MAX_CHUNKS} chunks"),
                "64 is the usual number",
            ));
        }
        if self.active_chunks == Some(ActiveChunks::AtMost(0)) {
            return Err(field(
                "schedule.active_chunks",
                0,
                "no stage could ever run",
                "leave it out for no limit",
            ));
        }
        if self.parameters.threshold == 0 {
            return Err(field(
                "schedule.threshold",
                0,
                "the chunk size is divided by it",
                "16 is the paper's",
            ));
        }
        let mut seen = vec![false; self.fabric.dimensions.len()];
        for dimension in &self.dimensions {
            match seen.get_mut(dimension.index()) {
                None => {
                    return Err(field(
                        "collective.dimensions",
                        dimension.0,
                        format!("the fabric has dimensions 0 to {}", seen.len() - 1),
                        "dimensions are counted from 0, innermost first",
                    ));
                }
                Some(true) => {
                    return Err(field(
                        "collective.dimensions",
                        dimension.0,
                        "it is named twice",
                        "name each dimension once",
                    ));
                }
                Some(seen) => *seen = true,
            }
        }
        let composition = self.parameters.composition;
        if !self.plugins.named(&self.policy)?.composes(composition) {
            let composing = chunk::ALL.iter().filter(|policy| policy.composes(composition));
            let composing: Vec<String> = composing.map(|one| format!("`{}`", one.tag())).collect();
            return Err(field(
                "schedule.composition",
                format!("{:?}", self.parameters.composition).to_lowercase(),
                format!("only {} composes an all-reduce otherwise", composing.join(", ")),
                "use `stages`",
            ));
        }
        Ok(())
    }

    /// The operations that the stages of the plan can have.
    pub(crate) fn stage_operations(&self) -> &'static [Operation] {
        use Operation::{AllGather, AllReduce, ReduceScatter};
        match (self.operation, self.parameters.composition) {
            (AllReduce, Composition::Stages) => &[ReduceScatter, AllGather],
            (AllReduce, Composition::Merged) => &[ReduceScatter, AllGather, AllReduce],
            (AllReduce, Composition::Sequential) => &[AllReduce],
            (ReduceScatter, _) => &[ReduceScatter],
            (AllGather, _) => &[AllGather],
            (Operation::AllToAll, _) => &[Operation::AllToAll],
            (Operation::Broadcast, _) => &[Operation::Broadcast],
        }
    }
}

/// Refuses what a fabric says was the fastest, where there is no such collective or algorithm.
///
/// # Errors
/// Names the field.
fn check_measured(fabric: &Fabric) -> Result<(), ScheduleError> {
    for (d, dimension) in fabric.dimensions.iter().enumerate() {
        for (name, points) in &dimension.fastest {
            let field = format!("fabric.dimensions[{d}].fastest.{name}");
            let known = |tags: Vec<&str>| format!("use one of `{}`", tags.join("`, `"));
            let wrong = |value: &str, why: String, hint: String| {
                ScheduleError::Field(FieldError::new(field.clone(), value, why, hint))
            };
            let Some(operation) = Operation::ALL.into_iter().find(|one| one.tag() == name) else {
                let hint = known(Operation::ALL.iter().map(|one| one.tag()).collect());
                return Err(wrong(name, "it is not a collective".to_owned(), hint));
            };
            for Fastest { algorithm: tag, .. } in points {
                let all = || algorithm::ALL.iter().map(|one| one.tag()).collect();
                let found = algorithm::named(tag)
                    .map_err(|error| wrong(tag, error.to_string(), known(all())))?;
                if let Err(error) = algorithm::check(found, operation, dimension.size) {
                    let hint = "name one that does".to_owned();
                    return Err(wrong(tag, error.to_string(), hint));
                }
            }
        }
    }
    Ok(())
}
