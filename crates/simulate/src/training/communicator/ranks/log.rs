//! When each submission began and when it was over, for timelines.

use std::collections::BTreeMap;

use allrail_core::Time;

use crate::training::communicator::{Ask, Span};
use crate::training::players::Players;

/// See the module.
#[derive(Default)]
pub(super) struct Log {
    open: BTreeMap<u64, (Time, Ask)>,
    pub(super) spans: Vec<Span>,
}

impl Log {
    pub(super) fn begins(&mut self, start: Time, tag: u64, ask: Ask) {
        self.open.insert(tag, (start, ask));
    }

    /// It was under way on every player of a collective's process group, and on the sender of a message.
    pub(super) fn ends(&mut self, end: Time, tag: u64, players: &Players) {
        let Some((start, ask)) = self.open.remove(&tag) else { return };
        let span = |player: u32| Span { player, dimension: None, tag, start, end };
        match ask {
            Ask::Collective { process_group, .. } => {
                let all = &players.process_groups[process_group as usize].players;
                self.spans.extend(all.iter().map(|player| span(*player)));
            }
            Ask::Message { source, .. } => self.spans.push(span(source)),
        }
    }
}
