//! When something was submitted, the last times.

/// Of how many submissions the times are kept: what is heard of is a heartbeat old.
pub(super) const TIMES: usize = 32;

/// The last times, in nanoseconds of the machine's clock.
#[derive(Default)]
pub(super) struct Times {
    count: u64,
    ring: [u64; TIMES],
}

impl Times {
    pub(super) fn push(&mut self, at: u64) {
        self.ring[self.count as usize % TIMES] = at;
        self.count += 1;
    }

    /// The last was none.
    pub(super) fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// The time of the n-th from 0, if it is among the last.
    pub(super) fn at(&self, number: u64) -> Option<u64> {
        let kept = number < self.count && number + TIMES as u64 >= self.count;
        kept.then(|| self.ring[number as usize % TIMES])
    }

    pub(super) fn last(&self) -> u64 {
        self.count.checked_sub(1).and_then(|number| self.at(number)).unwrap_or(0)
    }
}
