//! Reads a scenario: every default filled in by whoever wrote it, quantities as text with units.

use allrail_fabric::Fabric;
use allrail_network::packets::Settings;
use allrail_schedule::chunk::Plugins;
use allrail_schedule::tensor::TensorPlugins;
use allrail_workload::device::DeviceChoice;
use allrail_workload::spec::{Model, Workload};
use allrail_workload::steps::Steps;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::SimulateError;
use crate::scenario::{
    Collective, Compat, Job, JobKind, MessageSettings, NetworkModelKind, Placement, Scenario,
    Schedule, Topology, Traffic, Training, WhatIf, field, tag,
};
use crate::training::part;

/// The keys of a scenario's file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Scenario")]
pub(crate) struct Form {
    /// Always 1.
    schema_version: u32,
    /// A preset's name, a file, or the fabric itself.
    #[schemars(with = "Fabric")]
    fabric: Value,
    /// One collective, or several that share the fabric.
    #[serde(default)]
    #[schemars(length(min = 1))]
    collective: Option<Vec<Collective>>,
    /// What is trained; instead of `collective`.
    #[serde(default)]
    workload: Option<Workload>,
    /// What is sent on a graph fabric; instead of `collective`.
    #[serde(default)]
    traffic: Option<Traffic>,
    /// How they are scheduled.
    #[serde(default)]
    schedule: Schedule,
    /// Rules of ASTRA-sim that no other system has.
    #[serde(default)]
    compat: Compat,
    /// What carries the transfers out; traffic takes `flows` or `packets`. If left out: `dims`, for
    /// traffic `flows`.
    #[serde(default)]
    #[schemars(extend("x-table" = "network_models"))]
    network_model: Option<NetworkModelKind>,
    /// Switches and packets, in the network model `packets`.
    #[serde(default)]
    packets: Settings,
    /// Of a workload on a `topology`: on which NPUs its ranks are. `in_order` (if left out),
    /// `shuffled` (the first NPUs, in an order that is drawn), `scattered` (drawn from all), or a
    /// list.
    #[serde(default)]
    placement: Placement,
    /// How communication becomes messages.
    #[serde(default)]
    messages: MessageSettings,
    /// Of everything random; it is in every result.
    #[serde(default)]
    seed: u64,
    /// Of a workload: an assumption that is not so. `infinite_bandwidth`, `ideal_schedule`,
    /// `dim1_x2` (twice the bandwidth of a dimension), `no_straggler`, or `{utilisation: 0.6}`:
    /// collectives take that part of the bandwidth of their dimensions.
    #[serde(default)]
    what_if: Option<WhatIf>,
}

