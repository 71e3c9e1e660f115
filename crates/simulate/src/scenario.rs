//! The resolved scenario: every default filled in, quantities as text with units.

use std::collections::BTreeMap;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_collective::algorithm::OwnPrograms;
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::topologies::product::Product;
use allrail_fabric::topologies::{self, GraphTopology, Planned};
use allrail_fabric::{Dimension, Fabric, Wiring};
use allrail_schedule::chunk::{Composition, Cut, Loads, Parameters, Plugins};
use allrail_schedule::tensor::TensorParameters;
use allrail_schedule::{ActiveChunks, Algorithms, Order, Request};
use allrail_world::flows::Splitting;
use allrail_world::packets::Settings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::SimulateError;
use crate::agreed_starts;
use crate::executors::{paced, send_ahead};
use crate::world_settings::WorldSettings;

/// A simulation's whole input.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Always 1.
    pub schema_version: u32,
    /// A preset's name, a file, or the fabric itself.
    pub fabric: Fabric,
    /// The topology that the dimensions were read off.
    #[serde(skip)]
    pub topology: Option<Topology>,
    /// One collective, or several that share the fabric.
    #[schemars(length(min = 1))]
    pub collective: Vec<Collective>,
    /// How they are scheduled.
    #[serde(default)]
    pub schedule: Schedule,
    /// What carries the transfers out; traffic takes `flows` or `packets`. If left out: `dims`, for
    /// traffic `flows`.
    #[serde(default)]
    #[schemars(extend("x-table" = "worlds"))]
    pub world: WorldKind,
    /// Switches and packets, in the world `packets`.
    #[serde(default)]
    pub packets: Settings,
    /// How communication becomes messages.
    #[serde(default)]
    pub messages: MessagePaths,
    /// Of everything random; it is in every result.
    #[serde(default)]
    pub seed: u64,
}

/// What of a collective's messages can be said: a step's have more.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MessagePaths {
    /// `flows`: over which paths a message is split; `minimal` if left out.
    #[schemars(with = "Option<String>")]
    pub paths: Option<Splitting>,
}

/// One collective.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Collective {
    /// Its name in results; its kind if left out.
    #[serde(default)]
    pub name: String,
    /// What it does.
    pub kind: Operation,
    /// all_reduce, broadcast: each NPU's buffer; reduce_scatter: each NPU's input; all_gather: each
    /// NPU's output; all_to_all: what each NPU sends, to itself included.
    #[schemars(extend("x-positive" = true))]
    pub size: Bytes,
    /// When it starts.
    #[serde(default)]
    pub start: Time,
    /// The dimensions that it spans, from 0; all if left out.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub dimensions: Option<Vec<DimensionId>>,
}

