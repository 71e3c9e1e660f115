//! Chunk schedulers from outside this crate, known by their names like those in [`ALL`].
//!
//! They travel with a request: this crate keeps no registry, so what a planner may call is part of its
//! input. Whoever makes one promises what this crate cannot see: that the same problem gives the same
//! stages, and that [`ChunkScheduler::version`] changes when they do.

use std::fmt;
use std::sync::Arc;

use allrail_core::FieldError;

use super::{ALL, ChunkScheduler};
use crate::error::ScheduleError;

/// Chunk schedulers beside those in [`ALL`]; none by default.
#[derive(Clone, Default)]
pub struct Plugins(Vec<Arc<dyn ChunkScheduler>>);

impl Plugins {
    /// These.
    #[must_use]
    pub fn new(schedulers: Vec<Arc<dyn ChunkScheduler>>) -> Self {
        Self(schedulers)
    }

    /// The chunk scheduler with this tag. One in [`ALL`] goes before a plugin of its name.
    ///
    /// # Errors
    /// [`ScheduleError::Field`] with the known names.
    pub fn named(&self, name: &str) -> Result<&dyn ChunkScheduler, ScheduleError> {
        let plugins = || self.0.iter().map(AsRef::as_ref);
        let mut all = ALL.iter().copied().chain(plugins());
        all.find(|scheduler| scheduler.tag() == name).ok_or_else(|| {
            let all = ALL.iter().copied().chain(plugins());
            let known: Vec<String> = all.map(|s| format!("`{}`", s.tag())).collect();
            ScheduleError::Field(FieldError::new(
                "schedule.policy",
                name,
                "it is not a chunk scheduler",
                format!("use one of {}", known.join(", ")),
            ))
        })
    }
}

impl fmt::Debug for Plugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|scheduler| scheduler.tag())).finish()
    }
}
