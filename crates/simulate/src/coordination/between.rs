//! Between cycles: when no message is under way and every rank waits for its next cycle.
//!
//! The times of those cycles are then held here, out of the calendar. What may follow:
//!
//! - cycles that would change nothing are left out: if a cycle changed nothing, and every rank began
//!   the next one at the same distance after the last, all repeat until something is submitted;
//! - else, where a policy's cycle is a wave, the cycle is run as one ([`super::run_wave`]);
//! - else the times go back into the calendar.
//!
//! A test compares all of it with the plain calendar.

use allrail_coordinate::CYCLE;
use allrail_core::Time;

use super::control_plane::ControlPlane;
use super::entry::{Entry, What};

fn is_cycle(entry: &Entry) -> bool {
    matches!(entry.what, What::Timer(CYCLE))
}

impl ControlPlane {
    /// All ranks are between cycles: leaves out those that would change nothing.
    pub(super) fn rest(&mut self, now: Time, until: Time) {
        let period = self.rhythm.period().filter(|_| self.delays.is_none());
        if self.rhythm.held.is_none() && (period.is_some() || self.may_run_waves()) {
            for (time, entry) in self.queue.drain() {
                if !is_cycle(&entry) {
                    self.queue.push(time, entry);
                }
            }
            self.rhythm.hold();
        }
        if let Some(period) = period {
            self.leave_out(now, until, period);
        }
    }

    /// The same after a wave, if it is over and all ranks are between cycles.
    pub(super) fn rest_after(&mut self, wave: Option<Time>, until: Time) {
        if let Some(end) = wave
            && self.rhythm.held.is_some()
        {
            self.rest(end, until);
        }
    }

    /// Ends what [`ControlPlane::rest`] began.
    pub(super) fn release(&mut self) {
        if self.rhythm.held.take().is_none() {
            return;
        }
        let mut order: Vec<(Time, u32)> = self.rhythm.ticks.iter().copied().zip(0..).collect();
        order.sort_unstable();
        for (tick, to) in order {
            self.queue.push(tick, Entry { to, what: What::Timer(CYCLE) });
        }
    }

    fn leave_out(&mut self, now: Time, until: Time, period: Time) {
        let mut limit = until.as_ps().saturating_add(1);
        for (number, rank) in (0..).zip(&self.ranks) {
            let Some(repeats) = self.fleet.repeats_until(number) else { return };
            limit = limit.min(repeats.as_ps()).min(rank.due.as_ps());
        }
        for death in self.faults.deaths.values().filter(|death| **death >= now) {
            limit = limit.min(death.as_ps());
        }
        if let Some(other) = self.queue.next_time() {
            limit = limit.min(other.as_ps());
        }
        // The last cycle that is left out is over before the limit.
        let count = limit.saturating_sub(now.as_ps() + 1) / period.as_ps();
        if count == 0 {
            return;
        }
        let by = Time::from_ps(count * period.as_ps());
        self.fleet.skip(by);
        for time in self.rhythm.ticks.iter_mut().chain(&mut self.rhythm.before) {
            *time += by;
        }
        self.rhythm.hold();
        self.counts.skipped += count * self.ranks.len() as u64;
    }
}
