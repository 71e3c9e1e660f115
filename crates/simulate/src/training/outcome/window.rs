//! The iterations that figures are of: all but the first, where there are several.

use allrail_core::Time;

use crate::training::communicator::Usage;
use crate::training::driver::Outcome;

/// See the module.
pub(super) struct Window {
    pub(super) from: Time,
    pub(super) to: Time,
    /// Whether there is an iteration before it.
    pub(super) several: bool,
    /// How many iterations it has.
    pub(super) steps: f64,
}

impl Window {
    /// Of iterations that end at these times.
    pub(super) fn new(ends: &[Time]) -> Self {
        let (several, to) = (ends.len() > 1, ends[ends.len() - 1]);
        if several {
            Self { from: ends[0], to, several, steps: ends.len() as f64 - 1.0 }
        } else {
            Self { from: Time::ZERO, to, several, steps: 1.0 }
        }
    }

    pub(super) fn span(&self) -> Time {
        self.to - self.from
    }

    /// A step's share of a time, µs.
    pub(super) fn each(&self, time: Time) -> f64 {
        time.as_us() / self.steps
    }

    /// What the network did in it.
    pub(super) fn usage(&self, outcome: &Outcome) -> Usage {
        let (first, last) = &outcome.usage;
        if !self.several {
            return last.clone();
        }
        Usage {
            busy: last.busy.as_ref().zip(first.busy.as_ref()).map(|(last, first)| {
                last.iter().zip(first).map(|(a, b)| a.saturating_sub(*b)).collect()
            }),
            sent: last.sent.iter().zip(&first.sent).map(|(a, b)| a - b).collect(),
            links: last.links.iter().zip(&first.links).map(|(a, b)| a - b).collect(),
            active: last.active.saturating_sub(first.active),
        }
    }
}
