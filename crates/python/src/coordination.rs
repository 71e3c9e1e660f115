//! Coordination: bindings.

use allrail_simulate::coordination::request::StepsRequest;
use pyo3::prelude::*;

use crate::{simulate_error, to_json};

/// Runs training steps (JSON) under coordination and returns what they took (JSON).
#[pyfunction]
fn coordinate_steps(py: Python<'_>, request: &str) -> PyResult<String> {
    let request = StepsRequest::from_json(request).map_err(|error| simulate_error(&error))?;
    let outcome = py.detach(|| request.run());
    outcome.map(|outcome| to_json(&outcome)).map_err(|error| simulate_error(&error))
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(coordinate_steps, module)?)
}
