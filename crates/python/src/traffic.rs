//! Traffic on graph fabrics: bindings.

use allrail_simulate::scenario;
use allrail_simulate::traffic::AllReduce;
use pyo3::prelude::*;

use crate::to_json;

/// The JSON schema of the key `packets`.
#[pyfunction]
fn packets_schema() -> String {
    to_json(&scenario::packets_schema())
}

/// The all-reduces of traffic: name, and whether NPUs do it, so that a step may take it too.
#[pyfunction]
fn grid_algorithms() -> String {
    let rows = AllReduce::all().map(|one| {
        serde_json::json!({ "name": one.tag(), "by_npus": matches!(one, AllReduce::Grid(_)) })
    });
    serde_json::Value::from_iter(rows).to_string()
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(packets_schema, module)?)?;
    module.add_function(wrap_pyfunction!(grid_algorithms, module)?)
}
