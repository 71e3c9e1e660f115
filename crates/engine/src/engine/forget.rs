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

use allrail_schedule::coordinate::messages::{Idle, IdleNames};
use allrail_schedule::coordinate::{Cause, Payload};

use super::event::Action;
use super::named::NamedCalls;
use super::running::Running;

/// How many names one list has at most.
pub(super) const MOST_IDLE: usize = 1 << 15;

/// The round under way.
#[derive(Debug)]
struct Round {
    /// What this rank has listed.
    mine: Vec<Idle>,
    /// Of these, what all who were heard have listed.
    common: Vec<Idle>,
    heard: BTreeSet<u32>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    /// How many rounds are over.
    rounds: u64,
    round: Option<Round>,
    /// What peers say of the next one.
    ahead: BTreeMap<u32, Arc<IdleNames>>,
    /// Who has left.
    left: BTreeSet<u32>,
    /// How many calls this rank had begun when it last looked for idle names.
    looked: u64,
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
    fn has_all(&self, ranks: u32) -> bool {
        self.round.as_ref().is_some_and(|round| round.heard.len() as u64 + 1 == u64::from(ranks))
    }

    fn hear(&mut self, from: u32, said: &IdleNames) {
        if let Some(round) = &mut self.round {
            round.heard.insert(from);
            intersect(&mut round.common, &said.names);
        }
    }
}

impl Running {
    /// A call of a name has begun: asks now and then for names that may be forgotten.
    pub(super) fn look_for_idle(&mut self, out: &mut Vec<Action>) {
        let Some(named) = &mut self.named else { return };
        let forgetting = &mut self.forgetting;
        let since = named.begun() - forgetting.looked;
        if since < (self.forget_after / 4).max(1)
            || forgetting.round.is_some()
            || !forgetting.left.is_empty()
        {
            return;
        }
        forgetting.looked = named.begun();
        let mine = named.take_idle(self.forget_after);
        if !mine.is_empty() {
            self.begin_round(mine, out);
        }
    }

    fn begin_round(&mut self, mine: Vec<Idle>, out: &mut Vec<Action>) {
        let said = Arc::new(IdleNames { round: self.forgetting.rounds, names: mine.clone() });
        let others = (0..self.ranks).filter(|rank| *rank != self.rank);
        out.extend(others.map(|to| Action::Send { to, payload: Payload::Idle(said.clone()) }));
        if !mine.is_empty() {
            let keys = mine.iter().map(|one| one.key).collect();
            out.push(Action::Idle { keys });
        }
        let (common, heard) = (mine.clone(), BTreeSet::new());
        self.forgetting.round = Some(Round { mine, common, heard });
        self.end_rounds(out);
    }

    /// A peer lists its idle names.
    pub(super) fn heard_of_idle(
        &mut self,
        from: u32,
        said: &Arc<IdleNames>,
        out: &mut Vec<Action>,
    ) {
        let forgetting = &mut self.forgetting;
        let round = forgetting.round.as_ref();
        let known = round.is_some_and(|round| round.heard.contains(&from));
        let ahead = said.round == forgetting.rounds + 1 && known;
        let is_next = said.round == forgetting.rounds && !known;
        let again = ahead && forgetting.ahead.contains_key(&from);
        let in_order = said.names.is_sorted_by(|one, next| one.key < next.key);
        let fits = self.named.is_some() && in_order && !again && (ahead || is_next);
        if !fits {
            return self.fail(Cause::Word { from }.into(), out);
        }
        if ahead {
            forgetting.ahead.insert(from, said.clone());
        } else {
            self.take_part(&[(from, said.clone())], out);
        }
    }

    /// These have spoken of a round: this rank does, too, unless one never will.
    fn take_part(&mut self, said: &[(u32, Arc<IdleNames>)], out: &mut Vec<Action>) {
        if self.forgetting.round.is_none() {
            let spoken = |rank: &u32| said.iter().any(|(from, _)| from == rank);
            if !self.forgetting.left.iter().all(spoken) {
                return;
            }
            let after = self.forget_after;
            let mine = self.named.as_mut().map(|named| named.take_idle(after));
            self.begin_round(mine.unwrap_or_default(), out);
        }
        said.iter().for_each(|(from, said)| self.forgetting.hear(*from, said));
        self.end_rounds(out);
    }

    fn end_rounds(&mut self, out: &mut Vec<Action>) {
        if !self.forgetting.has_all(self.ranks) {
            return;
        }
        if let (Some(round), Some(named)) = (self.forgetting.round.take(), &mut self.named) {
            named.decide(&round.mine, &round.common);
        }
        self.forgetting.rounds += 1;
        let ahead: Vec<_> = std::mem::take(&mut self.forgetting.ahead).into_iter().collect();
        if !ahead.is_empty() {
            self.take_part(&ahead, out);
        }
    }

    /// A peer says nothing more: what it has not spoken of is not decided any more.
    pub(super) fn peer_left(&mut self, rank: u32) {
        self.forgetting.left.insert(rank);
        let spoken = |round: &Round| round.heard.contains(&rank);
        if let Some(round) = self.forgetting.round.take_if(|round| !spoken(round))
            && let Some(named) = &mut self.named
        {
            named.decide(&round.mine, &[]);
        }
    }

    /// Names that are known, for a test of memory.
    pub(super) fn names(&self) -> usize {
        self.named.as_ref().map_or(0, NamedCalls::len)
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