/// How collectives are scheduled.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Schedule {
    /// Which dimension a chunk visits next.
    #[schemars(extend("x-table" = "policies"))]
    pub policy: String,
    /// Which waiting stage a dimension serves next. If left out: `fifo` for `baseline`,
    /// `smallest_first` for `themis`, `planned` for `search`.
    #[schemars(extend("x-table" = "orders"))]
    pub order: Order,
    /// How many parts each collective is cut into.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-hint" = "64 is a good start"))]
    pub chunks: u32,
    /// How a collective is cut into `chunks`. `even`: parts that differ by one byte at most. `rest`: parts
    /// of the size divided by `chunks`, rounded down, and the rest as one more. `full`: the same, and the
    /// last part is padded to the size of the others. A part of an all-gather is what its NPUs bring.
    pub cut: Cut,
    /// A chunk has so many bytes at least, and the collective then as many as its chunks; an all-gather's
    /// do not count.
    pub smallest_chunk: Bytes,
    /// Themis keeps the baseline's order while loads differ by less than the time of a chunk's
    /// 1/threshold.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-hint" = "Themis uses 16"))]
    pub threshold: u32,
    /// How many stages a dimension runs at once; no limit if left out. `fill`: as many as fill it, if each has
    /// the part of the time in which it sends.
    pub active_chunks: Option<ActiveChunks>,
    /// How many bytes of what an NPU has handed to its links on a dimension may be unsent when it
    /// chooses the next stage there; what is handed over is sent in that order. Without it the links
    /// have sent all. `dims` and `links`.
    pub send_ahead: Bytes,
    /// Added to every message at its ends.
    pub endpoint_delay: Time,
    /// Programs that `algorithms` name, by name: those of XML files stand here when these were read.
    pub programs: OwnPrograms,
    /// One per dimension; if left out: `ring` on rings, `direct` on fully connected dimensions,
    /// `halving_doubling` on switches; `auto` on networks without dimensions, and on a fabric whose dimensions all
    /// say `fastest`. `auto`, for all or in the list: for each collective the fastest of its size, as the
    /// dimension's `fastest` says or else its model. An XML file is a program of MSCCL, for an operation and a
    /// number of ranks.
    pub algorithms: Option<Algorithms>,
    /// Of a workload: the algorithms of a kind of collective, where they differ from `algorithms`:
    /// `{all_gather: [direct, ring]}`, `{broadcast: auto}`.
    pub algorithms_by_operation: BTreeMap<Operation, Algorithms>,
    /// Which of several waiting collectives a dimension serves first.
    pub collective_order: CollectiveOrder,
    /// Of a workload: what its communicators do where they meet on a dimension. Every process group has one for
    /// its collectives and one for its messages. `share`: they take turns, chunk by chunk, for equal times.
    /// `queue`: all wait in one queue.
    pub communicators: Communicators,
    /// How an all-reduce is composed over dimensions. `stages`: reduce-scatters, then all-gathers;
    /// `merged`: the last dimension all-reduces in one stage; `sequential`: a whole all-reduce per
    /// dimension.
    pub composition: Composition,
    /// Where Themis' load tracker starts.
    pub loads: Loads,
    /// Of a workload in `links`: process groups smaller than the job run one algorithm over all their
    /// ranks in order, whatever dimensions these differ on.
    pub groups: Option<GroupSchedule>,
    /// Which plans a simulation takes: made for this very fabric, or for one of the same kinds and
    /// sizes.
    pub accept_plan: AcceptPlan,
    /// Of a workload: which part of which gradient goes next; a policy's name, or `policy` and its
    /// keys. `fifo` if left out.
    pub tensor: Option<TensorParameters>,
    /// How ranks agree which gradients of a workload are ready everywhere, and on a scenario's collectives
    /// before each starts; a policy's name, or `policy` and its keys. `none` if left out.
    pub coordination: Option<Value>,
    /// Chunk schedulers that `policy` may name beside the crate's own.
    #[serde(skip)]
    pub plugins: Plugins,
}

impl Default for Schedule {
    fn default() -> Self {
        let parameters = Parameters::default();
        Self {
            policy: "baseline".to_owned(),
            order: Order::default(),
            chunks: 64,
            cut: parameters.cut,
            smallest_chunk: parameters.smallest_chunk,
            threshold: parameters.threshold,
            active_chunks: None,
            send_ahead: Bytes::default(),
            endpoint_delay: Time::ZERO,
            algorithms: None,
            programs: OwnPrograms::default(),
            algorithms_by_operation: BTreeMap::new(),
            collective_order: CollectiveOrder::default(),
            communicators: Communicators::default(),
            composition: parameters.composition,
            loads: parameters.loads,
            groups: None,
            accept_plan: AcceptPlan::default(),
            tensor: None,
            coordination: None,
            plugins: Plugins::default(),
        }
    }
}

impl Schedule {
    /// What the planner is asked for an all-reduce of no bytes over all of `fabric`: its caller
    /// says what is communicated.
    pub(crate) fn request(&self, fabric: &Fabric, seed: u64) -> Request {
        Request {
            fabric: fabric.clone(),
            operation: Operation::AllReduce,
            size: Bytes::default(),
            dimensions: Vec::new(),
            policy: self.policy.clone(),
            order: self.order,
            chunks: self.chunks,
            algorithms: self.algorithms.clone(),
            programs: self.programs.clone(),
            active_chunks: self.active_chunks,
            endpoint_delay: self.endpoint_delay,
            parameters: Parameters {
                threshold: self.threshold,
                loads: self.loads,
                composition: self.composition,
                cut: self.cut,
                smallest_chunk: self.smallest_chunk,
            },
            seed,
            plugins: self.plugins.clone(),
        }
    }
}

/// What process groups smaller than the job run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GroupSchedule {
    /// The algorithm of a kind of collective; `ring_unidirectional` where none is named.
    pub algorithms: BTreeMap<Operation, String>,
    /// In place of the schedule's.
    pub endpoint_delay: Time,
}

impl Default for GroupSchedule {
    fn default() -> Self {
        Self { algorithms: BTreeMap::new(), endpoint_delay: Time::ZERO }
    }
}

/// Which of several waiting collectives a dimension serves first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a collective order"))]
pub enum CollectiveOrder {
    /// The one issued first.
    #[default]
    Fifo,
    /// The one issued last.
    Lifo,
    /// Of a trace: the one whose node has the higher `comm_priority`, then the one issued first.
    Explicit,
}

