//! From a training scenario to a result.

use std::time::Instant;

use allrail_core::counted;
use allrail_workload::spec::Workload;
use allrail_workload::{Memory, TimeToTrain};

use crate::SimulateError;
use crate::driver::Observer;
use crate::scenario::{TrainingScenario, WhatIf};
use crate::training::job::{BuiltJob, graph_of};
use crate::training::network;
use crate::training::outcome::result::TrainingResult;
use crate::training::step_run::StepRun;

/// Simulates a training scenario whose tables are `rows` or `dense`; those that are `auto` are dense.
///
/// # Errors
/// As for [`crate::training::simulate`].
pub(super) fn simulate_decided(
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    let begin = Instant::now();
    let sizes: Vec<u32> = scenario.fabric.dimensions.iter().map(|d| d.size).collect();
    let mut workload = scenario.timed_workload()?;
    if scenario.job.what_if == Some(WhatIf::NoStraggler) {
        workload.stragglers.clear();
        workload.jitter = None;
    }
    let built = graph_of(&workload, &sizes)?;
    let job = BuiltJob {
        graph: &built.graph,
        memory: (built.memory != Memory::default()).then_some(built.memory),
        notes: scenario
            .job
            .part
            .iter()
            .flat_map(|part| &part.notes)
            .chain(&built.notes)
            .cloned()
            .chain(stale(&workload))
            .collect(),
        perturbation: built.perturbation(&workload, scenario.seed),
        iterations: whole_rounds(workload.iterations, workload.lag),
        work: built.work,
    };
    let target = workload.target;
    let steps = target.map(|target| target.steps(job.work.as_ref())).transpose()?;
    let building = begin.elapsed();
    let mut result = run(&job, scenario, timeline, observer)?;
    result.time_to_train = target.zip(steps).map(|(target, steps)| {
        let (work, step_s) = (job.work.as_ref(), result.step_time_us / 1e6);
        TimeToTrain::new(&target, steps, work, step_s, result.npus)
    });
    result.host.planning_ms = building.as_secs_f64() * 1e3;
    result.host.wall_ms = begin.elapsed().as_secs_f64() * 1e3;
    Ok(result)
}

/// Runs a step graph as a scenario says; of its workload, only what `job` does not.
///
/// # Errors
/// As for [`crate::training::simulate`].
pub fn run(
    job: &BuiltJob<'_>,
    scenario: &TrainingScenario,
    timeline: bool,
    observer: Observer<'_>,
) -> Result<TrainingResult, SimulateError> {
    network::carry(&StepRun::new(job, scenario, timeline)?, observer)
}

/// With a lag of k, 1 + k iterations are under way and may end together, so that behind the first a multiple
/// of as many is measured.
fn whole_rounds(iterations: u32, lag: u32) -> u32 {
    1 + (iterations - 1).next_multiple_of(lag + 1)
}

/// That gradients which are applied later cost more than their time.
fn stale(workload: &Workload) -> Option<String> {
    let told = workload.target.and_then(|target| target.statistical_efficiency);
    (workload.lag > 0 && told.is_none()).then(|| {
        format!(
            "gradients are applied {} late: what that costs in convergence is not modelled \
             (`target.statistical_efficiency`)",
            counted(workload.lag, "iteration")
        )
    })
}
