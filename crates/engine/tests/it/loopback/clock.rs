//! Clocks that neither agree nor run alike.

use allrail_core::Time;

use super::draw::Draw;

/// One rank's clock, as a function of a time that nobody knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it shows at the beginning.
    offset: u64,
    /// How much it runs in 16 ns.
    rate: u64,
}

impl Clock {
    pub(crate) fn draw(draw: &mut Draw) -> Self {
        let offset = draw.next() % 10_000_000_000;
        Self { offset, rate: 8 + draw.next() % 17 }
    }

    /// What it shows at a time in nanoseconds.
    pub(crate) fn shows(self, now: u64) -> Time {
        Time::from_ns(self.offset + now * self.rate / 16)
    }

    /// When it shows at least `time`.
    pub(crate) fn at(self, time: Time) -> u64 {
        (time.as_ps().div_ceil(1000).saturating_sub(self.offset) * 16).div_ceil(self.rate)
    }
}
