//! What a training simulation gives. Names are those of the JSON and of the Python API.
//!
//! All times are of one steady iteration: the mean of all but the first, where there are several.

use std::collections::BTreeMap;

use allrail_core::Bytes;
use allrail_workload::{Memory, Throughput, TimeToTrain};
use serde::Serialize;
use serde::ser::SerializeMap;

use crate::columns::{Row, columns, names, values};
use crate::result::{DimensionResult, Host};
use crate::traffic::result::LinkUse;
use crate::training::outcome::path::PathEntry;

/// The result of a training simulation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrainingResult {
    /// `training`.
    pub kind: &'static str,
    /// One iteration, in the steady state.
    pub step_time_us: f64,
    /// The first iteration, which starts on an idle network.
    pub first_step_time_us: f64,
    /// Every iteration, from the end of the one before.
    pub steps_us: Vec<f64>,
    /// A compute engine works: the mean over all ranks.
    pub compute_us: f64,
    /// It waits for communication of its own: the same mean.
    pub exposed_communication_us: f64,
    /// The same by what the communication is for.
    pub exposed_us: BTreeMap<String, f64>,
    /// It waits for others to come: pipeline bubbles, stragglers.
    pub waiting_us: f64,
    /// The three by pass: they add up to the step.
    pub passes: Passes,
    /// Per dimension, innermost first.
    pub dimensions: Vec<DimensionResult>,
    /// The bytes that an NPU sends in a step, over what all its dimensions could have sent.
    pub utilisation: f64,
    /// The same over the time in which its compute engine waits for communication or any dimension
    /// works: absent where not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation_while_communicating: Option<f64>,
    /// In network models of messages: classes of alike links, and how busy they were.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkClass>,
    /// The same of single links, the busiest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busiest_links: Vec<BusyLink>,
    /// From the end of the iteration before to the end of the last one.
    pub critical_path: Vec<PathEntry>,
    /// The same in one sentence.
    pub critical_path_in_words: String,
    /// Of the NPU that needs most; absent where the workload does not say.
    pub memory_per_npu_bytes: Option<u64>,
    /// Its parts.
    pub memory: Option<MemoryResult>,
    /// No schedule of the same communication is faster: the longest compute, and the bytes over all
    /// bandwidth.
    pub bound_step_time_us: f64,
    /// The network model that predicted this.
    pub network_model: String,
    /// The scenario's.
    pub seed: u64,
    /// How many NPUs the fabric has.
    pub npus: u64,
    /// The chunk scheduler.
    pub policy: String,
    /// The order within a dimension.
    pub order: String,
    /// Chunks per collective.
    pub chunks: u32,
    /// The tensor scheduler.
    pub tensor_policy: String,
    /// The coordination policy.
    pub coordination: String,
    /// What coordinators did, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coordinators: Option<CoordinatorsResult>,
    /// How many were simulated.
    pub iterations: u32,
    /// Per class of ranks.
    pub actors: Vec<ActorResult>,
    /// What it does a second, where the workload says how much a step is.
    pub throughput: Option<Throughput>,
    /// What all of the training takes, where the workload says how much that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_train: Option<TimeToTrain>,
    /// What was assumed.
    pub notes: Vec<String>,
    /// What was communicated otherwise than the scenario says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what_if: Option<crate::scenario::WhatIf>,
    /// Measurements of the host: the only part that differs between runs.
    pub host: Host,
    /// Every span, where asked for.
    #[serde(serialize_with = "columns", skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Vec<SpanResult>>,
    /// How many there are, where they were asked for and are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline_left_out: Option<usize>,
}

/// A step by pass.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Passes {
    /// Forward.
    pub forward: PassResult,
    /// Backward: what it computes again and the exchange of gradients among it.
    pub backward: PassResult,
    /// The optimizer's step: the gathering of updated parameters among it.
    pub update: PassResult,
    /// Of a trace that does not say, and waiting that nothing explains.
    pub other: PassResult,
}

/// What of a step belongs to a pass: the mean over all ranks.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct PassResult {
    /// All three.
    pub time_us: f64,
    /// A compute engine works on it.
    pub compute_us: f64,
    /// It waits for communication of its own, which is of the pass.
    pub exposed_us: f64,
    /// It waits for others, who do something of the pass.
    pub waiting_us: f64,
}

