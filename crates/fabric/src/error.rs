//! What can be wrong with a fabric.

/// A mistake in a fabric's description. `field` is a path such as `fabric.dimensions[1].size`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is `{value}`: {why}")]
pub struct FabricError {
    /// Where it stands.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
    /// What to write instead.
    pub hint: String,
}

impl FabricError {
    /// An error in four parts.
    pub fn new(
        field: impl Into<String>,
        value: impl std::fmt::Display,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.to_string(), why: why.into(), hint: hint.into() }
    }
}
