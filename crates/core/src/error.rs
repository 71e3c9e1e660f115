//! The one form of an error in what a user wrote.

use std::fmt;

use serde::Serialize;

/// A mistake in one field: where it stands, what stands there, what is wrong and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("`{field}` is `{value}`: {why}")]
pub struct FieldError {
    /// Path of the field, such as `fabric.dimensions[1].size`; empty where no one field is at fault.
    pub field: String,
    /// Its value as given, or empty.
    pub value: String,
    /// What is wrong with it.
    pub why: String,
    /// What to write instead.
    pub hint: String,
}

impl FieldError {
    /// An error in four parts.
    pub fn new(
        field: impl Into<String>,
        value: impl fmt::Display,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { field: field.into(), value: value.to_string(), why: why.into(), hint: hint.into() }
    }
}
