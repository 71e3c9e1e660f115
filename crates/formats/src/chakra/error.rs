//! What can be wrong with a trace: which file, where, why, and what to do.

use std::path::Path;

use allrail_core::FieldError;

/// A mistake in a trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}: {why}")]
pub struct TraceError {
    /// As the user named it.
    pub file: String,
    /// A byte, or a node.
    pub place: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl TraceError {
    pub(super) fn new(
        file: &Path,
        place: impl Into<String>,
        why: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            file: file.display().to_string(),
            place: place.into(),
            why: why.into(),
            hint: hint.into(),
        }
    }

    pub(super) fn unreadable(file: &Path, error: &std::io::Error) -> Self {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such file".to_owned(),
            _ => format!("it cannot be read or written: {error}"),
        };
        Self::new(
            file,
            "the file",
            why,
            "a trace is `DIR/NAME`, for the files `DIR/NAME.<rank>.et`",
        )
    }
}

impl From<TraceError> for FieldError {
    fn from(error: TraceError) -> Self {
        Self::new(
            "workload.model.trace",
            error.file,
            format!("{}: {}", error.place, error.why),
            error.hint,
        )
    }
}
