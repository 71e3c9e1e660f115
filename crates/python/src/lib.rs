//! The Python module `allrail._core`. Bindings only: JSON text in, JSON text out; every decision is
//! in the crates beneath.

mod calls;
mod compression;
#[cfg(feature = "runtime")]
mod dlpack;
mod failures;
mod foreign;
#[cfg(feature = "runtime")]
mod job;
mod many;
#[cfg(feature = "runtime")]
mod memory;
mod networks;
mod placement;
mod plugin;
mod registry;
#[cfg(feature = "runtime")]
mod runtime;
mod tensor_plugin;
mod traffic;
mod training;
mod watch;
#[cfg(not(feature = "runtime"))]
mod without_runtime;

use allrail_collective::algorithm;
use allrail_core::{Bandwidth, Bytes, FieldError, Time, UnitError, dtype};
use allrail_fabric::Kind;
use allrail_schedule::{made, queue};
use allrail_simulate::scenario::{JobKind, NETWORK_MODELS};
use allrail_simulate::training::{BoundResult, bound};
use allrail_simulate::{Options, PlanFile, Scenario, SimulateError};
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::many::many;
use crate::watch::Watch;

create_exception!(
    _core,
    InputError,
    PyValueError,
    "A mistake in the input; `args[0]` is JSON with `field`, `value`, `why` and `hint`."
);

/// A mistake in the input, as Python raises it.
fn raise<E: Into<SimulateError>>(error: E) -> PyErr {
    InputError::new_err(to_json(&error.into().report()))
}

fn to_json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("results are plain data")
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, SimulateError> {
    serde_json::from_str(text).map_err(|error| SimulateError::Form(error.to_string()))
}

/// Reads a scenario of the kind that whoever calls this takes.
pub(crate) fn read_scenario<J: JobKind>(
    text: &str,
    calls: &Calls,
) -> Result<Scenario<J>, SimulateError> {
    Scenario::with_plugins(text, &calls.plugins(), &calls.tensor_plugins())
}

/// Simulates a scenario of any kind (JSON) and returns the result (JSON). A timeline of more than `most`
/// slices is left out.
#[pyfunction]
#[pyo3(signature = (scenario, plan=None, timeline=false, progress=None, most=None))]
fn simulate(
    py: Python<'_>,
    scenario: &str,
    plan: Option<&str>,
    timeline: bool,
    progress: Option<Py<PyAny>>,
    most: Option<usize>,
) -> PyResult<String> {
    let calls = Calls::new();
    let mut watch = Watch::with_plugins(progress, &calls);
    let result = py.detach(|| {
        let scenario = read_scenario(scenario, &calls)?;
        let plan = plan.map(PlanFile::from_json).transpose()?;
        let options = Options { plan: plan.as_ref(), timeline, most_slices: most };
        allrail_simulate::simulate(scenario, &options, &mut |done, total| {
            watch.observe(done, total)
        })
        .map(|outcome| to_json(&outcome))
    });
    watch.end(result)
}

/// Simulates many scenarios of any kinds at once, `threads` at a time (all cores where `None`).
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn simulate_many(
    py: Python<'_>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    many(py, &scenarios, threads, progress, |text, calls, look| {
        let scenario = read_scenario(text, calls)?;
        let result = allrail_simulate::simulate(scenario, &Options::default(), look);
        result.map(|result| to_json(&result))
    })
}

