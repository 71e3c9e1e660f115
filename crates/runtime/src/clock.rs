//! The time that an engine is told: since the node was made, from a clock that does not jump.

use std::time::{Duration, Instant};

use allrail_core::Time;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        // In nanoseconds, 2^64 of which are 584 years; picoseconds come to 213 days, where it stays.
        let ns = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::from_ps(ns.saturating_mul(1000))
    }

    /// How long it is until a time comes.
    pub(crate) fn until(self, at: Time) -> Duration {
        duration(at.saturating_sub(self.now()))
    }
}

/// As the standard library has it, rounded up.
pub(crate) fn duration(time: Time) -> Duration {
    Duration::from_nanos(time.as_ps().div_ceil(1000))
}
