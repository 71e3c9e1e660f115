//! Training steps: the key `workload`, and what goes with it alone.

use allrail_core::DimensionId;
use allrail_fabric::Fabric;
use allrail_fabric::graph::NodeId;
use allrail_workload::spec::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scenario::Placement;

/// Training steps.
#[derive(Clone, Debug)]
pub struct Training {
    /// What is trained.
    pub workload: Workload,
    /// On which NPUs of a topology its ranks are.
    pub placement: Placement,
    /// An assumption that is not so.
    pub what_if: Option<WhatIf>,
    /// What of the network the job takes, where not all of its dimensions.
    pub part: Option<Part>,
}

/// The NPUs of a fabric that a job takes, where these are not all.
#[derive(Clone, Debug)]
pub struct Part {
    /// The dimensions of the job.
    pub fabric: Fabric,
    /// The NPU of each rank, where they are not the first of the topology.
    pub block: Option<Vec<NodeId>>,
    /// What a result should say of it.
    pub notes: Vec<String>,
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
