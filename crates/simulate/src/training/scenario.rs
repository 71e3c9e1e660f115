//! A training scenario, resolved: every default filled in, quantities as text with units.

use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::Fabric;
use allrail_schedule::Request;
use allrail_schedule::tensor::{TensorParameters, TensorPlugins};
use allrail_workload::device::DeviceChoice;
use allrail_workload::spec::{Model, Updates, Workload};
use allrail_workload::steps::Steps;
use allrail_world::flows::Splitting;
use allrail_world::packets::Settings as PacketSettings;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SimulateError;
use crate::executors::{paced, send_ahead};
use crate::scenario::{Schedule, Topology, WorldKind, check_version, field, malformed, read_tree};
use crate::training::communicator::graph::Placement;
use crate::training::communicator::ranks::algorithms::Algorithms;
use crate::training::communicator::servers::ServerCommunicator;
use crate::training::part::{self, Part};

/// A training simulation's whole input.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainingScenario {
    /// 1.
    pub schema_version: u32,
    /// The network; of a topology, its dimensions.
    pub fabric: Fabric,
    /// The topology that the dimensions were read off.
    #[serde(skip)]
    pub topology: Option<Topology>,
    /// What of the network the job takes, where not all of its dimensions.
    #[serde(skip)]
    pub part: Option<Part>,
    /// What is trained; instead of `collective`.
    pub workload: Workload,
    /// How its communication is scheduled.
    #[serde(default)]
    pub schedule: Schedule,
    /// Where it runs.
    #[serde(default)]
    pub world: WorldKind,
    /// Switches and packets; the world `packets` alone reads it.
    #[serde(default)]
    pub packets: PacketSettings,
    /// Of a workload on a `topology`: on which NPUs its ranks are. `in_order` (if left out),
    /// `shuffled` (the first NPUs, in an order that is drawn), `scattered` (drawn from all), or a
    /// list.
    #[serde(default)]
    pub placement: Placement,
    /// Of a workload: how communication becomes messages.
    #[serde(default)]
    pub messages: MessageSettings,
    /// For everything that draws.
    #[serde(default)]
    pub seed: u64,
    /// Of a workload: an assumption that is not so. `infinite_bandwidth`, `ideal_schedule`,
    /// `dim1_x2` (twice the bandwidth of a dimension), `no_straggler`, or `{utilisation: 0.6}`:
    /// collectives take that part of the bandwidth of their dimensions.
    #[serde(default)]
    pub what_if: Option<WhatIf>,
}

/// How communication becomes messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSettings {
    /// `flows`: over which paths a message is split: `ecmp` (if left out; of a collective `minimal`), `single`,
    /// `minimal`, `ideal`. All that a collective without a workload has of these keys.
    #[schemars(with = "Option<String>")]
    pub paths: Option<Splitting>,
    /// What every message waits for at its ends: processors, network interfaces.
    pub overhead: Time,
    /// `links`: what a message between two ranks waits for at either end; `schedule.endpoint_delay` if left
    /// out, as messages of collectives do.
    #[schemars(with = "Option<Time>")]
    pub endpoint_delay: Option<Time>,
    /// Whether a send is over when its message has arrived; if not, when it has left.
    pub acknowledged: bool,
    /// `flows`: one message for alike steps of an algorithm, exact while nothing disturbs them.
    pub steady: bool,
    /// What collectives are made of on graphs, instead of the chunks of a plan on the topology's
    /// dimensions.
    pub algorithms: Option<Algorithms>,
}

/// One thing that is otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIf {
    /// Bytes take no time; latencies remain.
    InfiniteBandwidth,
    /// A collective keeps all dimensions of its group busy from its first byte to its last.
    Ideal,
    /// A collective takes so many millionths of the bandwidth of all dimensions of its group.
    Utilisation(u32),
    /// A dimension has twice the bandwidth.
    Double(DimensionId),
    /// No rank is slower than another.
    NoStraggler,
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
    Err(field(key, shown, &format!("it is malformed: {error}"), hint))
}

