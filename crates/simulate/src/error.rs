//! What can go wrong with a simulation.

use allrail_collective::{CollectiveError, Operation};
use allrail_core::counted;
use allrail_fabric::FabricError;
use allrail_schedule::ScheduleError;

/// A mistake of the user's, or a simulation that cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// In the fabric.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// In the schedule, the collective or the plan.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// In another field.
    #[error("`{field}` is `{value}`: {why}")]
    Field {
        /// Such as `network_model`.
        field: String,
        /// As given.
        value: String,
        /// What is wrong with it.
        why: String,
        /// What to write instead.
        hint: String,
    },
    /// The scenario or the plan is not of the expected form.
    #[error("{0}")]
    Form(String),
    /// Nothing moves any more, and the collectives are not done.
    #[error("the simulation stalled at {time_us} us:\n{waits}")]
    Stalled {
        /// When.
        time_us: f64,
        /// Who waits for what, a line each.
        waits: String,
        /// What may help.
        hint: &'static str,
    },
    /// The plan's messages do not do what the collective asks: our mistake, not the user's.
    #[error("chunk {chunk}: {violation}")]
    Wrong {
        /// Index of the chunk.
        chunk: usize,
        /// What is wrong.
        violation: String,
    },
    /// The observer asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// A mistake in one field.
pub(crate) fn field(
    name: impl Into<String>,
    value: impl std::fmt::Display,
    why: impl Into<String>,
    hint: impl Into<String>,
) -> SimulateError {
    SimulateError::Field {
        field: name.into(),
        value: value.to_string(),
        why: why.into(),
        hint: hint.into(),
    }
}

impl From<allrail_workload::WorkloadError> for SimulateError {
    fn from(error: allrail_workload::WorkloadError) -> Self {
        let allrail_workload::WorkloadError { field, value, why, hint } = error;
        Self::Field { field, value, why, hint }
    }
}

impl From<CollectiveError> for SimulateError {
    fn from(error: CollectiveError) -> Self {
        Self::Schedule(ScheduleError::Collective(error))
    }
}

/// An error in four parts, as users see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The path of the field, or empty.
    pub field: String,
    /// Its value, or empty.
    pub value: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: String,
}

impl SimulateError {
    /// The error in four parts.
    #[must_use]
    pub fn report(&self) -> Report {
        match self {
            Self::Fabric(e) => report(&e.field, &e.value, e.why.clone(), e.hint.clone()),
            Self::Field { field, value, why, hint }
            | Self::Schedule(ScheduleError::Field { field, value, why, hint }) => {
                report(field, value, why.clone(), hint.clone())
            }
            Self::Schedule(ScheduleError::Collective(error)) => of_collective(error),
            Self::Schedule(ScheduleError::TooLong) => report(
                "collective.size",
                "",
                self.to_string(),
                "make the collective smaller or the bandwidths larger".to_owned(),
            ),
            Self::Form(why) => report("", "", why.clone(), String::new()),
            Self::Stalled { hint, .. } => report("", "", self.to_string(), (*hint).to_owned()),
            Self::Wrong { .. } => report(
                "",
                "",
                self.to_string(),
                "this is a defect of the algorithm; please report it".to_owned(),
            ),
            Self::Interrupted => report("", "", "interrupted".to_owned(), String::new()),
        }
    }
}

fn report(field: &str, value: &str, why: String, hint: String) -> Report {
    Report { field: field.to_owned(), value: value.to_owned(), why, hint }
}

/// Of algorithms and plans: which key of a scenario, or of a plan, is wrong.
fn of_collective(error: &CollectiveError) -> Report {
    match error {
        CollectiveError::UnknownAlgorithm { name, known } => report(
            "schedule.algorithms",
            name,
            "it is not an algorithm".to_owned(),
            format!("use one of `{}`", known.join("`, `")),
        ),
        CollectiveError::Unsupported { algorithm, operation, valid, does } => {
            let scatters = [Operation::ReduceScatter, Operation::AllGather];
            let whole = does.contains(&Operation::AllReduce)
                && scatters.contains(operation)
                && !scatters.iter().any(|half| does.contains(half));
            let hint = if whole {
                format!(
                    "{valid} do; an all-reduce as a whole is one on a single dimension, that on \
                     the last of several with `policy: baseline`, and every one with \
                     `composition: sequential`"
                )
            } else {
                format!("{valid} do")
            };
            let why = format!("it does not do `{operation}`");
            report("schedule.algorithms", algorithm, why, hint)
        }
        CollectiveError::Ranks { algorithm, only, ranks } => report(
            "schedule.algorithms",
            algorithm,
            format!(
                "it is a program for {only}, and {ranks} run it here",
                only = counted(*only, "rank")
            ),
            format!(
                "name one that is written for {ranks}, or `auto`",
                ranks = counted(*ranks, "rank")
            ),
        ),
        CollectiveError::Program { name, why } => report(
            "schedule.algorithms",
            name,
            why.clone(),
            "mend the program, or name another algorithm".to_owned(),
        ),
        CollectiveError::NotModelled { dimension, why } => report(
            &format!("fabric.dimensions[{}]", dimension.0),
            "",
            why.clone(),
            "leave `schedule.algorithms` out for the topology-aware ones".to_owned(),
        ),
        CollectiveError::Field { field, value, why, hint } => {
            report(field, value, why.clone(), hint.clone())
        }
        CollectiveError::Plan(why) => {
            report("plan", "", why.clone(), "make the plan anew with `allrail plan`".to_owned())
        }
        CollectiveError::Size { size, .. } | CollectiveError::NoPlan { size, .. } => report(
            "plan.size",
            &size.to_string(),
            error.to_string(),
            "make the plan anew with `allrail plan`".to_owned(),
        ),
    }
}
