//! The choice of how gradients of embedding tables travel, where a scenario leaves it open (`exchange: auto`).
//!
//! Table by table, as the scenario lists them, the step is simulated with its gradient as rows, and it stays so
//! if that step is shorter than with it dense.

use allrail_workload::spec::RowExchange;

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::TrainingScenario;
use crate::training::outcome::result::TrainingResult;
use crate::training::run::simulate_decided;

/// Simulates a training scenario.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub fn simulate(
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    match simulate_best(scenario, timeline, observer)? {
        Some(result) => Ok(result),
        None => simulate_decided(scenario, timeline, observer),
    }
}

/// Simulates the scenario with every table decided, and says in its notes what was found; none where nothing
/// is open.
///
/// # Errors
/// As the simulation of it.
fn simulate_best(
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<Option<TrainingResult>, SimulateError> {
    let is_open = |i: &usize| scenario.job.workload.sparse[*i].exchange == RowExchange::Auto;
    let open: Vec<usize> = (0..scenario.job.workload.sparse.len()).filter(is_open).collect();
    if open.is_empty() {
        return Ok(None);
    }
    let mut best = scenario.clone();
    for i in &open {
        best.job.workload.sparse[*i].exchange = RowExchange::Dense;
    }
    let mut told = Vec::new();
    let mut result = simulate_decided(&best, timeline, observer)?;
    for i in open {
        let mut other = best.clone();
        other.job.workload.sparse[i].exchange = RowExchange::Rows;
        let by_rows = simulate_decided(&other, timeline, observer)?;
        let shorter = by_rows.step_time_us < result.step_time_us;
        told.push(format!(
            "`auto` chose `{}` for `{}`: a step takes {:.3} ms with rows, {:.3} ms dense",
            if shorter { "rows" } else { "dense" },
            best.job.workload.sparse[i].table,
            by_rows.step_time_us / 1e3,
            result.step_time_us / 1e3
        ));
        if shorter {
            (best, result) = (other, by_rows);
        }
    }
    result.notes.extend(told);
    Ok(Some(result))
}
