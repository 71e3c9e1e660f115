//! A step in `dims`: classes of ranks on servers of dimensions, and parameter servers beside them.

use allrail_core::Bytes;

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::field;
use crate::training::communicator::classes::ClassCommunicator;
use crate::training::communicator::servers::ServerCommunicator;
use crate::training::communicator::slow::{Felt, Found};
use crate::training::drive::{drive, prepare};
use crate::training::outcome::assumption;
use crate::training::outcome::result::TrainingResult;
use crate::training::outcome::summary::summarise;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

pub(super) fn carry(
    run: &StepRun<'_>,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let StepRun { job, scenario, request, idealisation, timeline } = run;
    // An ideal schedule of a topology knows no cables.
    let slow = run.slow_links().filter(|_| !scenario.network_model.has_every_link());
    let found = slow.map(|drawn| (drawn, Found::new(drawn, &request.fabric)));
    let felt =
        found.as_ref().map(|(drawn, found)| Felt::new(drawn, found, job.graph, &request.fabric));
    // An ideal schedule waits for nothing.
    let ideal = idealisation.is_ideal();
    let send_ahead = if ideal { Bytes::default() } else { scenario.schedule.send_ahead };
    let players = Players::classes(job.graph, &run.sizes())?;
    let mut communicator = ClassCommunicator::new(
        job.graph,
        &players,
        request,
        &scenario.schedule.algorithms_by_operation,
        *idealisation,
        *timeline,
    )
    .cutting_rings(scenario.rings_are_cables())
    .sending_ahead(send_ahead)
    .sharing(scenario.compat.communicators)
    .slowed(felt.as_ref());
    prepare(job.graph, &players, |ask| communicator.prepare(ask))?;
    let parameters = scenario.tensor();
    let over_servers = ServerCommunicator::asked(&parameters);
    let apart =
        over_servers && parameters.servers.as_ref().is_some_and(|servers| !servers.synchronous);
    if apart && scenario.schedule.coordination.is_some() {
        return Err(field(
            "schedule.coordination",
            "given",
            "ranks that do not wait for each other agree on nothing",
            "leave it out, or `servers: {synchronous: true}`",
        ));
    }
    let outcome = if over_servers {
        let mut servers = ServerCommunicator::new(
            &mut communicator,
            job.graph,
            &players,
            &request.fabric,
            &parameters,
            *idealisation,
            felt.as_ref(),
        )?;
        drive(run, &players, &mut servers, observer)?
    } else {
        drive(run, &players, &mut communicator, observer)?
    };
    let spans = communicator.take_spans();
    let mut result = summarise(run, &players, &outcome, &mut communicator, &spans, None)?;
    result.notes.extend(assumption::note(scenario));
    result.notes.extend(
        apart.then(|| {
            "servers do not wait for all workers: a step is the slowest worker's".to_owned()
        }),
    );
    result.notes.extend(found.map(|(drawn, found)| {
        format!("{}; a group is as fast as its slowest link", found.note(drawn))
    }));
    Ok(result)
}
