//! What can be wrong with a workload.

use allrail_core::FieldError;

/// A mistake in a field of `workload`.
pub(crate) fn wrong(
    field: &str,
    value: impl std::fmt::Display,
    why: &str,
    hint: &str,
) -> FieldError {
    FieldError::new(format!("workload.{field}"), value, why, hint)
}
