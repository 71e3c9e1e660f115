//! What can go wrong with a simulation.

use allrail_collective::{CollectiveError, Operation};
use allrail_core::{FieldError, counted};
use allrail_schedule::ScheduleError;

/// A mistake of the user's, or a simulation that cannot go on.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulateError {
    /// In the schedule, the collective or the plan.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// In one field.
    #[error(transparent)]
    Field(#[from] FieldError),
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
    FieldError::new(name, value, why, hint).into()
}

impl From<CollectiveError> for SimulateError {
    fn from(error: CollectiveError) -> Self {
        Self::Schedule(ScheduleError::Collective(error))
    }
}

impl SimulateError {
    /// The error in four parts.
    #[must_use]
    pub fn report(&self) -> FieldError {
        match self {
            Self::Field(error) | Self::Schedule(ScheduleError::Field(error)) => error.clone(),
            Self::Schedule(ScheduleError::Collective(error)) => of_collective(error),
            Self::Schedule(ScheduleError::TooLong) => FieldError::new(
                "collective.size",
                "",
                self.to_string(),
                "make the collective smaller or the bandwidths larger",
            ),
            Self::Form(why) => FieldError::new("", "", why, ""),
            Self::Stalled { hint, .. } => FieldError::new("", "", self.to_string(), *hint),
            Self::Wrong { .. } => FieldError::new(
                "",
                "",
                self.to_string(),
                "this is a defect of the algorithm; please report it",
            ),
            Self::Interrupted => FieldError::new("", "", "interrupted", ""),
        }
    }
}

/// Of algorithms and plans: which key of a scenario, or of a plan, is wrong.
fn of_collective(error: &CollectiveError) -> FieldError {
    match error {
        CollectiveError::UnknownAlgorithm { name, known } => FieldError::new(
            "schedule.algorithms",
            name,
            "it is not an algorithm",
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
            FieldError::new("schedule.algorithms", algorithm, why, hint)
        }
        CollectiveError::Ranks { algorithm, only, ranks } => FieldError::new(
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
        CollectiveError::Program { name, why } => FieldError::new(
            "schedule.algorithms",
            name,
            why.clone(),
            "mend the program, or name another algorithm",
        ),
        CollectiveError::NotModelled { dimension, why } => FieldError::new(
            format!("fabric.dimensions[{}]", dimension.0),
            "",
            why.clone(),
            "leave `schedule.algorithms` out for the topology-aware ones",
        ),
        CollectiveError::Field(error) => error.clone(),
        CollectiveError::Plan(why) => {
            FieldError::new("plan", "", why.clone(), "make the plan anew with `allrail plan`")
        }
        CollectiveError::Size { size, .. } | CollectiveError::NoPlan { size, .. } => {
            FieldError::new(
                "plan.size",
                size,
                error.to_string(),
                "make the plan anew with `allrail plan`",
            )
        }
    }
}
