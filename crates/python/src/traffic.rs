//! Traffic on graph fabrics: bindings.

use allrail_simulate::traffic::{AllReduce, TrafficScenario, scenario, simulate};
use pyo3::prelude::*;

use crate::many::many;
use crate::{Watch, to_json};

/// Simulates traffic (JSON) and returns the result (JSON).
#[pyfunction]
#[pyo3(signature = (scenario, progress=None))]
fn simulate_traffic(
    py: Python<'_>,
    scenario: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut watch = Watch::new(progress);
    let result = py.detach(|| {
        let scenario = TrafficScenario::from_json(scenario)?;
        simulate(&scenario, &mut |done, total| watch.observe(done, total))
            .map(|result| to_json(&result))
    });
    watch.end(result)
}

/// Simulates traffic of many scenarios at once, `threads` at a time (all cores where `None`).
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn simulate_traffic_many(
    py: Python<'_>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    many(py, &scenarios, threads, progress, |text, _, look| {
        let scenario = TrafficScenario::from_json(text)?;
        simulate(&scenario, look).map(|result| to_json(&result))
    })
}

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
    module.add_function(wrap_pyfunction!(simulate_traffic, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_traffic_many, module)?)?;
    module.add_function(wrap_pyfunction!(packets_schema, module)?)?;
    module.add_function(wrap_pyfunction!(grid_algorithms, module)?)
}
