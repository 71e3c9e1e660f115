//! One verb for every kind of job: a scenario in, what it comes to out.

use serde::Serialize;

use crate::driver::Observer;
use crate::scenario::{Job, Scenario, field};
use crate::traffic::TrafficResult;
use crate::training::TrainingResult;
use crate::{PlanFile, SimulateError, SimulationResult, collectives, traffic, training};

/// How to simulate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Of collectives: what they follow instead of their policy's plan.
    pub plan: Option<&'a PlanFile>,
    /// Whether the result says what happened when; traffic has none of it.
    pub timeline: bool,
    /// How many slices that may have: a longer one is left out, and the result says how long it was.
    pub most_slices: Option<usize>,
}

/// What a simulation came to.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Outcome {
    /// Of collectives.
    Collectives(Box<SimulationResult>),
    /// Of training steps.
    Workload(Box<TrainingResult>),
    /// Of traffic.
    Traffic(Box<TrafficResult>),
}

/// Simulates a scenario of any kind.
///
/// # Errors
/// Names the field that is wrong; a stall with who waits for what; an interruption.
pub fn simulate(
    scenario: Scenario,
    options: &Options<'_>,
    observer: Observer<'_>,
) -> Result<Outcome, SimulateError> {
    let &Options { plan, timeline, most_slices } = options;
    let (job, rest) = scenario.split();
    if plan.is_some() && !matches!(job, Job::Collectives(_)) {
        return Err(field("plan", "given", "only collectives follow a plan", "leave it out"));
    }
    Ok(match job {
        Job::Collectives(collectives) => {
            let scenario = rest.with(collectives);
            let mut result = collectives::simulate(&scenario, plan, timeline, observer)?;
            result.timeline_left_out = leave_out_long(&mut result.timeline, most_slices);
            Outcome::Collectives(Box::new(result))
        }
        Job::Workload(training) => {
            let mut result = training::simulate(&rest.with(*training), timeline, observer)?;
            result.timeline_left_out = leave_out_long(&mut result.timeline, most_slices);
            Outcome::Workload(Box::new(result))
        }
        Job::Traffic(traffic) => {
            Outcome::Traffic(Box::new(traffic::simulate(&rest.with(traffic), observer)?))
        }
    })
}

/// Drops a timeline of more than `most` slices, and returns how many it had.
fn leave_out_long<T>(timeline: &mut Option<Vec<T>>, most: Option<usize>) -> Option<usize> {
    let dropped = timeline.take_if(|slices| most.is_some_and(|most| slices.len() > most));
    dropped.map(|slices| slices.len())
}
