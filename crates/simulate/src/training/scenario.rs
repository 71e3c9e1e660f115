//! A training scenario, resolved: every default filled in, quantities as text with units.

use allrail_core::{Bytes, DimensionId};
use allrail_fabric::Fabric;
use allrail_schedule::Request;
use allrail_schedule::chunk::Parameters;
use allrail_schedule::tensor::TensorParameters;
use allrail_workload::spec::Workload;
use allrail_world::packets::Settings as PacketSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::SimulateError;
use crate::scenario::{Schedule, Topology, WorldKind, field};

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
    /// What is trained.
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
    /// For everything that draws.
    #[serde(default)]
    pub seed: u64,
    /// What is otherwise than the rest says.
    #[serde(default)]
    pub what_if: Option<WhatIf>,
}

/// One thing that is otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhatIf {
    /// Bytes take no time; latencies remain.
    InfiniteBandwidth,
    /// A collective keeps all dimensions of its group busy from its first byte to its last.
    Ideal,
    /// A dimension has twice the bandwidth.
    Double(DimensionId),
    /// No rank is slower than another.
    NoStraggler,
}

impl TrainingScenario {
    /// From JSON.
    ///
    /// # Errors
    /// [`SimulateError::Form`] where it is not one; the first field that is out of range.
    pub fn from_json(text: &str) -> Result<Self, SimulateError> {
        let form = |error| SimulateError::Form(format!("the scenario is malformed: {error}"));
        let mut tree: Value = serde_json::from_str(text).map_err(form)?;
        let topology = tree.get("fabric").filter(|keys| keys.get("topology").is_some());
        let topology = topology.cloned().map(Topology::read).transpose()?;
        if let Some(topology) = &topology {
            tree["fabric"] = serde_json::to_value(topology.fabric()?).map_err(form)?;
        }
        let mut scenario: Self = serde_json::from_value(tree).map_err(form)?;
        scenario.topology = topology;
        scenario.validate()?;
        Ok(scenario)
    }

    fn validate(&self) -> Result<(), SimulateError> {
        if self.schema_version != 1 {
            return Err(field(
                "schema_version".to_owned(),
                self.schema_version,
                "this version reads 1",
                "write `schema_version: 1`",
            ));
        }
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
        Ok(())
    }

    /// The tensor scheduler and its parameters.
    #[must_use]
    pub fn tensor(&self) -> TensorParameters {
        self.schedule.tensor.clone().unwrap_or_default()
    }

    /// Everything that a planner is asked but what is communicated.
    #[must_use]
    pub fn request(&self) -> Request {
        let schedule = &self.schedule;
        Request {
            fabric: self.fabric.clone(),
            operation: allrail_collective::Operation::AllReduce,
            size: Bytes::default(),
            dimensions: Vec::new(),
            policy: schedule.policy.clone(),
            order: schedule.order,
            chunks: schedule.chunks,
            algorithms: schedule.algorithms.clone(),
            active_chunks: schedule.active_chunks,
            endpoint_delay: schedule.endpoint_delay,
            parameters: Parameters {
                threshold: schedule.threshold,
                loads: schedule.loads,
                composition: schedule.composition,
            },
            seed: self.seed,
        }
    }
}