/// Refuses a part of a tree that comes from a file of its own under the key that names it.
fn well_formed<T: DeserializeOwned>(
    tree: &Value,
    pointer: &str,
    hint: &str,
) -> Result<(), SimulateError> {
    let Some(part) = tree.pointer(pointer) else { return Ok(()) };
    let Err(error) = T::deserialize(part) else { return Ok(()) };
    let keys = part.as_object().map(|keys| keys.keys().map(String::as_str).collect::<Vec<_>>());
    let named = part.get("name").and_then(Value::as_str).map(str::to_owned);
    let shown = named.or(keys.map(|keys| keys.join(", "))).unwrap_or_else(|| part.to_string());
    let key = pointer.trim_start_matches('/').replace('/', ".");
    Err(field(key, shown, format!("it is malformed: {error}"), hint))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn malformed(error: serde_json::Error) -> SimulateError {
    SimulateError::Form(format!("the scenario is malformed: {error}"))
}

/// Gives a schedule that names no order the one that suits its policy. A policy that is not known here
/// is refused later.
fn suit_order(schedule: &mut Map<String, Value>) {
    let ours = Plugins::default();
    let policy = schedule.get("policy").and_then(Value::as_str);
    if let Some(policy) = policy.and_then(|name| ours.named(name).ok()) {
        let order = tag(&policy.default_order());
        schedule.entry("order").or_insert_with(|| Value::from(order));
    }
}

impl Form {
    fn read(text: &str) -> Result<Self, SimulateError> {
        let mut tree: Value = serde_json::from_str(text).map_err(malformed)?;
        if let Some(Value::Object(schedule)) = tree.get_mut("schedule") {
            suit_order(schedule);
        }
        let form = Self::deserialize(&tree).or_else(|error| {
            well_formed::<Option<Model>>(
                &tree,
                "/workload/model",
                "`allrail schema scenario` lists the keys of models",
            )?;
            let hint =
                "`allrail calibrate device --out FILE` writes a device's file, with all keys";
            well_formed::<Option<DeviceChoice>>(&tree, "/workload/compute/device", hint)?;
            Err(malformed(error))
        })?;
        if form.schema_version != 1 {
            return Err(field(
                "schema_version",
                form.schema_version,
                "this version reads 1",
                "write `schema_version: 1`",
            ));
        }
        Ok(form)
    }

    /// Its one job, and the fabric that this sees.
    fn job(&mut self, topology: Option<&Topology>) -> Result<(Job, Fabric), SimulateError> {
        let (collective, workload, traffic) =
            (self.collective.take(), self.workload.take(), self.traffic.take());
        let two = |one: &str, other: &str| {
            let why = format!("a scenario has either `{one}` or `{other}`");
            Err(field(other, "given", why, "leave one of them out"))
        };
        match (collective, workload, traffic) {
            (Some(collectives), None, None) => {
                Ok((Job::Collectives(collectives), self.fabric_of(topology, Topology::fabric)?))
            }
            (None, Some(workload), None) => {
                let planned = |topology: &Topology| match &workload.model {
                    // Steps that are written out bring the job's own dimensions.
                    Model::Steps(steps) => {
                        let steps = Steps::deserialize(steps).map_err(malformed)?;
                        part::switches(topology, &steps.sizes()?)
                    }
                    _ => topology.fabric(),
                };
                let fabric = self.fabric_of(topology, planned)?;
                let (placement, what_if) = (self.placement.clone(), self.what_if);
                let training = Training { workload, placement, what_if, part: None };
                Ok((Job::Workload(Box::new(training)), fabric))
            }
            (None, None, Some(traffic)) => {
                let topology = topology.expect("read for traffic");
                Ok((Job::Traffic(traffic), topology.named(Vec::new())))
            }
            (None, None, None) => Err(field(
                "collective",
                "",
                "it is missing",
                "for example `collective: {kind: all_reduce, size: 1 GiB}`",
            )),
            (Some(_), Some(_), _) => two("collective", "workload"),
            (Some(_), _, Some(_)) => two("collective", "traffic"),
            (_, Some(_), Some(_)) => two("workload", "traffic"),
        }
    }

    fn fabric_of(
        &self,
        topology: Option<&Topology>,
        planned: impl FnOnce(&Topology) -> Result<Fabric, SimulateError>,
    ) -> Result<Fabric, SimulateError> {
        match topology {
            Some(topology) => planned(topology),
            None => Fabric::deserialize(&self.fabric).map_err(malformed),
        }
    }
}

impl<J: JobKind> Scenario<J> {
    /// From JSON.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one; the first field that is out of range; a job of another kind.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        Self::with_plugins(text, &Plugins::default(), &TensorPlugins::default())
    }

    /// From JSON that may name chunk schedulers and tensor schedulers beside the crate's own.
    ///
    /// # Errors
    /// As [`Scenario::from_json`].
    pub fn with_plugins(
        text: &str,
        chunk: &Plugins,
        tensor: &TensorPlugins,
    ) -> Result<Self, SimulateError> {
        let (job, rest) = read(text, chunk, tensor)?.split();
        Ok(rest.with(J::of(job)?))
    }
}

fn read(text: &str, chunk: &Plugins, tensor: &TensorPlugins) -> Result<Scenario, SimulateError> {
    let mut form = Form::read(text)?;
    if let Some(traffic) = &form.traffic {
        traffic.check_keys(form.network_model.unwrap_or(NetworkModelKind::Flows))?;
    }
    let graph = form.traffic.is_some() || form.fabric.get("topology").is_some();
    let topology = graph.then(|| Topology::read(form.fabric.take())).transpose()?;
    let (job, fabric) = form.job(topology.as_ref())?;
    let model = if matches!(job, Job::Traffic(_)) {
        NetworkModelKind::Flows
    } else {
        NetworkModelKind::Dims
    };
    let Form { mut schedule, compat, network_model, packets, messages, seed, .. } = form;
    schedule.plugins = chunk.clone();
    if let Some(one) = &mut schedule.tensor {
        one.plugins = tensor.clone();
    }
    let network_model = network_model.unwrap_or(model);
    let rest = Scenario {
        fabric,
        topology,
        schedule,
        compat,
        network_model,
        packets,
        messages,
        seed,
        job: (),
    };
    match job {
        Job::Collectives(collectives) => {
            let scenario = rest.with(collectives);
            scenario.validate()?;
            let (collectives, rest) = scenario.split();
            Ok(rest.with(Job::Collectives(collectives)))
        }
        Job::Workload(training) => {
            let mut scenario = rest.with(*training);
            scenario.complete()?;
            let (training, rest) = scenario.split();
            Ok(rest.with(Job::Workload(Box::new(training))))
        }
        traffic @ Job::Traffic(_) => Ok(rest.with(traffic)),
    }
}
