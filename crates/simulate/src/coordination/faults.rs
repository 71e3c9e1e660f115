//! What goes wrong in a run, from a seed: messages are late, ranks die.

use std::collections::BTreeMap;

use allrail_core::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The faults of a run.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A message is late by up to this, drawn.
    pub delay: Time,
    /// When a rank dies: it does nothing from then on.
    pub deaths: BTreeMap<u32, Time>,
    /// For the delays.
    pub seed: u64,
}

/// The delays of a run. What one rank sends to another still arrives in order.
pub(super) struct Delays {
    delay: Time,
    draw: Pcg64Mcg,
    last: BTreeMap<(u32, u32), Time>,
}

impl Delays {
    pub(super) fn new(faults: &Faults) -> Option<Self> {
        let draw = Pcg64Mcg::seed_from_u64(faults.seed);
        (faults.delay > Time::ZERO).then(|| Self {
            delay: faults.delay,
            draw,
            last: BTreeMap::new(),
        })
    }

    /// When a message arrives that would at `at`.
    pub(super) fn arrival(&mut self, from: u32, to: u32, at: Time) -> Time {
        let late = at + Time::from_ps(self.draw.random_range(0..=self.delay.as_ps()));
        let last = self.last.entry((from, to)).or_default();
        *last = late.max(*last);
        *last
    }
}
