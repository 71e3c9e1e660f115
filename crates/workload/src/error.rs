//! What can be wrong with a workload.

/// A mistake of the user's: which field, its value, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is `{value}`: {why}")]
pub struct WorkloadError {
    /// Such as `workload.parallelism.tp`.
    pub field: String,
    /// As given.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
    /// What to write instead.
    pub hint: String,
}

impl WorkloadError {
    /// An error in four parts.
    #[allow(clippy::needless_pass_by_value, reason = "callers give literals and numbers")]
    pub fn new(
        field: impl Into<String>,
        value: impl ToString,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.to_string(), why: why.into(), hint: hint.into() }
    }
}

/// A mistake in a field of `workload`.
pub(crate) fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.{field}"), value, why, hint)
}
