//! How an engine goes through its rounds: it replays the frozen order, and thaws it with its peers
//! ([`super::rounds`]).

use allrail_coordinate::messages::Thaw;
use allrail_coordinate::{Cause, Payload};
use allrail_schedule::Key;
use allrail_schedule::tensor::OperationId;

use super::event::Action;
use super::parts::Parts;
use super::rounds::Start;
use super::running::Running;
use crate::Broken;

impl Running {
    /// This rank has submitted a tensor: what follows from it for the round.
    pub(super) fn submitted(&mut self, number: u32, out: &mut Vec<Action>) {
        let tensor = &self.tensors.all[number as usize];
        let (unused, is_empty) = (tensor.unused, tensor.request.bytes.count() == 0);
        if let Some(rounds) = &mut self.rounds {
            rounds.submitted(number, unused, is_empty);
        }
        self.ask_to_thaw(out);
        self.empty_done(number, out);
    }

    /// Says that the frozen order does not fit what this rank submits, if that is so.
    fn ask_to_thaw(&mut self, out: &mut Vec<Action>) {
        let Some(rounds) = &mut self.rounds else { return };
        let round = rounds.number;
        let fits = rounds.differs != Some(round);
        if rounds.frozen.is_none() || fits || rounds.until <= round + 1 {
            return;
        }
        rounds.until = round + 1;
        let others = (0..self.ranks).filter(|rank| *rank != self.rank);
        rounds.unheard = others.clone().collect();
        let says = Thaw { round, known: false };
        out.extend(others.map(|to| Action::Send { to, payload: Payload::Thaw(Box::new(says)) }));
    }

    /// A peer's order does not fit any more, or it knows that ours does not.
    pub(super) fn heard_of_thaw(
        &mut self,
        from: u32,
        Thaw { round, known }: Thaw,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let wrong = || {
            let what = format!("rank {from} ends a frozen order after round {round}");
            Broken::Fault(Cause::Rank { by: self.rank, what })
        };
        let Some(rounds) = &mut self.rounds else { return Err(wrong()) };
        if known {
            rounds.unheard.remove(&from);
            return Ok(());
        }
        // Neither can be a round ahead of the other, but for what it has not seen: that its round is over.
        let now = rounds.is_frozen() && round == rounds.number;
        if !now && round != rounds.number + 1 {
            return Err(wrong());
        }
        rounds.until = rounds.until.min(round + 1);
        let payload = Payload::Thaw(Box::new(Thaw { round, known: true }));
        out.push(Action::Send { to: from, payload });
        Ok(())
    }

    /// From generation `at` on tensors are cut in another way.
    pub(super) fn thaw_before(&mut self, at: u64) {
        let Some(rounds) = self.rounds.as_mut().filter(|rounds| rounds.is_frozen()) else { return };
        rounds.until = rounds.until.min(at);
        // No tensor of it was submitted, here or anywhere.
        if rounds.until <= rounds.number {
            rounds.thaw();
            self.begin_again();
        }
    }

    /// Nothing of this round has been said to a coordinator.
    fn begin_again(&mut self) {
        let Some(rounds) = &self.rounds else { return };
        for tensor in &mut self.tensors.all {
            tensor.agreed_apart(rounds.number);
        }
    }

    /// Starts what is next in the frozen list.
    pub(super) fn replay(
        &mut self,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        while let Some(rounds) = &mut self.rounds
            && let Some(at) = rounds.frozen.filter(|_| rounds.unheard.is_empty())
            && let Some(start) = rounds.last.get(at)
        {
            let all = &mut self.tensors.all;
            let here = |tensor: u32| all[tensor as usize].submitted > rounds.number;
            if !start.pieces.iter().all(|piece| here(piece.tensor)) {
                break;
            }
            let Start { pieces, priority } = start.clone();
            rounds.frozen = Some(at + 1);
            pieces.iter().for_each(|piece| all[piece.tensor as usize].ready = true);
            self.begin(OperationId(at as u64), &pieces, priority, parts, out)?;
        }
        Ok(())
    }

    /// An operation of the frozen list is over here.
    pub(super) fn replayed(
        &mut self,
        OperationId(at): OperationId,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        let start = self.rounds.as_ref().and_then(|rounds| rounds.last.get(at as usize));
        let Some(pieces) = start.map(|start| start.pieces.clone()) else { return Ok(()) };
        for piece in &pieces {
            if self.tensors.all[piece.tensor as usize].is_whole() {
                self.done_alone(piece.tensor, out);
            }
        }
        self.end_round(parts, out)
    }

    /// In a frozen round a tensor without bytes is done as it comes.
    fn empty_done(&mut self, number: u32, out: &mut Vec<Action>) {
        let Some(rounds) = self.rounds.as_ref().filter(|rounds| rounds.is_frozen()) else { return };
        let tensor = &self.tensors.all[number as usize];
        let is_now = tensor.submitted == rounds.number + 1 && !tensor.is_done();
        if is_now && tensor.request.bytes.count() == 0 {
            self.done_alone(number, out);
        }
    }

    fn done_alone(&mut self, number: u32, out: &mut Vec<Action>) {
        let tensor = &mut self.tensors.all[number as usize];
        if tensor.is_done() {
            return;
        }
        let generation = tensor.done();
        out.push(Action::Done { key: tensor.key, generation });
        if let Some(rounds) = &mut self.rounds {
            rounds.tensor_done();
        }
    }

    /// Ends the round once all of it is done, and does what was kept for the next one.
    pub(super) fn end_round(
        &mut self,
        parts: &mut Parts,
        out: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        while let Some(rounds) = self.rounds.as_mut().filter(|rounds| rounds.left == 0) {
            let retuned = self.tunings.next_from(rounds.number + 1);
            if rounds.next(retuned) {
                self.begin_again();
            }
            let Some(rounds) = &self.rounds else { break };
            let (number, frozen) = (rounds.number, rounds.is_frozen());
            let here = (0u32..).zip(&self.tensors.all).filter(|(_, one)| one.submitted > number);
            let here: Vec<u32> = here.map(|(tensor, _)| tensor).collect();
            if !frozen {
                here.into_iter().for_each(|tensor| self.request(tensor));
                break;
            }
            self.ask_to_thaw(out);
            here.into_iter().for_each(|tensor| self.empty_done(tensor, out));
            self.replay(parts, out)?;
        }
        Ok(())
    }

    /// The tensor for which this one has to wait, though this rank has not submitted it.
    pub(super) fn blocked(&self, key: Key) -> Option<Key> {
        let rounds = self.rounds.as_ref()?;
        let tensor = self.tensors.of_key(key).ok()?;
        let start = rounds.last.get(rounds.frozen?)?;
        let waits = !tensor.is_done() && !tensor.is_started();
        let mut first = start.pieces.iter().map(|piece| &self.tensors.all[piece.tensor as usize]);
        let first = first.find(|one| one.submitted <= rounds.number)?;
        waits.then_some(first.key)
    }
}
