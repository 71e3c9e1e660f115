//! How many samples: of the job, of a replica, of a microbatch. Any of them follows from the others.
//!
//! ```text
//! global_batch = batch_per_replica × replicas      replicas = dp × ep
//! batch_per_replica = micro_batch × microbatches   microbatches: as many as stages, if left out
//! ```
//!
//! What is said twice must agree: nothing is dropped in silence.

use allrail_core::{FieldError, counted, either};

use crate::error::wrong;
use crate::spec::Workload;

/// The sizes of a step's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batches {
    /// Samples of a replica.
    pub(super) replica: u32,
    /// Into how many microbatches they are cut.
    pub(super) microbatches: u32,
}

impl Batches {
    /// Reads a workload's, over so many replicas of so many stages.
    ///
    /// # Errors
    /// None is given, one is zero, one does not divide another, two contradict each other.
    pub(super) fn new(workload: &Workload, replicas: u32, stages: u32) -> Result<Self, FieldError> {
        let parallelism = &workload.parallelism;
        for (field, value) in [
            ("global_batch", workload.global_batch),
            ("batch_per_replica", workload.batch_per_replica),
            ("micro_batch", workload.micro_batch),
            ("parallelism.microbatches", parallelism.microbatches),
        ] {
            if value == Some(0) {
                return Err(wrong(field, 0, "it is zero", "at least 1"));
            }
        }
        let own = match (workload.batch_per_replica, workload.micro_batch, parallelism.microbatches)
        {
            (None, Some(micro), Some(count)) => Some(micro.saturating_mul(count)),
            (batch, _, _) => batch,
        };
        let replica = Self::of_a_replica(workload.global_batch, own, replicas)?;
        let (micro, count) = (workload.micro_batch, parallelism.microbatches);
        let microbatches = Self::cut(replica, micro, count, stages)?;
        if !replica.is_multiple_of(microbatches) {
            let why = format!(
                "it is cut into {microbatches} {microbatch}",
                microbatch = either(&microbatches, "microbatch", "microbatches")
            );
            let hint = "a multiple of `microbatches` (as many as stages, if left out)";
            return Err(wrong("batch_per_replica", replica, &why, hint));
        }
        Ok(Self { replica, microbatches })
    }

    /// Samples of a replica, by those of the job or what is said of a replica.
    fn of_a_replica(
        global: Option<u32>,
        own: Option<u32>,
        replicas: u32,
    ) -> Result<u32, FieldError> {
        Ok(match (global, own) {
            (None, None) => {
                return Err(wrong(
                    "batch_per_replica",
                    "absent",
                    "a model needs it",
                    "samples of one iteration of a replica, such as 32, or `global_batch` of all",
                ));
            }
            (None, Some(own)) => own,
            (Some(global), None) => {
                if !global.is_multiple_of(replicas) {
                    let why = format!(
                        "{replicas} (`dp` × `ep`) share it",
                        replicas = counted(replicas, "replica")
                    );
                    let hint = format!("a multiple of {replicas}");
                    return Err(wrong("global_batch", global, &why, &hint));
                }
                global / replicas
            }
            (Some(global), Some(own)) => {
                if u64::from(own) * u64::from(replicas) != u64::from(global) {
                    let all = u64::from(own) * u64::from(replicas);
                    let why = format!(
                        "{} of {} are {all}",
                        counted(replicas, "replica"),
                        counted(own, "sample")
                    );
                    let hint = format!("write {all}, or leave out what is said of a replica");
                    return Err(wrong("global_batch", global, &why, &hint));
                }
                own
            }
        })
    }

    /// Into how many microbatches the samples of a replica are cut.
    fn cut(
        replica: u32,
        micro: Option<u32>,
        count: Option<u32>,
        stages: u32,
    ) -> Result<u32, FieldError> {
        Ok(match (micro, count) {
            (None, count) => count.unwrap_or(stages),
            (Some(micro), count) => {
                if !replica.is_multiple_of(micro) {
                    let why = format!("a replica has {}", counted(replica, "sample"));
                    return Err(wrong("micro_batch", micro, &why, "a divisor of that"));
                }
                let cut = replica / micro;
                if let Some(count) = count.filter(|count| *count != cut) {
                    let why = format!(
                        "{} in {} are not so many",
                        counted(replica, "sample"),
                        counted(count, "microbatch")
                    );
                    let hint = "leave out `micro_batch` or `parallelism.microbatches`";
                    return Err(wrong("micro_batch", micro, &why, hint));
                }
                cut
            }
        })
    }
}
