//! When the ranks begin their next cycles.

use allrail_core::Time;

/// Of what the ranks did when they last were all between cycles.
#[derive(Default)]
pub(super) struct Rhythm {
    /// When each rank's next cycle begins.
    pub(super) ticks: Vec<Time>,
    /// The same before the last cycle.
    pub(super) before: Vec<Time>,
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
    pub(super) fn period(&mut self) -> Option<Time> {
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
