//! One run of a step graph, before any network is built: what all network models are given.

use allrail_schedule::Request;
use allrail_workload::SlowLinks;

use crate::SimulateError;
use crate::scenario::{Network, NetworkModelKind, TrainingScenario, field};
use crate::training::communicator::classes::Idealisation;
use crate::training::communicator::servers::ServerCommunicator;
use crate::training::communicator::slow;
use crate::training::job::BuiltJob;
use crate::training::outcome::assumption;

/// See the module.
pub(crate) struct StepRun<'a> {
    pub(crate) job: &'a BuiltJob<'a>,
    pub(crate) scenario: &'a TrainingScenario,
    /// Everything of the schedule but what is communicated, on the fabric that a what-if makes of the scenario's.
    pub(crate) request: Request,
    pub(crate) idealisation: Idealisation,
    pub(crate) timeline: bool,
}

impl<'a> StepRun<'a> {
    /// # Errors
    /// The network model cannot run the job, or what the scenario assumes: names the field.
    pub(crate) fn new(
        job: &'a BuiltJob<'a>,
        scenario: &'a TrainingScenario,
        timeline: bool,
    ) -> Result<Self, SimulateError> {
        let mut request = scenario.request();
        let idealisation = assumption::apply(scenario, &mut request.fabric)?;
        if ServerCommunicator::asked(&scenario.tensor())
            && scenario.network_model.carries_messages()
        {
            return Err(field(
                "schedule.tensor.exchange",
                "parameter_server",
                "parameter servers run in `dims`",
                "write `network_model: dims`, or leave it out for all-reduces",
            ));
        }
        let run = Self { job, scenario, request, idealisation, timeline };
        if let Some(drawn) = run.slow_links().filter(|_| !scenario.network_model.has_every_link()) {
            slow::check_links(drawn, &run.request.fabric)?;
        }
        Ok(run)
    }

    /// What the network is made of. No network model is faster than an ideal schedule, which `dims` carries.
    pub(crate) fn network(&self) -> Network {
        let ideal = self.idealisation.is_ideal();
        if ideal { NetworkModelKind::Dims.network() } else { self.scenario.network_model.network() }
    }

    /// NPUs of each dimension.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        self.request.fabric.dimensions.iter().map(|dimension| dimension.size).collect()
    }

    pub(crate) fn slow_links(&self) -> Option<&'a SlowLinks> {
        self.job.perturbation.slow_links.as_ref()
    }
}
