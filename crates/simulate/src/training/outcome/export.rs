//! A scenario's step graph as a Chakra trace: what `allrail export` writes.

use std::path::Path;

use allrail_formats::chakra::{self, Ranks, write::Summary};

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::TrainingScenario;
use crate::training::job::graph_of;

/// Writes one iteration of a scenario's workload as `folder/name.<rank>.et`, of all ranks or one of each kind.
///
/// # Errors
/// The workload is wrong, or a file cannot be written; an interruption.
pub fn export(
    scenario: &TrainingScenario,
    named: (&Path, &str),
    whose: Ranks,
    observer: Observer<'_>,
) -> Result<Summary, SimulateError> {
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let built = graph_of(&scenario.timed_workload()?, &sizes)?;
    let written = chakra::write::write_watched(&built.graph, &sizes, named, whose, observer);
    Ok(written.map_err(allrail_core::FieldError::from)?)
}
