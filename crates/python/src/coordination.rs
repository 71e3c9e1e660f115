//! Coordination: bindings.

use allrail_schedule::coordinate;
use allrail_simulate::coordination::request::StepsRequest;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::{simulate_error, to_json};

/// Runs training steps (JSON) under coordination and returns what they took (JSON).
#[pyfunction]
fn coordinate_steps(py: Python<'_>, request: &str) -> PyResult<String> {
    let request = StepsRequest::from_json(request).map_err(|error| simulate_error(&error))?;
    let outcome = py.detach(|| request.run());
    outcome.map(|outcome| to_json(&outcome)).map_err(|error| simulate_error(&error))
}

/// The coordinations: name, about, version, the settings that each reads.
#[pyfunction]
fn coordinations() -> String {
    let none = json!({
        "name": coordinate::NONE,
        "about": "a tensor is ready when the last rank has it, without any talk",
        "version": 1,
        "reads": [],
    });
    let rows = coordinate::ALL.iter().map(|one| {
        json!({
            "name": one.tag(),
            "about": one.about(),
            "version": one.version(),
            "reads": one.reads(),
        })
    });
    Value::from_iter(std::iter::once(none).chain(rows)).to_string()
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(coordinate_steps, module)?)?;
    module.add_function(wrap_pyfunction!(coordinations, module)?)
}
