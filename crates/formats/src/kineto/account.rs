//! What became of every measured microsecond of a trace.
//!
//! Everything that ran on the accelerator (or worked on a host that trains) is a kernel, a copy, a
//! collective, messages, or communication that keeps its measured time. Their times, as measured, add up
//! to the trace's.

use std::collections::BTreeMap;

/// How often, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// How many events.
    pub count: u64,
    /// Microseconds that the trace measured.
    pub us: f64,
}

/// What a trace's events were taken for.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// What became nodes, by kind.
    pub kept: BTreeMap<&'static str, Amount>,
    /// Communication of which only the time is kept, by why.
    pub measured: BTreeMap<&'static str, Amount>,
    /// Time between events that the host is taken to have used.
    pub gaps: Amount,
}

impl Amount {
    pub(super) fn add(&mut self, us: f64) {
        self.count += 1;
        self.us += us;
    }
}

impl Account {
    /// Communication that is understood, and that of which only the time is kept.
    #[must_use]
    pub fn communication(&self) -> (Amount, Amount) {
        let sum = |all: &mut dyn Iterator<Item = &Amount>| {
            all.fold(Amount::default(), |sum, one| Amount {
                count: sum.count + one.count,
                us: sum.us + one.us,
            })
        };
        let understood = ["collectives", "messages"];
        let mut known = understood.iter().filter_map(|kind| self.kept.get(kind));
        (sum(&mut known), sum(&mut self.measured.values()))
    }

    /// Microseconds of all events.
    #[must_use]
    pub fn us(&self) -> f64 {
        self.kept.values().chain(self.measured.values()).map(|amount| amount.us).sum()
    }
}
