//! How names are forgotten that nobody uses any more, on all ranks alike.
//!
//! Ranks begin the calls of names each in its own order, so what one has not used for long another may be about
//! to use. A rank that has idle names asks: it tells all others which, and how often each was called. Whoever
//! hears that says the same of its own, at once and whatever its caller does. A name that all ranks list with
//! one count is forgotten by each when it has heard all: its calls are over everywhere, so no frame of them is
//! under way. All others stay. Every rank reads the same lists, and so forgets the same.
//!
//! Between its own list and the last of the others' a rank does not know whether a name that it has listed is
//! forgotten, and so not which number the next call has: such a call [waits](crate::Broken::Undecided) for a
//! round trip. A peer may know already and be ahead, so in that time frames of the name are kept, whatever
//! their number.
//!
//! Rounds are counted. A peer may be one round ahead, no more, as the next needs this rank's word. Where a rank
//! has left, whatever it has not spoken of is not decided any more, and nothing is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use allrail_coordinate::messages::{Idle, IdleNames};

/// The round under way.
#[derive(Debug)]
pub(super) struct Round {
    /// What this rank has listed.
    pub(super) mine: Vec<Idle>,
    /// Of these, what all who were heard have listed.
    pub(super) common: Vec<Idle>,
    pub(super) heard: BTreeSet<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// How many rounds are over.
    pub(super) rounds: u64,
    pub(super) round: Option<Round>,
    /// What peers say of the next one.
    pub(super) ahead: BTreeMap<u32, Arc<IdleNames>>,
    /// Who has left.
    pub(super) left: BTreeSet<u32>,
    /// How many calls this rank had begun when it last looked for idle names.
    pub(super) looked: u64,
}

/// What of one list is in the other; both are in order.
fn intersect(one: &mut Vec<Idle>, other: &[Idle]) {
    let mut other = other.iter().peekable();
    one.retain(|name| {
        while other.next_if(|next| **next < *name).is_some() {}
        other.peek().is_some_and(|next| *next == name)
    });
}

impl Forgetting {
    /// Whether the round under way is over for this rank.
    pub(super) fn has_all(&self, ranks: u32) -> bool {
        self.round.as_ref().is_some_and(|round| round.heard.len() as u64 + 1 == u64::from(ranks))
    }

    /// A peer has listed its idle names for the round under way.
    pub(super) fn hear(&mut self, from: u32, said: &IdleNames) {
        if let Some(round) = &mut self.round {
            round.heard.insert(from);
            intersect(&mut round.common, &said.names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allrail_schedule::Key;

    #[test]
    fn only_what_all_list_with_one_count_is_common() {
        let list = |names: &[(u64, u64)]| -> Vec<Idle> {
            names.iter().map(|(key, calls)| Idle { key: Key(*key), calls: *calls }).collect()
        };
        let mut common = list(&[(1, 1), (2, 5), (4, 1), (9, 3)]);
        intersect(&mut common, &list(&[(2, 5), (3, 1), (4, 2), (9, 3), (10, 1)]));
        assert_eq!(common, list(&[(2, 5), (9, 3)]));
        intersect(&mut common, &[]);
        assert!(common.is_empty());
    }
}
