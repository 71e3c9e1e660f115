//! What coordinators say: to others, until the control thread sends it; and to this rank, until its job begins.

use std::collections::VecDeque;

use allrail_engine::engine::Event;

/// How many words of coordinators are kept until the job begins here.
const MOST_HELD: usize = 4096;

/// Words on their way between coordinators.
#[derive(Default)]
pub(crate) struct Talk {
    /// What is to be sent, and to which rank.
    pub(crate) said: VecDeque<(u32, Vec<u8>)>,
    /// How many words that were.
    pub(crate) count: u64,
    /// What coordinators have said before this rank's job has begun.
    held: VecDeque<Event>,
    started: bool,
}

impl Talk {
    pub(super) fn say(&mut self, to: u32, bytes: Vec<u8>) {
        self.said.push_back((to, bytes));
        self.count += 1;
    }

    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    /// From now on nothing is held any more.
    pub(super) fn start(&mut self) {
        self.started = true;
    }

    /// Whether no more is kept before the start.
    pub(super) fn is_full(&self) -> bool {
        !self.started && self.held.len() >= MOST_HELD
    }

    pub(super) fn hold(&mut self, event: Event) {
        self.held.push_back(event);
    }

    pub(super) fn take_held(&mut self) -> Option<Event> {
        self.held.pop_front()
    }
}
