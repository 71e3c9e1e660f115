//! Between cycles: when no message is under way and every rank waits for its next cycle.
//!
//! The times of those cycles are then held here, out of the calendar. What may follow:
//!
//! - cycles that would change nothing are left out: if a cycle changed nothing, and every rank began
//!   the next one at the same distance after the last, all repeat until something is submitted;
//! - else, where a policy's cycle is a wave, the cycle is run as one ([`super::wave`]);
//! - else the times go back into the calendar.
//!
//! A test compares all of it with the plain calendar.

use allrail_core::Time;
use allrail_schedule::coordinate::CYCLE;

use super::control_plane::{ControlPlane, Entry, What};

/// Of what the ranks did when they last were all between cycles.
#[derive(Default)]
pub(super) struct Rhythm {
    /// When each rank's next cycle begins.
    pub(super) ticks: Vec<Time>,
    /// The same before the last cycle.
    before: Vec<Time>,
    /// How many ranks have their timer set.
    pub(super) set: u32,
    pub(super) changed: bool,
    /// If `ticks` are held out of the calendar: the first and the last of them.
    pub(super) held: Option<(Time, Time)>,
    /// When rank 0 decides in the cycle that begins then, if someone has asked.
    pub(super) decides: Option<Time>,
}

impl Rhythm {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ticks: vec![Time::ZERO; ranks], changed: true, ..Self::default() }
    }

    /// Notes the times of the next cycles as held.
    pub(super) fn hold(&mut self) {
        let least = self.ticks.iter().min().copied().unwrap_or_default();
        let most = self.ticks.iter().max().copied().unwrap_or_default();
        self.held = Some((least, most));
        self.decides = None;
    }

    /// Whether the last two cycles were alike, and how far apart they were.
    fn period(&mut self) -> Option<Time> {
        let changed = std::mem::replace(&mut self.changed, false);
        let Self { ticks, before, .. } = self;
        let alike = !changed && before.len() == ticks.len();
        let period = before.first().map_or(Time::ZERO, |before| ticks[0].saturating_sub(*before));
        let alike = alike
            && period > Time::ZERO
            && ticks.iter().zip(&*before).all(|(tick, before)| *before + period == *tick);
        before.clone_from(ticks);
        alike.then_some(period)
    }
}

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