impl TrainingScenario {
    /// From JSON.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one; the first field that is out of range.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        Self::with_plugins(text, &TensorPlugins::default())
    }

    /// From JSON that may name tensor schedulers beside the core's own.
    ///
    /// # Errors
    /// As [`TrainingScenario::from_json`].
    pub fn with_plugins(text: &str, plugins: &TensorPlugins) -> Result<Self, SimulateError> {
        let (mut tree, topology) = read_tree(text)?;
        let planned = |topology: &Topology| match tree.pointer("/workload/model/steps") {
            None => topology.fabric(),
            // Steps that are written out bring the job's own dimensions.
            Some(steps) => {
                let steps: Steps = serde_json::from_value(steps.clone()).map_err(malformed)?;
                part::switches(topology, &steps.sizes()?)
            }
        };
        let fabric = topology.as_ref().map(planned).transpose()?;
        if let Some(fabric) = &fabric {
            tree["fabric"] = serde_json::to_value(fabric).map_err(malformed)?;
        }
        let mut scenario = Self::deserialize(&tree).or_else(|error| {
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
        if let Some(tensor) = &mut scenario.schedule.tensor {
            tensor.plugins = plugins.clone();
        }
        scenario.topology = topology;
        scenario.fabric = fabric.unwrap_or(scenario.fabric);
        if scenario.topology.is_none() && scenario.world.has_every_link() {
            // A fabric of dimensions is one of cables, too.
            scenario.fabric.validate()?;
            scenario.topology = Some(Topology::of_dimensions(&scenario.fabric));
        }
        scenario.validate()?;
        if let Some(part) = Part::of(&scenario)? {
            scenario.fabric = part.fabric.clone();
            scenario.part = Some(part);
        }
        Ok(scenario)
    }

    fn validate(&self) -> Result<(), SimulateError> {
        check_version(self.schema_version)?;
        self.fabric.validate()?;
        const MOST: u32 = 10_000;
        if self.workload.iterations == 0 || self.workload.iterations > MOST {
            return Err(field(
                "workload.iterations".to_owned(),
                self.workload.iterations,
                "1 to 10,000 iterations are run",
                "4 are enough for a steady state; the first is not measured",
            ));
        }
        const MOST_LATE: u32 = 64;
        if self.workload.lag > MOST_LATE {
            return Err(field(
                "workload.lag".to_owned(),
                self.workload.lag,
                "gradients are applied up to 64 iterations later",
                "0 to 64",
            ));
        }
        if let Some(updates) = self.workload.updates {
            let refuse =
                |why, hint| Err(field("workload.updates".to_owned(), tag(&updates), why, hint));
            if !self.workload.model.is_laid_out() {
                return refuse("the model says its own updates", "leave it out");
            }
            if self.workload.every > 1 && updates == Updates::Each {
                let why = "replicas that train apart step once their backward pass is over";
                return refuse(why, "leave it out, or exchange gradients with `every: 1`");
            }
        }
        if !(0.0..=100.0).contains(&self.workload.exchange_slowdown) {
            return Err(field(
                "workload.exchange_slowdown".to_owned(),
                self.workload.exchange_slowdown,
                "computing takes 0 to 100 times longer",
                "0 is no slowdown, 0.2 a fifth longer",
            ));
        }
        if let Some(WhatIf::Double(dimension)) = self.what_if
            && dimension.index() >= self.fabric.dimensions.len()
        {
            return Err(field(
                "what_if.double".to_owned(),
                dimension.0,
                "the fabric has no such dimension",
                "dimensions are counted from 0, innermost first",
            ));
        }
        self.tensor().policy()?;
        self.check_backup_workers()?;
        send_ahead::check(self.schedule.send_ahead, self.world)?;
        paced::check(&self.fabric, self.world)?;
        if ServerCommunicator::asked(&self.tensor()) && self.schedule.send_ahead > Bytes::default()
        {
            return Err(field(
                "schedule.send_ahead".to_owned(),
                self.schedule.send_ahead,
                "parameter servers have links of their own, which choose when they have sent all",
                "leave it out; with `servers: {in_order: true}` all waits in order there",
            ));
        }
        let graph = self.world.has_every_link();
        let steps = self.has_own_dimensions();
        if self.topology.is_some() && steps && !graph {
            return Err(field(
                "world".to_owned(),
                self.world.tag(),
                "steps have dimensions of their own, which a topology's need not be",
                "use `world: flows`",
            ));
        }
        if self.topology.is_none() && self.placement != Placement::InOrder {
            return Err(field(
                "placement".to_owned(),
                tag(&self.placement),
                "only the NPUs of a `topology` can be chosen",
                "leave it out",
            ));
        }
        Ok(())
    }

    /// Refuses what does not go with backup workers.
    fn check_backup_workers(&self) -> Result<(), SimulateError> {
        let backup = self.tensor().backup_workers;
        let refuse = |why: &str, key: &str| {
            let hint = format!("leave it out, or `{key}`");
            Err(field("schedule.tensor.backup_workers".to_owned(), backup, why, &hint))
        };
        let policy = |tree: &Value| tree.get("policy").and_then(Value::as_str) != Some("none");
        match (&self.workload, self.schedule.coordination.as_ref().filter(|tree| policy(tree))) {
            _ if backup == 0 => Ok(()),
            (_, Some(_)) => {
                refuse("coordinators wait until every rank has a gradient", "schedule.coordination")
            }
            (workload, _) if workload.lag > 0 => {
                refuse("gradients that are applied later wait for nobody", "workload.lag")
            }
            (workload, _) if workload.every > 1 => {
                refuse("replicas that train apart exchange parameters", "workload.every")
            }
            _ => Ok(()),
        }
    }

    /// The tensor scheduler and its parameters.
    #[must_use]
    pub fn tensor(&self) -> TensorParameters {
        self.schedule.tensor.clone().unwrap_or_default()
    }

    /// The workload with what it leaves to the schedule: when parameters are updated.
    ///
    /// # Errors
    /// The tensor scheduler is wrong: names its key.
    pub fn timed_workload(&self) -> Result<Workload, SimulateError> {
        let mut workload = self.workload.clone();
        workload.by_servers = ServerCommunicator::asked(&self.tensor());
        if workload.updates.is_none() && workload.model.is_laid_out() {
            let tensor = self.tensor();
            let together = tensor.has_barrier()? && !ServerCommunicator::asked(&tensor);
            workload.updates = Some(if together { Updates::Together } else { Updates::Each });
        }
        Ok(workload)
    }

    /// Whether the job's dimensions are its own, and not the topology's: steps are written out.
    #[must_use]
    pub fn has_own_dimensions(&self) -> bool {
        matches!(self.workload.model, Model::Steps(_))
    }

    /// Whether rings are cables from NPU to NPU, so that a part of one is a line; and not lines of boards that
    /// switches join.
    pub(crate) fn rings_are_cables(&self) -> bool {
        self.topology
            .as_ref()
            .is_none_or(|Topology(one, keys)| keys.is_null() || one.counts().switches == 0)
    }

    /// Everything that a planner is asked but what is communicated.
    #[must_use]
    pub fn request(&self) -> Request {
        self.schedule.request(&self.fabric, self.seed)
    }
}

fn tag(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
