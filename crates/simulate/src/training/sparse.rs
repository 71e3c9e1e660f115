//! The choice of how gradients of embedding tables travel, where a scenario leaves it open (`exchange: auto`).
//!
//! Table by table, as the scenario lists them, the step is simulated with its gradient as rows, and it stays so
//! if that step is shorter than with it dense.

use allrail_workload::spec::RowExchange;

use crate::SimulateError;
use crate::driver::Observer;
use crate::training::run::simulate_decided;
use crate::training::scenario::TrainingScenario;

/// The scenario with every table decided, and what was found; none where nothing is open.
///
/// # Errors
/// As the simulation of it.
pub(super) fn decide(
    scenario: &TrainingScenario,
    observer: Observer<'_>,
) -> Result<Option<(TrainingScenario, Vec<String>)>, SimulateError> {
    let is_open = |i: &usize| scenario.workload.sparse[*i].exchange == RowExchange::Auto;
    let open: Vec<usize> = (0..scenario.workload.sparse.len()).filter(is_open).collect();
    if open.is_empty() {
        return Ok(None);
    }
    let mut best = scenario.clone();
    for i in &open {
        best.workload.sparse[*i].exchange = RowExchange::Dense;
    }
    let mut told = Vec::new();
    let mut least = simulate_decided(&best, false, observer)?.step_time_us;
    for i in open {
        let mut other = best.clone();
        other.workload.sparse[i].exchange = RowExchange::Rows;
        let step = simulate_decided(&other, false, observer)?.step_time_us;
        let table = &best.workload.sparse[i].table;
        let chosen = if step < least { "rows" } else { "dense" };
        told.push(format!(
            "`auto` chose `{chosen}` for `{table}`: a step takes {:.3} ms with rows, {:.3} ms dense",
            step / 1e3,
            least / 1e3
        ));
        if step < least {
            (best, least) = (other, step);
        }
    }
    Ok(Some((best, told)))
}
