//! Other tools' formats: bindings.

use std::path::PathBuf;

use allrail_collective::algorithm::OwnPrograms;
use allrail_collective::msccl;
use allrail_core::FieldError;
use allrail_formats::chakra::Ranks;
use allrail_formats::{self as formats, convert};
use allrail_simulate::SimulateError;
use allrail_simulate::training::export;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::{Watch, parsed, raise, read_scenario, to_json};

/// Imports a trace as a Chakra trace: a request (JSON), a report (JSON).
#[pyfunction]
fn import_trace(py: Python<'_>, request: &str) -> PyResult<String> {
    let request: convert::Import = parsed(request).map_err(raise)?;
    let done = py.detach(|| convert::import(&request).map(|report| to_json(&report)));
    done.map_err(raise)
}

/// The formats that are imported: name, about, the options that each reads.
#[pyfunction]
#[pyo3(name = "formats")]
fn formats_table() -> String {
    let rows = formats::ALL
        .iter()
        .map(|f| json!({ "name": f.tag(), "about": f.about(), "options": f.options() }));
    Value::from_iter(rows).to_string()
}

/// The name of the format that recognises a file; `None` if none does.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn recognise(py: Python<'_>, path: PathBuf) -> Option<&'static str> {
    py.detach(|| formats::recognise(&path)).map(allrail_formats::Format::tag)
}

/// Reads a program of MSCCL and lays it out as an algorithm under a name; returns it (JSON).
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn read_program(py: Python<'_>, path: PathBuf, name: &str) -> PyResult<String> {
    let read = || msccl::open(&path).and_then(|text| msccl::algorithm(name, &text));
    let own = py.detach(read).map_err(|msccl::Wrong { place, why, hint }| {
        raise(FieldError::new("schedule.algorithms", name, format!("{place}: {why}"), hint))
    })?;
    Ok(py.detach(|| to_json(&own.written())))
}

/// Refuses programs by name (JSON) of which one is not right.
#[pyfunction]
fn check_programs(py: Python<'_>, programs: &str) -> PyResult<()> {
    let read = py.detach(|| serde_json::from_str::<OwnPrograms>(programs).map(drop));
    read.map_err(|error| raise(FieldError::new("schedule.programs", "", error.to_string(), "")))
}

/// Writes a training scenario's step graph (JSON) as a Chakra trace, of `all` ranks or a `representative` of
/// those that are alike; returns what was written (JSON).
#[pyfunction]
#[pyo3(signature = (scenario, folder, name, ranks, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn export_chakra(
    py: Python<'_>,
    scenario: &str,
    folder: PathBuf,
    name: &str,
    ranks: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let whose: Ranks = serde_json::from_value(ranks.into())
        .map_err(|error| raise(SimulateError::Form(error.to_string())))?;
    let calls = Calls::new();
    let mut watch = Watch::with_plugins(progress, &calls);
    let written = py.detach(|| {
        let told = &mut |done, total| watch.observe(done, total);
        export(&read_scenario(scenario, &calls)?, (&folder, name), whose, told)
    });
    watch.end(written).map(|summary| {
        json!({
            "files": summary.files,
            "nodes": summary.nodes,
            "bytes": summary.bytes,
            "groups": summary.groups,
        })
        .to_string()
    })
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(import_trace, module)?)?;
    module.add_function(wrap_pyfunction!(formats_table, module)?)?;
    module.add_function(wrap_pyfunction!(recognise, module)?)?;
    module.add_function(wrap_pyfunction!(read_program, module)?)?;
    module.add_function(wrap_pyfunction!(check_programs, module)?)?;
    module.add_function(wrap_pyfunction!(export_chakra, module)?)
}
