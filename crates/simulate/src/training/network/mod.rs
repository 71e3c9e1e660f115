//! A step graph on each network: one file for each [`Network`]. All drive the graph on a communicator of their own,
//! and sum up alike.

mod dims;
mod graph;
mod links;
mod messages;

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::Network;
use crate::training::outcome::result::TrainingResult;
use crate::training::step_run::StepRun;

/// Runs a step on the network that it asks for.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub(super) fn carry(
    run: &StepRun<'_>,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    match run.network() {
        Network::Dimensions => dims::carry(run, observer),
        Network::Links => links::carry(run, observer),
        Network::Graph(model) => graph::carry(run, model, observer),
    }
}
