//! The time that an engine is told: since the node was made, from a clock that does not jump.

use std::time::{Duration, Instant};

use allrail_core::Time;
use rustix::time::{ClockId, clock_gettime};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
    origin: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let part = |count: i64| u64::try_from(count).unwrap_or(0);
        let origin = part(now.tv_sec) * 1_000_000_000 + part(now.tv_nsec);
        Self { start: Instant::now(), origin }
    }

    /// What the machine's monotonic clock said at the start, which all its processes read alike, in nanoseconds.
    pub(crate) fn origin(self) -> u64 {
        self.origin
    }

    /// What the machine's monotonic clock says, in nanoseconds.
    pub(crate) fn machine(self) -> u64 {
        self.origin + self.now().as_ps() / 1000
    }

    pub(crate) fn now(self) -> Time {
        // In nanoseconds, 2^64 of which are 584 years; picoseconds come to 213 days, where it stays.
        let ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
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
