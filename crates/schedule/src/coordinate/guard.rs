//! The guard of a rank that waits for others: whoever says nothing for too long is named, and all
//! stop. So a dead rank ends the job with its name, instead of hanging it.
//!
//! A rank that waits for those below it gives up after `(16 + h) / 16` of the patience, `h` levels
//! above the leaves; one that waits for the answer from above, after those. So whoever is next to the
//! dead rank is the first to speak, and its word reaches the others before they blame someone between.
//!
//! One timer at a time: it is set again when it fires, not at every wait.

use allrail_core::Time;

use super::{Action, WATCH};

/// Of one rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guard {
    /// When the wait began; `None` if it does not wait.
    since: Option<Time>,
    patience: Time,
    is_armed: bool,
}

impl Guard {
    /// Of a rank with `height` levels below it.
    #[must_use]
    pub(super) fn new(patience: Time) -> Self {
        Self { since: None, patience, is_armed: false }
    }

    /// The patience for those below, `height` levels above the leaves.
    #[must_use]
    pub(super) fn for_below(patience: Time, height: u32) -> Time {
        scaled(patience, 16 + u64::from(height))
    }

    /// The patience for the answer from above, when the tree has `height` levels and `below` are below
    /// the rank.
    #[must_use]
    pub(super) fn for_above(patience: Time, height: u32, below: u32) -> Time {
        scaled(patience, 17 + u64::from(2 * height - below.min(height)))
    }

    /// It begins to wait.
    pub(super) fn wait(&mut self, now: Time, patience: Time, actions: &mut Vec<Action>) {
        self.since = Some(now);
        self.patience = patience;
        if !self.is_armed {
            self.is_armed = true;
            let at = now.checked_add(patience).unwrap_or(Time::MAX);
            actions.push(Action::SetTimer { id: WATCH, at });
        }
    }

    /// It has heard.
    pub(super) fn heard(&mut self) {
        self.since = None;
    }

    /// Its timer has fired: whether the patience is at an end.
    pub(super) fn is_over(&mut self, now: Time, actions: &mut Vec<Action>) -> bool {
        let Some(since) = self.since else {
            self.is_armed = false;
            return false;
        };
        let at = since.checked_add(self.patience).unwrap_or(Time::MAX);
        if at > now {
            actions.push(Action::SetTimer { id: WATCH, at });
        }
        at <= now
    }
}

fn scaled(patience: Time, sixteenths: u64) -> Time {
    Time::from_ps((patience.as_ps() / 16).saturating_mul(sixteenths))
}
