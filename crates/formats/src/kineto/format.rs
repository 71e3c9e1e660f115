//! PyTorch's traces as `allrail import` takes them.

use std::collections::BTreeMap;
use std::path::Path;

use allrail_core::FieldError;

use super::{Amount, read};
use crate::{Files, Format, Read};

/// The format.
pub(crate) struct Kineto;

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
        &["step", "npus"]
    }

    fn read(&self, asked: &Files) -> Result<Read, FieldError> {
        let found = read(&asked.files, asked.step, asked.npus)?;
        let account = found.account;
        let mut kept = counts(&account.kept);
        let mut measured_us = times(&account.kept);
        measured_us.extend(times(&account.measured));
        if account.gaps.count > 0 {
            kept.insert("gaps of the host".to_owned(), account.gaps.count);
        }
        Ok(Read {
            graph: found.graph,
            npus: found.world_size,
            kept,
            measured: counts(&account.measured),
            measured_us,
            timed: found.timed,
            dropped: found.dropped.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect(),
            notes: found.notes,
            warnings: found.warnings,
        })
    }
}

fn counts(amounts: &BTreeMap<&'static str, Amount>) -> BTreeMap<String, u64> {
    amounts.iter().map(|(what, amount)| ((*what).to_owned(), amount.count)).collect()
}

fn times(amounts: &BTreeMap<&'static str, Amount>) -> BTreeMap<String, f64> {
    amounts.iter().map(|(what, amount)| ((*what).to_owned(), amount.us)).collect()
}
