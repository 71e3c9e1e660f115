//! The guard of a rank that waits for others. After the patience it asks those it waits for whether
//! they live; who has not answered after a sixteenth more is named, and all stop. So a dead rank ends
//! the job with its name, instead of hanging it, and one that itself waits for the dead is not blamed.
//!
//! One timer at a time: it is set again when it fires, not at every wait.

use std::sync::Arc;

use allrail_core::Time;

use super::messages::{Payload, Probe};
use super::{Action, WATCH};

/// Of one rank.
#[derive(Debug)]
pub(super) struct Guard {
    /// When the wait began; `None` if it does not wait.
    since: Option<Time>,
    patience: Time,
    is_armed: bool,
    /// Whom it has asked, without an answer yet.
    asked: Option<Box<[u32]>>,
}

impl Guard {
    pub(super) fn new(patience: Time) -> Self {
        Self { since: None, patience, is_armed: false, asked: None }
    }

    /// It begins to wait.
    pub(super) fn wait(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.since = Some(now);
        if !self.is_armed {
            self.arm(now, self.patience, actions);
        }
    }

    fn arm(&mut self, from: Time, wait: Time, actions: &mut Vec<Action>) {
        self.is_armed = true;
        let at = from.checked_add(wait).unwrap_or(Time::MAX);
        actions.push(Action::SetTimer { id: WATCH, at });
    }

    /// It has heard.
    pub(super) fn heard(&mut self) {
        self.since = None;
        self.asked = None;
    }

    /// Someone lives.
    pub(super) fn answered(&mut self, from: u32) {
        if let Some(asked) = self.asked.take() {
            self.asked = Some(asked.into_iter().filter(|rank| *rank != from).collect());
        }
    }

    /// Its timer has fired, at rank `rank`, which waits for `silent`: who is dead, if anyone.
    pub(super) fn look(
        &mut self,
        now: Time,
        rank: u32,
        silent: impl FnOnce() -> Vec<u32>,
        actions: &mut Vec<Action>,
    ) -> Option<Vec<u32>> {
        self.is_armed = false;
        let since = self.since?;
        let over = since.checked_add(self.patience).unwrap_or(Time::MAX);
        if let Some(dead) = self.asked.take() {
            if !dead.is_empty() {
                return Some(dead.into_vec());
            }
            self.wait(now, actions);
        } else if now < over {
            self.arm(since, self.patience, actions);
        } else {
            let silent = silent();
            let probe = Probe { origin: rank, tensors: Arc::from([]) };
            let probe = Payload::Probe(Box::new(probe));
            actions
                .extend(silent.iter().map(|to| Action::Send { to: *to, payload: probe.clone() }));
            self.asked = Some(silent.into_boxed_slice());
            self.arm(now, Time::from_ps(self.patience.as_ps() / 16 + 1), actions);
        }
        None
    }
}

/// What a rank that lives answers to a guard.
pub(super) fn lives(origin: u32) -> Action {
    Action::Send { to: origin, payload: Payload::Missing(Box::default()) }
}