/// What coordinators did.
#[derive(Clone, Debug, Serialize)]
pub struct CoordinatorsResult {
    /// Operations of gradients in a step: what was launched together is one.
    pub operations_per_step: f64,
    /// Messages between coordinators that were simulated, in all.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Ranks' cycles that change nothing, and were left out.
    pub cycles_left_out: u64,
}

/// What an NPU holds at its fullest, in bytes, by kind.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryResult {
    /// Of what.
    #[serde(flatten)]
    pub parts: BTreeMap<&'static str, u64>,
    /// What there has to be at least.
    pub needed: u64,
    /// What the device has.
    pub capacity: Option<u64>,
    /// Whether it is enough.
    pub fits: Option<bool>,
}

impl From<Memory> for MemoryResult {
    fn from(memory: Memory) -> Self {
        Self {
            parts: memory.parts().map(|(name, part)| (name, part.count())).into(),
            needed: memory.needed().count(),
            capacity: memory.capacity.map(Bytes::count),
            fits: memory.fits(),
        }
    }
}

/// Directed links that are alike; of a graph, those of one plane.
#[derive(Clone, Debug, Serialize)]
pub struct LinkClass {
    /// Their dimension, or what their ends are: `NPU to switch`.
    pub name: String,
    /// How many there are.
    pub links: u64,
    /// Of each.
    pub bandwidth_gbps: f64,
    /// How much of what they could carry they did.
    #[serde(flatten)]
    pub used: LinkUse,
}

/// One directed link.
#[derive(Clone, Debug, Serialize)]
pub struct BusyLink {
    /// Its ends.
    pub name: String,
    /// What it could carry.
    pub bandwidth_gbps: f64,
    /// How much of what it could carry it did, 0 to 1.
    pub utilisation: f64,
}

/// One class of ranks.
#[derive(Clone, Debug, Serialize)]
pub struct ActorResult {
    /// Its name.
    pub name: String,
    /// How many ranks it stands for.
    pub ranks: u64,
    /// The lowest of them.
    pub first_rank: u32,
    /// Its compute engine works.
    pub compute_us: f64,
    /// It waits for communication of its own.
    pub exposed_communication_us: f64,
    /// The same by what the communication is for.
    pub exposed_us: BTreeMap<String, f64>,
    /// It waits for others to come.
    pub waiting_us: f64,
}

/// Something that took time, for pictures and traces.
#[derive(Clone, Debug)]
pub struct SpanResult {
    /// Whose.
    pub actor: String,
    /// `compute`, or a dimension; where messages are carried, all that a group spans: `dim1+dim2`,
    /// or `network`.
    pub track: String,
    /// The node's name.
    pub name: String,
    /// What a communication does: `all_reduce`, `send`.
    pub operation: Option<String>,
    /// How many bytes were asked for.
    pub bytes: Option<u64>,
    /// The group.
    pub group: Option<String>,
    /// How many ranks it has.
    pub group_size: Option<u64>,
    /// Which communication: spans of one are its stages. Numbered as they were asked for.
    pub communication: Option<u64>,
    /// Of a computation, where said: `forward`, `backward`, `update`.
    pub pass: Option<&'static str>,
    /// What it is for.
    pub purpose: Option<allrail_workload::Purpose>,
    /// In which iteration.
    pub iteration: u32,
    /// From.
    pub start_us: f64,
    /// To.
    pub end_us: f64,
}

impl Row for SpanResult {
    fn columns<M: SerializeMap>(rows: &[Self], map: &mut M) -> Result<(), M::Error> {
        map.serialize_entry("actor", &names(rows, |row| Some(row.actor.as_str())))?;
        map.serialize_entry("track", &names(rows, |row| Some(row.track.as_str())))?;
        map.serialize_entry("name", &names(rows, |row| Some(row.name.as_str())))?;
        map.serialize_entry("operation", &names(rows, |row| row.operation.as_deref()))?;
        map.serialize_entry("bytes", &values(rows, |row| row.bytes))?;
        map.serialize_entry("group", &names(rows, |row| row.group.as_deref()))?;
        map.serialize_entry("group_size", &values(rows, |row| row.group_size))?;
        map.serialize_entry("communication", &values(rows, |row| row.communication))?;
        map.serialize_entry("pass", &names(rows, |row| row.pass))?;
        map.serialize_entry("purpose", &names(rows, |row| row.purpose))?;
        map.serialize_entry("iteration", &values(rows, |row| row.iteration))?;
        map.serialize_entry("start_us", &values(rows, |row| row.start_us))?;
        map.serialize_entry("end_us", &values(rows, |row| row.end_us))
    }
}