/// What communicators do where they meet on a dimension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "what communicators do"))]
pub enum Communicators {
    /// They take turns, for equal times.
    #[default]
    Share,
    /// All wait in one queue.
    Queue,
}

/// Which plans a simulation takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a rule for plans"))]
pub enum AcceptPlan {
    /// Those made for this fabric.
    #[default]
    SameFabric,
    /// Those made for a fabric of the same kinds and sizes of dimensions.
    SameShape,
}

/// A graph fabric of which a scenario's dimensions were read off, and the keys that it was read from.
#[derive(Clone)]
pub struct Topology(pub Arc<dyn GraphTopology>, pub Value);

impl std::fmt::Debug for Topology {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.tag())
    }
}

impl Topology {
    /// From `topology` and its keys.
    ///
    /// # Errors
    /// There is no such topology, or a key is wrong.
    pub fn read(keys: Value) -> Result<Self, SimulateError> {
        Ok(Self(topologies::read(keys.clone())?.into(), keys))
    }

    /// A fabric of dimensions, in cables.
    pub(crate) fn of_dimensions(fabric: &Fabric) -> Self {
        Self(Arc::new(Product(fabric.clone())), Value::Null)
    }

    /// What planners see.
    ///
    /// # Errors
    /// It cannot be built.
    pub fn fabric(&self) -> Result<Fabric, SimulateError> {
        Ok(self.named(Planned::of(&*self.0)?.dimensions))
    }

    /// Its dimensions, of whoever asks for bandwidths alone.
    ///
    /// # Errors
    /// It is no product of dimensions.
    pub fn product(&self) -> Result<Fabric, SimulateError> {
        let dimensions = self.0.dimensions().map_err(|why| {
            let hint = "scenarios run on it, counted over its cables; here, take one that is";
            field("fabric.topology".to_owned(), self.0.tag(), &why, hint)
        })?;
        Ok(self.named(dimensions))
    }

    /// Its first NPUs, so many, as one dimension that counts over the cables.
    ///
    /// # Errors
    /// It cannot be built.
    pub(crate) fn first_npus(&self, npus: u32) -> Result<Fabric, SimulateError> {
        let mut all = Wiring::of_npus(self.0.simulated()?, self.0.counts().planes);
        all.size = npus;
        all.wiring = all.wiring.map(|wiring| wiring.of_job(1, npus));
        Ok(self.named(vec![all]))
    }

    /// These dimensions as its fabric.
    pub(crate) fn named(&self, dimensions: Vec<Dimension>) -> Fabric {
        let name = self.0.tag().to_owned();
        Fabric { memory_bandwidth: None, window: None, name, dimensions }
    }

    /// What a result should say where it is no product of dimensions.
    pub(crate) fn counted(&self) -> Option<String> {
        let why = self.0.dimensions().err()?;
        Some(self.over_cables(&why))
    }

    /// The same for another reason.
    pub(crate) fn over_cables(&self, why: &str) -> String {
        let detours = if self.0.takes_detours() {
            "; routing that takes detours may carry more than that"
        } else {
            ""
        };
        format!(
            "plans count messages over cables, split evenly over shortest paths{detours}; without \
             `schedule.algorithms` they take what is counted to be the fastest: {why}"
        )
    }
}

/// The worlds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorldKind {
    /// Each dimension is one server.
    #[default]
    Dims,
    /// Each link is a server of whole messages.
    Links,
    /// Messages share links max-min fairly.
    Flows,
    /// Switches with buffers, virtual channels and credits.
    Packets,
}

/// Every world: tag and one line for the docs.
pub const WORLDS: &[(WorldKind, &str, &str)] = &[
    (
        WorldKind::Dims,
        "dims",
        "each dimension is one server; the cost does not depend on the number of NPUs",
    ),
    (
        WorldKind::Links,
        "links",
        "every link serves whole messages first come, first served, store and forward",
    ),
    (
        WorldKind::Flows,
        "flows",
        "messages share the links of a graph max-min fairly, over one path or several",
    ),
    (
        WorldKind::Packets,
        "packets",
        "input-queued switches with virtual channels, credits and adaptive routing",
    ),
];

impl WorldKind {
    /// The tag in scenario files.
    #[must_use]
    pub fn tag(self) -> &'static str {
        WORLDS.iter().find(|(kind, ..)| *kind == self).expect("every world is listed").1
    }

    /// Whether it carries messages between ranks, and not stages of classes of ranks.
    #[must_use]
    pub fn carries_messages(self) -> bool {
        self != Self::Dims
    }

    /// Whether it has every link of a graph as it is, and not one width for all of a dimension.
    #[must_use]
    pub fn has_every_link(self) -> bool {
        matches!(self, Self::Flows | Self::Packets)
    }

    /// Whether what a rank hands to a link is sent in that order, and does not share it.
    #[must_use]
    pub fn sends_in_order(self) -> bool {
        matches!(self, Self::Dims | Self::Links)
    }
}

