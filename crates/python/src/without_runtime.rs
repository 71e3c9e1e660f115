//! What stands in for the runtime in a build without it: its names say how to get them.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What `runtime`, `job` and `memory` give the module.
const NAMES: [&str; 9] = [
    "Launch",
    "Memory",
    "Node",
    "RuntimeFault",
    "hashes_of",
    "in_flight",
    "job_alike",
    "job_schema",
    "job_settings",
];

/// Python calls it for a name that the module lacks (PEP 562).
#[pyfunction]
fn __getattr__(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    if !NAMES.contains(&name) {
        return Err(PyAttributeError::new_err(format!("`allrail._core` has no `{name}`")));
    }
    let more = PyDict::new(py);
    more.set_item("hint", "`make build` builds all of allrail")?;
    let why = "this build predicts and plans; it has no runtime (`make demo` made it)";
    let error = py.import("allrail.errors")?.getattr("InputError")?.call((why,), Some(&more))?;
    Err(PyErr::from_value(error))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(__getattr__, module)?)
}
