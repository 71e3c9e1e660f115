//! What of a training scenario can be checked, and read off it, before its step graph is built.

use allrail_core::Bytes;
use allrail_schedule::Request;
use allrail_schedule::tensor::TensorParameters;
use allrail_workload::spec::{Model, Updates, Workload};
use serde::Serialize;
use serde_json::Value;

use crate::SimulateError;
use crate::executors::{paced, send_ahead};
use crate::scenario::{Part, Placement, Topology, TrainingScenario, WhatIf, field};
use crate::training::communicator::servers::ServerCommunicator;

impl TrainingScenario {
    /// Fills in what follows from the rest, and refuses what no step runs with.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    pub(crate) fn complete(&mut self) -> Result<(), SimulateError> {
        if self.topology.is_none() && self.network_model.has_every_link() {
            // A fabric of dimensions is one of cables, too.
            self.fabric.validate()?;
            self.topology = Some(Topology::of_dimensions(&self.fabric));
        }
        self.validate()?;
        if let Some(part) = Part::of(self)? {
            self.fabric = part.fabric.clone();
            self.job.part = Some(part);
        }
        Ok(())
    }

    /// Refuses what no step runs with.
    ///
    /// # Errors
    /// Names the first field that is out of range.
    fn validate(&self) -> Result<(), SimulateError> {
        self.fabric.validate()?;
        self.check_workload()?;
        if let Some(WhatIf::Double(dimension)) = self.job.what_if
            && dimension.index() >= self.fabric.dimensions.len()
        {
            return Err(field(
                "what_if.double",
                dimension.0,
                "the fabric has no such dimension",
                "dimensions are counted from 0, innermost first",
            ));
        }
        self.tensor().policy()?;
        self.check_backup_workers()?;
        send_ahead::check(self.schedule.send_ahead, self.network_model)?;
        paced::check(&self.fabric, self.network_model)?;
        if ServerCommunicator::asked(&self.tensor()) && self.schedule.send_ahead > Bytes::default()
        {
            return Err(field(
                "schedule.send_ahead",
                self.schedule.send_ahead,
                "parameter servers have links of their own, which choose when they have sent all",
                "leave it out; with `servers: {in_order: true}` all waits in order there",
            ));
        }
        let graph = self.network_model.has_every_link();
        let steps = self.has_own_dimensions();
        if self.topology.is_some() && steps && !graph {
            return Err(field(
                "network_model",
                self.network_model.tag(),
                "steps have dimensions of their own, which a topology's need not be",
                "use `network_model: flows`",
            ));
        }
        if self.topology.is_none() && self.job.placement != Placement::InOrder {
            return Err(field(
                "placement",
                tag(&self.job.placement),
                "only the NPUs of a `topology` can be chosen",
                "leave it out",
            ));
        }
        Ok(())
    }

    /// Refuses numbers that are out of range, and updates that the workload cannot do.
    fn check_workload(&self) -> Result<(), SimulateError> {
        const MAX_ITERATIONS: u32 = 10_000;
        const MAX_LAG: u32 = 64;
        let workload = &self.job.workload;
        if workload.iterations == 0 || workload.iterations > MAX_ITERATIONS {
            return Err(field(
                "workload.iterations",
                workload.iterations,
                "1 to 10,000 iterations are run",
                "4 are enough for a steady state; the first is not measured",
            ));
        }
        if workload.lag > MAX_LAG {
            return Err(field(
                "workload.lag",
                workload.lag,
                "gradients are applied up to 64 iterations later",
                "0 to 64",
            ));
        }
        if let Some(updates) = workload.updates {
            let refuse = |why, hint| Err(field("workload.updates", tag(&updates), why, hint));
            if !workload.model.is_laid_out() {
                return refuse("the model says its own updates", "leave it out");
            }
            if workload.every > 1 && updates == Updates::Each {
                let why = "replicas that train apart step once their backward pass is over";
                return refuse(why, "leave it out, or exchange gradients with `every: 1`");
            }
        }
        if !(0.0..=100.0).contains(&workload.exchange_slowdown) {
            return Err(field(
                "workload.exchange_slowdown",
                workload.exchange_slowdown,
                "computing takes 0 to 100 times longer",
                "0 is no slowdown, 0.2 a fifth longer",
            ));
        }
        Ok(())
    }

    /// Refuses what does not go with backup workers.
    fn check_backup_workers(&self) -> Result<(), SimulateError> {
        let backup = self.tensor().backup_workers;
        let refuse = |why: &str, key: &str| {
            let hint = format!("leave it out, or `{key}`");
            Err(field("schedule.tensor.backup_workers", backup, why, &hint))
        };
        let policy = |tree: &Value| tree.get("policy").and_then(Value::as_str) != Some("none");
        match (&self.job.workload, self.schedule.coordination.as_ref().filter(|tree| policy(tree)))
        {
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
        let mut workload = self.job.workload.clone();
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
    pub(crate) fn has_own_dimensions(&self) -> bool {
        matches!(self.job.workload.model, Model::Steps(_))
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
        self.schedule.request(&self.compat, &self.fabric, self.seed)
    }
}

fn tag(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