/// What an enum's value is called in files.
pub(crate) fn tag<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .expect("a tag is text")
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
pub(crate) fn malformed(error: serde_json::Error) -> SimulateError {
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

/// A scenario's tree, and the topology that its fabric names.
pub(crate) fn read_tree(text: &str) -> Result<(Value, Option<Topology>), SimulateError> {
    let mut tree: Value = serde_json::from_str(text).map_err(malformed)?;
    if let Some(Value::Object(schedule)) = tree.get_mut("schedule") {
        suit_order(schedule);
    }
    let topology = tree.get("fabric").filter(|keys| keys.get("topology").is_some());
    let topology = topology.cloned().map(Topology::read).transpose()?;
    Ok((tree, topology))
}

/// Refuses scenarios of other versions.
pub(crate) fn check_version(schema_version: u32) -> Result<(), SimulateError> {
    if schema_version == 1 {
        return Ok(());
    }
    Err(field(
        "schema_version".to_owned(),
        schema_version,
        "this version reads 1",
        "write `schema_version: 1`",
    ))
}

pub(crate) fn field(
    name: String,
    value: impl std::fmt::Display,
    why: &str,
    hint: &str,
) -> SimulateError {
    SimulateError::Field {
        field: name,
        value: value.to_string(),
        why: why.to_owned(),
        hint: hint.to_owned(),
    }
}

impl Scenario {
    /// From JSON.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one; the first field that is out of range.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        let (mut tree, topology) = read_tree(text)?;
        let fabric = topology.as_ref().map(Topology::fabric).transpose()?;
        if let Some(fabric) = &fabric {
            tree["fabric"] = serde_json::to_value(fabric).map_err(malformed)?;
        }
        let mut scenario: Self = serde_json::from_value(tree).map_err(malformed)?;
        scenario.fabric = fabric.unwrap_or(scenario.fabric);
        scenario.topology = topology;
        scenario.validate()?;
        Ok(scenario)
    }

    /// What carries its messages.
    pub(crate) fn world_settings(&self) -> WorldSettings<'_> {
        WorldSettings {
            kind: self.world,
            topology: self.topology.as_ref(),
            packets: self.packets.clone(),
            paths: self.messages.paths.unwrap_or(Splitting::Minimal),
            send_ahead: self.schedule.send_ahead,
            seed: self.seed,
        }
    }

    fn validate(&self) -> Result<(), SimulateError> {
        check_version(self.schema_version)?;
        self.fabric.validate()?;
        if self.collective.is_empty() {
            return Err(field(
                "collective".to_owned(),
                "[]",
                "there is nothing to run",
                "add `{kind: all_reduce, size: 1 GiB}`",
            ));
        }
        if let Some(tensor) = &self.schedule.tensor {
            return Err(field(
                "schedule.tensor".to_owned(),
                &tensor.policy,
                "collectives have no tensors",
                "leave it out, or train a `workload`",
            ));
        }
        agreed_starts::read(self.schedule.coordination.as_ref())?;
        if let Some(paths) = self.messages.paths.filter(|_| self.world != WorldKind::Flows) {
            return Err(field(
                "messages.paths".to_owned(),
                tag(&paths),
                "only `flows` splits messages over paths",
                "use `world: flows`, or leave it out",
            ));
        }
        send_ahead::check(self.schedule.send_ahead, self.world)?;
        paced::check(&self.fabric, self.world)?;
        for (i, collective) in self.collective.iter().enumerate() {
            if collective.size == Bytes::default() {
                return Err(field(
                    format!("collective[{i}].size"),
                    collective.size,
                    "a collective has 1 byte at least",
                    "write for example `size: 1 GiB`",
                ));
            }
            if collective.dimensions.as_ref().is_some_and(Vec::is_empty) {
                return Err(field(
                    format!("collective[{i}].dimensions"),
                    "[]",
                    "it spans no dimension",
                    "leave it out for all dimensions",
                ));
            }
        }
        Ok(())
    }

    /// What the planner is asked for a collective.
    #[must_use]
    pub fn request(&self, collective: &Collective) -> Request {
        Request {
            operation: collective.kind,
            size: collective.size,
            dimensions: collective.dimensions.clone().unwrap_or_default(),
            ..self.schedule.request(&self.fabric, self.seed)
        }
    }
}
