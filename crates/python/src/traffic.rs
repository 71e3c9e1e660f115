//! Traffic on graph fabrics: bindings.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use allrail_collective::grid;
use allrail_simulate::SimulateError;
use allrail_simulate::traffic::{TrafficScenario, scenario, simulate};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rayon::prelude::*;

use crate::{Watch, raise, simulate_error, to_json};

/// Simulates traffic (JSON) and returns the result (JSON).
#[pyfunction]
#[pyo3(signature = (scenario, progress=None))]
fn simulate_traffic(
    py: Python<'_>,
    scenario: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let scenario = TrafficScenario::from_json(scenario).map_err(|error| simulate_error(&error))?;
    let mut watch = Watch { progress, raised: None };
    let result = py.detach(|| simulate(&scenario, &mut |done, total| watch.observe(done, total)));
    result.map(|result| to_json(&result)).map_err(|error| watch.error(&error))
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
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let mut watch = Watch { progress, raised: None };
    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let one = |text: &String| {
        let look = &mut |_, _| match stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let result = TrafficScenario::from_json(text).and_then(|s| simulate(&s, look));
        done.fetch_add(1, Ordering::Relaxed);
        result.map(|result| to_json(&result))
    };
    // Only this thread hears of Ctrl-C, so the others work while it looks.
    let total = scenarios.len() as u64;
    let results: Vec<Result<String, SimulateError>> = py.detach(|| {
        std::thread::scope(|scope| {
            let work = scope.spawn(|| pool.install(|| scenarios.par_iter().map(one).collect()));
            while !work.is_finished() {
                if watch.observe(done.load(Ordering::Relaxed), total).is_break() {
                    stop.store(true, Ordering::Relaxed);
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            work.join().expect("a simulation does not panic")
        })
    });
    if watch.raised.is_some() {
        return Err(watch.error(&SimulateError::Interrupted));
    }
    let explained = (0usize..).zip(results).map(|(index, outcome)| {
        outcome.map_err(|error| {
            let mut report = error.report();
            report.field = format!("scenarios[{index}].{}", report.field);
            raise(&report)
        })
    });
    explained.collect()
}

/// The JSON schema of the key `packets`.
#[pyfunction]
fn packets_schema() -> String {
    to_json(&scenario::packets_schema())
}

/// The all-reduces on grids of ranks: name, about.
#[pyfunction]
fn grid_algorithms() -> String {
    let rows = grid::ALL.iter().map(|one| serde_json::json!({ "name": one.tag() }));
    serde_json::Value::from_iter(rows).to_string()
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(simulate_traffic, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_traffic_many, module)?)?;
    module.add_function(wrap_pyfunction!(packets_schema, module)?)?;
    module.add_function(wrap_pyfunction!(grid_algorithms, module)?)
}
