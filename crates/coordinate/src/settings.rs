//! What the policies can be told, and what cannot be meant.

use allrail_core::{Bytes, FieldError, Time};
use allrail_schedule::error::ScheduleError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CoordinationPolicy;

/// What the policies can be told. Each says which it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// How often a rank asks what is ready (Horovod's default: 1 ms). `agreed`: how long it gathers
    /// before it speaks again; 0 for at once.
    pub cycle: Time,
    /// How much is fused at most (64 MiB).
    pub threshold: Bytes,
    /// `cached`: how many responses are remembered (1,024).
    pub cache: u32,
    /// `tree`, `cached`, `agreed`: children of a node in the tree.
    pub fan_out: u32,
    /// After how long a tensor that waits for ranks is reported, with the ranks (60 s).
    pub stall: Time,
    /// After how long such a tensor stops the job; 0 for never.
    pub stall_shutdown: Time,
    /// After how long a rank that says nothing is given up (60 s).
    pub patience: Time,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cycle: Time::from_us(1_000),
            threshold: Bytes::new(64 << 20),
            cache: 1024,
            fan_out: 8,
            stall: Time::from_us(60_000_000),
            stall_shutdown: Time::ZERO,
            patience: Time::from_us(60_000_000),
        }
    }
}

impl Settings {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// The first field that is out of range.
    pub fn check(&self, policy: &dyn CoordinationPolicy) -> Result<(), ScheduleError> {
        let wrong = |key: &str, value: String, why: &str, hint: &str| {
            Err(ScheduleError::Field(FieldError::new(
                format!("schedule.coordination.{key}"),
                value,
                why,
                hint,
            )))
        };
        let reads = |key: &str| policy.reads().contains(&key);
        if self.cycle == Time::ZERO && policy.defaults().cycle > Time::ZERO {
            return wrong(
                "cycle",
                "0 s".to_owned(),
                "ranks would ask without a pause",
                "for example `cycle: 1 ms`; without a cycle works `policy: agreed`",
            );
        }
        if self.cache == 0 && reads("cache") {
            return wrong(
                "cache",
                "0".to_owned(),
                "a cache of nothing",
                "write 1 or more; without a cache is `policy: central`",
            );
        }
        if self.fan_out == 0 && reads("fan_out") {
            return wrong("fan_out", "0".to_owned(), "a tree has branches", "write 2 or more");
        }
        if self.stall == Time::ZERO {
            return wrong("stall", "0 s".to_owned(), "all tensors would be late", "write 60 s");
        }
        if self.patience == Time::ZERO {
            return wrong("patience", "0 s".to_owned(), "all ranks would be late", "write 60 s");
        }
        if self.stall_shutdown > Time::ZERO && self.stall_shutdown < self.stall {
            return wrong(
                "stall_shutdown",
                self.stall_shutdown.to_string(),
                "the job would stop before the warning",
                "write `stall` or more, or 0 s for never",
            );
        }
        Ok(())
    }
}
