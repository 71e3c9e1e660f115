//! PyTorch's traces as `allrail import` takes them.

use std::collections::BTreeMap;
use std::path::Path;

use super::read;
use crate::error::WorkloadError;
use crate::formats::{Files, Format, Read};

/// The format.
pub(in crate::formats) struct Kineto;

impl Format for Kineto {
    fn tag(&self) -> &'static str {
        "kineto"
    }

    fn about(&self) -> &'static str {
        "PyTorch's profiler: `.json` or `.json.gz`, of one rank or of all"
    }

    fn recognises(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        [".json", ".json.gz"].iter().any(|ending| name.ends_with(ending))
    }

    fn options(&self) -> &'static [&'static str] {
        &["step"]
    }

    fn read(&self, asked: &Files) -> Result<Read, WorkloadError> {
        let found = read(&asked.files, asked.step)?;
        Ok(Read {
            graph: found.graph,
            npus: found.world,
            kept: owned(&found.kept),
            dropped: owned(&found.dropped),
            notes: found.notes,
        })
    }
}

fn owned(counts: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect()
}
