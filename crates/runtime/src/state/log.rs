//! What is remembered for people: records of what has happened, and notes of what should not have.

use crate::record::Ring;

/// How many notes are kept.
const MOST_NOTES: usize = 256;

/// Records and notes.
pub(crate) struct Log {
    /// What has happened, the last of it.
    pub(crate) records: Ring,
    /// What was seen that should not be, for the report; the first of them.
    notes: Vec<String>,
}

impl Log {
    pub(super) fn new(records: u32) -> Self {
        Self { records: Ring::new(records), notes: Vec::new() }
    }

    /// Remembers something for the report.
    pub(crate) fn note(&mut self, what: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(what);
        }
    }

    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }
}
