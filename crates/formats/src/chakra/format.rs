//! Chakra traces as `allrail import` takes them: read again, to be repeated over more NPUs.

use allrail_core::{FieldError, counted};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Options, alike, read};
use crate::{Files, Format, Read, kinds};

/// The format.
pub(crate) struct Chakra;

impl Format for Chakra {
    fn tag(&self) -> &'static str {
        "chakra"
    }

    fn about(&self) -> &'static str {
        "a Chakra trace: `NAME.<rank>.et`, or `NAME` without the ending"
    }

    fn recognises(&self, path: &Path) -> bool {
        let of_a_rank = path.extension().is_some_and(|ending| ending == "et");
        of_a_rank || (!path.exists() && has_ranks(path))
    }

    fn options(&self) -> &'static [&'static str] {
        &["groups", "npus", "at", "grow"]
    }

    fn read(&self, asked: &Files) -> Result<Read, FieldError> {
        let path = prefix(asked.first()?);
        let npus = asked.npus.unwrap_or(alike::of(&path)?.ranks);
        let options = Options {
            sizes: vec![npus],
            device: None,
            groups: asked.groups.clone(),
            scale: asked.scale.clone(),
            collectives: None,
        };
        let trace = read(&path, &options)?;
        let told = |(what, count): (&String, &u64)| format!("{what} ({})", counted(*count, "node"));
        Ok(Read {
            npus,
            kept: kinds(&trace.graph),
            measured: BTreeMap::new(),
            measured_us: BTreeMap::new(),
            timed: None,
            dropped: BTreeMap::new(),
            warnings: trace.warnings,
            notes: trace.notes.iter().map(told).collect(),
            graph: trace.graph,
        })
    }
}

/// Whether there is any `NAME.*.et`.
fn has_ranks(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let entries = std::fs::read_dir(folder.unwrap_or(Path::new(".")));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|file| file.into_string().ok()).any(|file| {
        file.strip_prefix(name).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".et"))
    })
}

/// `NAME` of `NAME.<rank>.et`, in its folder.
fn prefix(file: &Path) -> PathBuf {
    let name = file.file_name().and_then(|name| name.to_str());
    let named =
        name.and_then(|name| name.strip_suffix(".et")).and_then(|name| name.rsplit_once('.'));
    match named {
        Some((name, rank))
            if !rank.is_empty() && rank.bytes().all(|digit| digit.is_ascii_digit()) =>
        {
            file.with_file_name(name)
        }
        _ => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_stands_for_the_trace() {
        for (file, name) in [
            ("out/gpt.0.et", "out/gpt"),
            ("gpt.v2.31.et", "gpt.v2"),
            ("out/gpt", "out/gpt"),
            ("gpt.et", "gpt.et"),
            ("gpt.x.et", "gpt.x.et"),
        ] {
            assert_eq!(prefix(Path::new(file)), Path::new(name), "{file}");
        }
    }
}
