//! What is fuzzed. An input is one file; where a reader takes several, they are cut at [`NEXT`].

use std::fs;
use std::path::{Path, PathBuf};

use allrail_core::FieldError;
use allrail_formats::{self as formats, astra_sim, chakra, kineto};
use allrail_workload::steps::Steps;
use allrail_workload::{StepGraph, Workload};
use serde::Deserialize;
use serde_json::Value;

/// How reading ended: what was read in a few words, or the error.
pub(super) type Ended = Result<String, FieldError>;

/// A reader.
pub(super) struct Target {
    /// Its corpus' folder.
    pub(super) name: &'static str,
    /// Reads an input; the folder is for files.
    pub(super) read: fn(&Path, &[u8]) -> Ended,
}

/// All that are fuzzed.
pub(super) const TARGETS: &[Target] = &[
    Target { name: "trace", read: trace },
    Target { name: "trace_scaled", read: trace_scaled },
    Target { name: "trace_groups", read: trace_groups },
    Target { name: "kineto", read: kineto },
    Target { name: "layers", read: layers },
    Target { name: "steps", read: steps },
    Target { name: "model", read: model },
];

/// Between the files of an input.
const NEXT: &[u8] = b"\n-- next file --\n";

fn files(folder: &Path, input: &[u8], most: usize, name: impl Fn(usize) -> String) -> Vec<PathBuf> {
    let mut rest = Some(input);
    let mut paths = Vec::new();
    while let Some(bytes) = rest.filter(|_| paths.len() < most) {
        let cut = bytes.windows(NEXT.len()).position(|window| window == NEXT);
        rest = cut.map(|at| &bytes[at + NEXT.len()..]);
        let path = folder.join(name(paths.len()));
        super::put(&path, &bytes[..cut.unwrap_or(bytes.len())]);
        paths.push(path);
    }
    paths
}

/// A graph in a few words: sizes in powers of two, so that a new power is a new end.
fn shape(graph: &StepGraph) -> String {
    let power = |count: usize| count.checked_ilog2().map_or(0, |power| power + 1);
    let edges: usize = graph.ids().map(|id| graph.after(id).len()).sum();
    format!(
        "read: {} nodes, {} edges, {} groups, {} actors",
        power(graph.ids().count()),
        power(edges),
        power(graph.groups().len()),
        power(graph.actors().len())
    )
}

/// A trace of one or two ranks, read and, where it can be, written.
fn trace(folder: &Path, input: &[u8]) -> Ended {
    let ranks = files(folder, input, 2, |rank| format!("trace.{rank}.et")).len();
    let sizes = [u32::try_from(ranks).expect("two at most")];
    let options = chakra::Options { sizes: sizes.to_vec(), ..chakra::Options::default() };
    let read = chakra::read(&folder.join("trace"), &options);
    let _ = fs::remove_file(folder.join("trace.1.et"));
    let read = read?;
    if read.nodes < 256 {
        chakra::write(&read.graph, &sizes, (&folder.join("again"), "trace"), chakra::Ranks::All)?;
    }
    Ok(shape(&read.graph))
}

/// A trace of one rank on eight NPUs.
fn trace_scaled(folder: &Path, input: &[u8]) -> Ended {
    files(folder, input, 1, |rank| format!("trace.{rank}.et"));
    let scale = Some(chakra::Scale::default());
    let options = chakra::Options { sizes: vec![4, 2], scale, ..chakra::Options::default() };
    Ok(shape(&chakra::read(&folder.join("trace"), &options)?.graph))
}

/// `comm_group.json`, then the trace that names its groups.
fn trace_groups(folder: &Path, input: &[u8]) -> Ended {
    let named = |file: usize| match file {
        0 => "comm_group.json".to_owned(),
        rank => format!("trace.{}.et", rank - 1),
    };
    let ranks = files(folder, input, 3, named).len() - 1;
    let sizes = vec![u32::try_from(ranks).expect("two at most")];
    let options = chakra::Options { sizes, ..chakra::Options::default() };
    let read = chakra::read(&folder.join("trace"), &options);
    for rank in 0..ranks {
        let _ = fs::remove_file(folder.join(format!("trace.{rank}.et")));
    }
    Ok(shape(&read?.graph))
}

/// A profiler's trace, of one rank or two, plain or zipped: all of it, and its step 1.
fn kineto(folder: &Path, input: &[u8]) -> Ended {
    let files = files(folder, input, 2, |rank| format!("rank{rank}.json"));
    let whole = kineto::read(&files, None, None)?;
    let step = kineto::read(&files, Some(1), None);
    Ok(format!("{} {}", shape(&whole.graph), step.is_ok()))
}

fn json(input: &[u8]) -> Result<Value, FieldError> {
    serde_json::from_slice(input)
        .map_err(|error| FieldError::new("file", "", error.to_string(), "write JSON"))
}

/// A layer file, as Python's reader hands it over.
fn layers(_: &Path, input: &[u8]) -> Ended {
    let file = astra_sim::parse(&json(input)?)?;
    Ok(shape(&astra_sim::build(&file, &[2, 4, 2])?))
}

/// Steps written out.
fn steps(_: &Path, input: &[u8]) -> Ended {
    let steps = Steps::deserialize(json(input)?)
        .map_err(|error| FieldError::new("steps", "", error.to_string(), "see the presets"))?;
    steps.sizes()?;
    Ok(shape(&steps.build()?))
}

/// A whole workload: models by their sizes, Hugging Face's `config.json`, layouts.
fn model(_: &Path, input: &[u8]) -> Ended {
    let workload = Workload::deserialize(json(input)?)
        .map_err(|error| FieldError::new("workload", "", error.to_string(), "see the docs"))?;
    let sizes = [4, 2];
    let built = match formats::build(&workload, &sizes)? {
        Some(built) => built,
        None => allrail_workload::build(&workload, &sizes)?,
    };
    Ok(shape(&built.graph))
}
