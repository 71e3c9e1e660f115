//! Training steps: bindings.

use allrail_coordinate as coordinate;
use allrail_core::Time;
use allrail_schedule::tensor::{Outlook, TensorParameters, TensorPolicy};
use allrail_simulate::SimulateError;
use allrail_simulate::coordination::{Collectives, Latency};
use allrail_simulate::training::ranking;
use allrail_workload::device::{DeviceFile, PRESETS};
use allrail_workload::kernels::single::{Single, seconds};
use allrail_workload::models::hugging_face::{transformer, types};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::{Watch, parsed, raise, read_scenario, to_json};

/// The sizes of a transformer (JSON) by its Hugging Face `config.json`, what was assumed, and how many
/// parameters it has.
#[pyfunction]
fn hugging_face(py: Python<'_>, config: &str) -> PyResult<(String, Vec<String>, u64)> {
    let found = py.detach(|| {
        let (sizes, notes) = transformer(&parsed(config)?, None)?;
        let layers = sizes.model("model", None)?;
        Ok((to_json(&sizes), notes, layers.parameters()))
    });
    found.map_err(raise::<SimulateError>)
}

/// The model types of Hugging Face that are read, in alphabetical order.
#[pyfunction]
fn hugging_face_types() -> Vec<&'static str> {
    types()
}

/// Seconds of single kernels (JSON) on a device, by its file (JSON).
#[pyfunction]
fn kernel_seconds(device: &str, kernels: &str) -> PyResult<Vec<f64>> {
    let device: DeviceFile = parsed(device).map_err(raise)?;
    let kernels: Vec<Single> = parsed(kernels).map_err(raise)?;
    seconds(&device, &kernels).map_err(raise)
}

/// The tensor schedulers: name, about, version, the keys that only some of them read and this one
/// does (`reads`), the JSON schema of all keys; whether ranks that run it have to agree on one order
/// (`one_order`); the size of its partitions where none is given (`partition`); whether it ranks by what the
/// graph computes, and so as another one where layers are a chain (`by_graph`).
#[pyfunction]
fn tensor_policies() -> String {
    let schema = without_policy(&schemars::schema_for!(TensorParameters));
    let plugins = Calls::new().tensor_plugins();
    let rows = plugins.all().map(|policy| {
        json!({
            "name": policy.tag(),
            "about": policy.about(),
            "version": policy.version(),
            "crosses_barrier": policy.crosses_barrier(),
            "one_order": needs_one_order(policy),
            "partition": policy.partition(&TensorParameters::default()),
            "by_graph": policy.outlook() == Outlook::Computing,
            "reads": policy.reads(),
            "schema": schema,
        })
    });
    Value::from_iter(rows).to_string()
}

/// Whether what a policy starts depends on what only ranks that agree know alike: when tensors are ready, or,
/// where its credit cannot be left out, what has finished.
fn needs_one_order(policy: &dyn TensorPolicy) -> bool {
    let limited = policy.credit(&TensorParameters::default()).is_some();
    policy.packs_by_time() || limited && !policy.reads().contains(&"credit")
}

/// In which order and partitions the tensor scheduler of a scenario (JSON) sends gradients, as far as that is
/// known before a step runs (JSON).
#[pyfunction]
fn tensor_ranking(py: Python<'_>, scenario: &str) -> PyResult<String> {
    let calls = Calls::new();
    let found = py.detach(|| {
        let scenario = read_scenario(scenario, &calls)?;
        ranking(&scenario).map(|found| to_json(&found))
    });
    Watch::with_plugins(None, &calls).end(found)
}

/// How ranks agree: name, about, version, `reads` and the JSON schema as for tensor schedulers.
#[pyfunction]
fn coordinations() -> String {
    let mut schema = without_policy(&schemars::schema_for!(coordinate::Settings));
    schema["properties"]["groups"] = json!({
        "description": "Tensors that are launched together: lists of their names, or how many \
                        groups of about as many tensors.",
        "anyOf": [{ "type": "integer" }, { "type": "array" }],
    });
    let mut skew = schemars::schema_for!(Time).to_value();
    skew["description"] = json!(
        "How much later than its class a rank may submit what it has made: drawn for each step, \
         and so is whether it swaps neighbours. 0 s if left out."
    );
    schema["properties"]["skew"] = skew;
    let mut collectives = schemars::schema_for!(Collectives).to_value();
    collectives["description"] = json!(
        "Of a workload: which collectives ranks agree on before they start. `gradients` if left out."
    );
    collectives["default"] = json!("gradients");
    schema["properties"]["collectives"] = collectives;
    let mut latency = schemars::schema_for!(Latency).to_value();
    for (name, definition) in latency["$defs"].as_object().into_iter().flatten() {
        schema["$defs"][name] = definition.clone();
    }
    latency.as_object_mut().map(|keys| keys.remove("$defs"));
    schema["properties"]["latency"] = latency;
    let none = json!({
        "name": coordinate::NONE,
        "about": "no talk: a tensor is ready when the last rank has submitted it",
        "version": 1,
        "reads": [],
        "schema": { "type": "object", "properties": {} },
    });
    let rows = coordinate::ALL.iter().map(|policy| {
        json!({
            "name": policy.tag(),
            "formerly": policy.formerly(),
            "about": policy.about(),
            "version": policy.version(),
            "reads": policy.reads(),
            "schema": schema,
        })
    });
    Value::from_iter(std::iter::once(none).chain(rows)).to_string()
}

/// The devices that are known: name, about, and all of their files.
#[pyfunction]
fn devices() -> String {
    let rows = PRESETS.iter().map(|device| json!(device));
    Value::from_iter(rows).to_string()
}

/// A policy's keys beside its name.
fn without_policy(schema: &schemars::Schema) -> Value {
    let mut tree = schema.clone().to_value();
    if let Some(keys) = tree.get_mut("properties").and_then(Value::as_object_mut) {
        keys.remove("policy");
    }
    tree
}

/// Adds all of them to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(coordinations, module)?)?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(hugging_face, module)?)?;
    module.add_function(wrap_pyfunction!(hugging_face_types, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_ranking, module)?)?;
    module.add_function(wrap_pyfunction!(tensor_policies, module)?)
}
