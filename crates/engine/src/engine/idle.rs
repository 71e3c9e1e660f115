//! How an engine asks its peers for names that may be forgotten, and hears what they list ([`super::forget`]).

use std::collections::BTreeSet;
use std::sync::Arc;

use allrail_coordinate::messages::{Idle, IdleNames};
use allrail_coordinate::{Cause, Payload};

use super::event::Action;
use super::forget::Round;
use super::named::NamedCalls;
use super::running::Running;

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
