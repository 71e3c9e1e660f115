//! Tensor schedulers from outside this crate, known by their names like those in [`ALL`].
//!
//! They travel with the parameters that may name them, as chunk schedulers do with a request
//! ([`crate::chunk::Plugins`]): this crate keeps no registry. Whoever makes one promises what this crate cannot
//! see: that the same tensors and events give the same actions.

use std::fmt;
use std::sync::Arc;

use allrail_core::FieldError;

use super::{ALL, TensorPolicy};
use crate::error::ScheduleError;

/// Tensor schedulers beside those in [`ALL`]; none by default.
#[derive(Clone, Default)]
pub struct TensorPlugins(Vec<Arc<dyn TensorPolicy>>);

impl TensorPlugins {
    /// These.
    #[must_use]
    pub fn new(policies: Vec<Arc<dyn TensorPolicy>>) -> Self {
        Self(policies)
    }

    /// All of them: the crate's own, then these.
    pub fn all(&self) -> impl Iterator<Item = &dyn TensorPolicy> {
        ALL.iter().copied().chain(self.0.iter().map(AsRef::as_ref))
    }

    /// The tensor scheduler with this tag. One in [`ALL`] goes before a plugin of its name.
    ///
    /// # Errors
    /// [`ScheduleError::Field`] with the known names.
    pub fn named(&self, name: &str) -> Result<&dyn TensorPolicy, ScheduleError> {
        self.all().find(|policy| policy.tag() == name).ok_or_else(|| unknown(name, self.all()))
    }
}

/// Says that there is no tensor scheduler of a name, and which there are.
pub(super) fn unknown<'a>(
    name: &str,
    known: impl Iterator<Item = &'a dyn TensorPolicy>,
) -> ScheduleError {
    let known: Vec<String> = known.map(|one| format!("`{}`", one.tag())).collect();
    ScheduleError::Field(FieldError::new(
        "schedule.tensor.policy",
        name,
        "it is not a tensor scheduler",
        format!("use one of {}", known.join(", ")),
    ))
}

impl fmt::Debug for TensorPlugins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|policy| policy.tag())).finish()
    }
}

/// Equal if they have the same names and versions.
impl PartialEq for TensorPlugins {
    fn eq(&self, other: &Self) -> bool {
        let named = |one: &Arc<dyn TensorPolicy>| (one.tag().to_owned(), one.version());
        self.0.iter().map(named).eq(other.0.iter().map(named))
    }
}

impl Eq for TensorPlugins {}
