//! What can be wrong with a request for a schedule.

use allrail_collective::CollectiveError;
use allrail_core::FieldError;

/// A mistake of the user's in the `schedule` part of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The collective, its algorithms or its plan.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// A field that is out of range.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The times add up to more than the clock holds.
    #[error("the collective takes longer than 53 days of simulated time")]
    TooLong,
}
