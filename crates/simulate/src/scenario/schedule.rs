//! How collectives are scheduled: the key `schedule`.

use std::collections::BTreeMap;

use allrail_collective::Operation;
use allrail_collective::algorithm::OwnPrograms;
use allrail_core::{Bytes, Time};
use allrail_fabric::Fabric;
use allrail_schedule::chunk::{Composition, Parameters, Plugins};
use allrail_schedule::tensor::TensorParameters;
use allrail_schedule::{ActiveChunks, Algorithms, Order, Request};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Compat;

/// Into how many chunks a collective is cut where nobody says it.
pub(crate) const USUAL_CHUNKS: u32 = 64;

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
    /// How many parts each collective is cut into. If left out: 64; as many as suit them for `trees`.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-hint" = "64 is a good start"))]
    pub chunks: Option<u32>,
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
    /// How an all-reduce is composed over dimensions. `stages`: reduce-scatters, then all-gathers;
    /// `merged`: the last dimension all-reduces in one stage; `sequential`: a whole all-reduce per
    /// dimension.
    pub composition: Composition,
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
            chunks: None,
            smallest_chunk: parameters.smallest_chunk,
            threshold: parameters.threshold,
            active_chunks: None,
            send_ahead: Bytes::default(),
            endpoint_delay: Time::ZERO,
            algorithms: None,
            programs: OwnPrograms::default(),
            algorithms_by_operation: BTreeMap::new(),
            collective_order: CollectiveOrder::default(),
            composition: parameters.composition,
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
    pub(crate) fn request(&self, compat: &Compat, fabric: &Fabric, seed: u64) -> Request {
        Request {
            fabric: fabric.clone(),
            operation: Operation::AllReduce,
            size: Bytes::default(),
            dimensions: Vec::new(),
            policy: self.policy.clone(),
            order: self.order,
            chunks: self.chunks.unwrap_or(USUAL_CHUNKS),
            algorithms: self.algorithms.clone(),
            programs: self.programs.clone(),
            active_chunks: self.active_chunks,
            endpoint_delay: self.endpoint_delay,
            parameters: Parameters {
                threshold: self.threshold,
                loads: compat.loads,
                composition: self.composition,
                cut: compat.cut,
                smallest_chunk: self.smallest_chunk,
                free_chunks: self.chunks.is_none(),
            },
            seed,
            plugins: self.plugins.clone(),
        }
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
