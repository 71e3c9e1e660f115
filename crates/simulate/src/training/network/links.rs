//! A step in `links`: the messages of every rank on the links of the fabric's dimensions.

use allrail_network::Links;

use super::messages::carry_messages;
use crate::SimulateError;
use crate::driver::Observer;
use crate::training::communicator::ranks::{RankCommunicator, Wiring};
use crate::training::communicator::slow::{self, Found};
use crate::training::outcome::links::Wires;
use crate::training::outcome::result::TrainingResult;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

pub(super) fn carry(
    run: &StepRun<'_>,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let StepRun { job, scenario, request, .. } = run;
    let (schedule, compat, fabric) = (&scenario.schedule, &scenario.compat, &request.fabric);
    let players = Players::ranks(job.graph, &run.sizes())?;
    let algorithms = &schedule.algorithms_by_operation;
    let wiring = Wiring::Dimensions { request, algorithms, groups: compat.groups.as_ref() };
    let slow = run.slow_links();
    let mut network_model = Links::new(fabric);
    if let Some(drawn) = slow {
        slow::check(drawn, fabric, job.graph)?;
        for id in fabric.ids() {
            network_model.slow_down(id, |link| drawn.link(id, link), |all| drawn.bandwidth(all));
        }
    }
    let overhead = scenario.messages.overhead;
    let communicator =
        RankCommunicator::new(job.graph, &players, wiring, Box::new(network_model), overhead)
            .sending_ahead(schedule.send_ahead)
            .sharing(compat.communicators)
            .cutting_rings(scenario.rings_are_cables())
            .with_message_delay(compat.message_endpoint_delay);
    let wires = Wires::Dimensions(fabric, slow);
    let mut result = carry_messages(run, &players, communicator, &wires, observer)?;
    result.notes.extend(slow.map(|drawn| Found::new(drawn, fabric).note(drawn)));
    Ok(result)
}
