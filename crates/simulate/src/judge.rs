//! A run of a collective alone, in the network model that will carry it: what a plan is judged by.

use allrail_collective::CollectivePlan;
use allrail_core::Time;
use allrail_schedule::{Order, Request};

use crate::driver::{self, Collectives, Run};
use crate::error::SimulateError;
use crate::lowering::{Lowering, work};
use crate::network_model_settings::NetworkModelSettings;
use crate::runs::Runs;

/// What a collective is judged by.
pub(crate) struct Judge<'a, 'r> {
    /// What is planned.
    pub(crate) request: &'a Request,
    /// Where it runs.
    pub(crate) network_model: &'a NetworkModelSettings<'a>,
    /// Hear how far each run is, and may break it off.
    pub(crate) runs: &'a mut Runs<'r>,
}

impl Judge<'_, '_> {
    /// Runs a plan alone; nothing if it stalls or is not over by `until`.
    ///
    /// # Errors
    /// The network cannot carry the collective: names the field that is wrong; an interruption.
    pub(crate) fn run(
        &mut self,
        plan: &CollectivePlan,
        order: Order,
        until: Time,
    ) -> Result<Option<Run>, SimulateError> {
        let fabric = &self.request.fabric;
        let plans = std::slice::from_ref(plan);
        let (_, works) = work(fabric, plans)?;
        let lowering = Lowering::messages(fabric, plans, &works, self.network_model.kind, order)?;
        let job = Collectives {
            plans,
            starts: &[Time::ZERO],
            priorities: &[0],
            order,
            active_chunks: self.request.active_chunks,
            send_ahead: self.network_model.send_ahead,
            endpoint_delay: plan.endpoint_delay,
            timeline: true,
            until,
        };
        let mut empty = self.network_model.of_messages(fabric, &lowering)?;
        let told = &mut |done, total| self.runs.observe(done, total);
        let outcome = driver::run(&job, &lowering, &mut *empty, told);
        self.runs.next();
        match outcome {
            Ok(run) => Ok(Some(run).filter(|run| run.finish[0] <= until)),
            Err(SimulateError::Stalled { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