/// What is known of many training steps without a simulation: memory, and a time that none of them beats.
#[pyfunction]
#[pyo3(signature = (scenarios, threads=None, progress=None))]
#[expect(clippy::needless_pass_by_value, reason = "arguments from Python are owned")]
fn bound_many(
    py: Python<'_>,
    scenarios: Vec<String>,
    threads: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<String>> {
    many(py, &scenarios, threads, progress, |text, calls, _| {
        let scenario = read_scenario(text, calls)?;
        bound(&scenario).map(|bound| to_json(&BoundResult::from(bound)))
    })
}

/// Plans every collective of a scenario.
#[pyfunction]
#[pyo3(signature = (scenario, progress=None))]
fn plan(py: Python<'_>, scenario: &str, progress: Option<Py<PyAny>>) -> PyResult<String> {
    let calls = Calls::new();
    let mut watch = Watch::with_plugins(progress, &calls);
    let plan = py.detach(|| {
        let scenario = read_scenario(scenario, &calls)?;
        allrail_simulate::plan_watched(&scenario, &mut |done, total| watch.observe(done, total))
            .map(|plan| to_json(&plan))
    });
    watch.end(plan)
}

/// The hash of everything that `plan` depends on.
#[pyfunction]
fn plan_key(py: Python<'_>, scenario: &str) -> PyResult<String> {
    let calls = Calls::new();
    py.detach(|| allrail_simulate::plan_key(&read_scenario(scenario, &calls)?)).map_err(raise)
}

/// Checks a plan; with a scenario, also that it was made for it.
#[pyfunction]
#[pyo3(signature = (plan, scenario=None))]
fn check_plan(py: Python<'_>, plan: &str, scenario: Option<&str>) -> PyResult<()> {
    let calls = Calls::new();
    let checked = py.detach(|| {
        let plan = PlanFile::from_json(plan)?;
        scenario.map_or(Ok(()), |text| plan.check_for(&read_scenario(text, &calls)?))
    });
    checked.map_err(raise)
}

/// The JSON schema of every part of a scenario, by the name of its type.
#[pyfunction]
fn scenario_keys() -> String {
    Value::Object(allrail_simulate::keys::keys()).to_string()
}

/// The JSON schema of plan files.
#[pyfunction]
fn plan_schema() -> String {
    to_json(&schemars::schema_for!(PlanFile))
}

fn unit_error(error: UnitError) -> PyErr {
    raise(FieldError::new("", error.text, error.why, error.hint))
}

/// A `time` in picoseconds, a `size` in bytes or a `bandwidth` in bytes per second.
#[pyfunction]
fn parse_quantity(kind: &str, text: &str) -> PyResult<u64> {
    match kind {
        "time" => text.parse().map(Time::as_ps).map_err(unit_error),
        "size" => text.parse().map(Bytes::count).map_err(unit_error),
        "bandwidth" => text.parse().map(Bandwidth::bytes_per_second).map_err(unit_error),
        _ => Err(PyValueError::new_err(format!("`{kind}` is not time, size or bandwidth"))),
    }
}

/// A quantity as text, in the largest unit that leaves it whole.
#[pyfunction]
fn format_quantity(kind: &str, value: u64) -> PyResult<String> {
    match kind {
        "time" => Ok(Time::from_ps(value).to_string()),
        "size" => Ok(Bytes::new(value).to_string()),
        "bandwidth" => Bandwidth::from_bytes_per_second(value)
            .map(|bandwidth| bandwidth.to_string())
            .ok_or_else(|| PyValueError::new_err("a bandwidth is not zero")),
        _ => Err(PyValueError::new_err(format!("`{kind}` is not time, size or bandwidth"))),
    }
}

/// The algorithms: name, about, operations, whether they are counted without contention.
#[pyfunction]
fn algorithms() -> String {
    let rows = algorithm::ALL.iter().map(|a| {
        let known = a.on_links(Kind::Ring, a.operations()[0], 2);
        json!({
            "name": a.tag(),
            "about": a.about(),
            "operations": a.operations(),
            "without_contention": known.unaware.is_some(),
        })
    });
    Value::from_iter(rows).to_string()
}

/// The algorithms that are made for a network: name, about, operations.
#[pyfunction]
fn made_algorithms() -> String {
    let row = json!({"name": made::TREES, "about": made::ABOUT, "operations": made::OPERATIONS});
    Value::from_iter([row]).to_string()
}

/// The orders within a dimension: name, about.
#[pyfunction]
fn orders() -> String {
    let rows = queue::ALL.iter().map(|q| {
        let (planned, strict) = (q.keeps_to_plans(), q.is_strict());
        json!({
            "name": q.tag(), "about": q.about(), "keeps_to_plans": planned, "one_order": strict,
        })
    });
    Value::from_iter(rows).to_string()
}

/// The network models: name, about, whether they carry messages.
#[pyfunction]
fn network_models() -> String {
    let rows = NETWORK_MODELS.iter().map(|model| {
        let messages = model.kind.carries_messages();
        json!({ "name": model.tag, "about": model.about, "messages": messages })
    });
    Value::from_iter(rows).to_string()
}

/// Proves that the messages of a scenario's plan do what its collective asks.
#[pyfunction]
fn verify(py: Python<'_>, scenario: &str) -> PyResult<String> {
    let calls = Calls::new();
    let proof = py.detach(|| {
        allrail_simulate::prove::prove(&read_scenario(scenario, &calls)?)
            .map(|proof| to_json(&proof))
    });
    Watch::with_plugins(None, &calls).end(proof)
}

/// The types whose elements a node sums.
#[pyfunction]
fn summed_dtypes() -> [&'static str; dtype::SUMMED.len()] {
    dtype::SUMMED
}

/// Bytes of an element, by the type's name in traces and dumps; `None` where it is not known.
#[pyfunction]
fn dtype_width(name: &str) -> Option<u32> {
    dtype::width_in_traces(name)
}

/// The version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("InputError", module.py().get_type::<InputError>())?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(simulate_many, module)?)?;
    module.add_function(wrap_pyfunction!(bound_many, module)?)?;
    module.add_function(wrap_pyfunction!(plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan_key, module)?)?;
    module.add_function(wrap_pyfunction!(check_plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan_schema, module)?)?;
    module.add_function(wrap_pyfunction!(scenario_keys, module)?)?;
    module.add_function(wrap_pyfunction!(parse_quantity, module)?)?;
    module.add_function(wrap_pyfunction!(format_quantity, module)?)?;
    module.add_function(wrap_pyfunction!(algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(made_algorithms, module)?)?;
    module.add_function(wrap_pyfunction!(orders, module)?)?;
    module.add_function(wrap_pyfunction!(compression::compressions, module)?)?;
    module.add_function(wrap_pyfunction!(compression::compressed_exchanges, module)?)?;
    module.add_function(wrap_pyfunction!(network_models, module)?)?;
    module.add_function(wrap_pyfunction!(verify, module)?)?;
    module.add_function(wrap_pyfunction!(summed_dtypes, module)?)?;
    module.add_function(wrap_pyfunction!(dtype_width, module)?)?;
    networks::register(module)?;
    placement::register(module)?;
    plugin::register(module)?;
    tensor_plugin::register(module)?;
    #[cfg(feature = "runtime")]
    {
        job::register(module)?;
        memory::register(module)?;
        runtime::register(module)?;
    }
    #[cfg(not(feature = "runtime"))]
    without_runtime::register(module)?;
    traffic::register(module)?;
    training::register(module)?;
    foreign::register(module)?;
    module.add_function(wrap_pyfunction!(version, module)?)
}
