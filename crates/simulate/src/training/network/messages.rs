//! What all networks of messages have in common: the run of a communicator of ranks, and what a result says of it.

use allrail_core::{counted, either};

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::{TrainingScenario, WhatIf};
use crate::training::communicator::ranks::RankCommunicator;
use crate::training::drive::{drive, prepare, priority};
use crate::training::driver::Priority;
use crate::training::outcome::links::Wires;
use crate::training::outcome::result::TrainingResult;
use crate::training::outcome::summary::summarise;
use crate::training::players::Players;
use crate::training::step_run::StepRun;

/// Runs a step on a communicator of ranks.
pub(super) fn carry_messages(
    run: &StepRun<'_>,
    players: &Players,
    mut communicator: RankCommunicator<'_>,
    wires: &Wires<'_>,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let infinite = run.scenario.job.what_if == Some(WhatIf::InfiniteBandwidth);
    if infinite {
        communicator = communicator.infinite();
    }
    if run.timeline {
        communicator = communicator.logged();
    }
    prepare(run.job.graph, players, |ask| communicator.prepare(ask))?;
    let outcome = drive(run, players, &mut communicator, observer)?;
    let spans = communicator.take_spans();
    let wires = (!infinite).then_some(wires);
    let mut result = summarise(run, players, &outcome, &mut communicator, &spans, wires)?;
    let (messages, bytes) = communicator.carried();
    if !communicator.keeps_priorities() {
        result.notes.extend(unheard(run.scenario)?);
    }
    result.notes.push(format!(
        "{} of {bytes} B in all {} carried",
        counted(messages, "message"),
        either(&messages, "was", "were")
    ));
    Ok(result)
}

/// What the schedule says and links and switches do not hear.
fn unheard(scenario: &TrainingScenario) -> Result<Option<String>, SimulateError> {
    let what = match priority(&scenario.tensor(), &scenario.schedule)? {
        Priority::Fifo => return Ok(None),
        Priority::Lifo | Priority::Explicit => "collective_order".to_owned(),
        Priority::Tensor => scenario.tensor().policy,
    };
    Ok(Some(format!(
        "`{what}` moves nothing that is under way: links and switches know no priority"
    )))
}
