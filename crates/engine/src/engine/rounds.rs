//! Rounds, and the order of launches that is frozen once it has held.
//!
//! Where launches need a common order, ranks agree on every event from which one follows, and that costs
//! messages. A training job exchanges the same tensors step after step, mostly in the same order. So with
//! [`Settings::freeze`](super::Settings::freeze) an engine counts *rounds*: in a round every rank submits every
//! tensor once (or says that it is unused), and none of the next before all of this one. Once as many rounds in
//! a row have started the same operations in the same order, that list is frozen: from then on an operation
//! starts when all before it in the list have started and this rank has submitted its tensors, and a tensor is
//! done when it is on this rank. Nobody asks anybody, and no scheduler is heard.
//!
//! **All freeze alike.** Rounds end, and lists are compared, in the list of agreed events alone, which all
//! ranks see in one order. What belongs to the next round is told to no coordinator before this one is over, so
//! when an order freezes nothing is under discussion, and when it thaws all begin from the same place.
//!
//! **Ranks are never a round apart.** An all-reduce ends nowhere before every rank has started it. (That is not
//! so of other operations: an order of those does not freeze.) So no rank ends a round before all ranks have
//! started all of it.
//!
//! **A frozen round ends on every rank.** Take the rank that has started the fewest operations. What it
//! has started, all others have, so that ends. What comes next waits for nothing but its tensors, and every rank
//! submits all tensors of a round. (Not by a rank that waits for one tensor before it submits another that the
//! list has earlier: [`Engine::blocked`](super::Engine::blocked) finds it, and its caller says so.)
//!
//! **All thaw alike.** A rank whose submission is not what it was at this place of the round before (another
//! tensor, or unused where it was used) does not fit: it tells all others that the order holds to the end of
//! this round, and starts nothing more until every one has answered that it knows. Its tensor was not submitted
//! before, so an operation of this round waits on it; nobody can end the round without that, and so nobody
//! begins the next one as frozen. A tensor without bytes has no operation, and fits anywhere. An answer asks for
//! nothing, so it comes, or a fault ends the job. A [retuning](super::Event::Retune), which all know before its
//! generation, thaws without a word.
//!
//! After a thaw all is agreed again, and as many equal rounds freeze again.

use std::collections::BTreeSet;

use allrail_schedule::Key;
use allrail_schedule::coordinate::messages::Thaw;
use allrail_schedule::coordinate::{Cause, Payload};
use allrail_schedule::tensor::{OperationId, Pieces};

use super::event::Action;
use super::parts::Parts;
use super::running::Running;
use crate::Broken;

/// An operation that the tensor scheduler starts.
#[derive(Clone, PartialEq)]
struct Start {
    pieces: Pieces,
    priority: i64,
}

/// See the module.
pub(super) struct Rounds {
    /// After how many equal rounds an order is frozen.
    after: u32,
    /// How many tensors a round has.
    tensors: usize,
    /// How many rounds are over: the generation of all tensors in this one.
    number: u64,
    /// How many tensors of it are not done.
    left: usize,
    /// What it has started, if that is agreed.
    starts: Vec<Start>,
    /// What the round before has started; or what is frozen.
    last: Vec<Start>,
    /// How many rounds in a row have started that.
    held: u32,
    /// The round that this rank submits, and what it has submitted of it: which tensor, and whether unused.
    submits: u64,
    own: Vec<(u32, bool)>,
    /// The same of the round before.
    own_before: Vec<(u32, bool)>,
    /// The last round in which the two differ.
    differs: Option<u64>,
    /// How many operations of the frozen list have started in this round.
    frozen: Option<usize>,
    /// No order is frozen in this round and after it.
    until: u64,
    /// Who has not answered that it knows.
    unheard: BTreeSet<u32>,
}

impl Rounds {
    pub(super) fn new(after: u32, tensors: usize) -> Self {
        Self {
            after,
            tensors,
            number: 0,
            left: tensors,
            starts: Vec::new(),
            last: Vec::new(),
            held: 0,
            submits: 0,
            own: Vec::new(),
            own_before: Vec::new(),
            differs: None,
            frozen: None,
            until: u64::MAX,
            unheard: BTreeSet::new(),
        }
    }

    /// Whether launches follow a frozen list.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether a generation is of the round that is under way.
    pub(super) fn is_now(&self, generation: u64) -> bool {
        generation == self.number
    }

    /// Whether this rank may submit a generation now.
    pub(super) fn takes(&self, generation: u64) -> bool {
        generation == self.submits
    }

    /// The scheduler has started an operation.
    pub(super) fn started(&mut self, pieces: &Pieces, priority: i64) {
        self.starts.push(Start { pieces: pieces.clone(), priority });
    }

    /// A tensor of this round is done.
    pub(super) fn tensor_done(&mut self) {
        self.left -= 1;
    }

    /// This rank submits a tensor, which `fits` anywhere if it is empty.
    fn submitted(&mut self, tensor: u32, unused: bool, fits: bool) {
        let before = self.own_before.get(self.own.len());
        if !fits && before != Some(&(tensor, unused)) {
            self.differs = Some(self.submits);
        }
        self.own.push((tensor, unused));
        if self.own.len() == self.tensors {
            std::mem::swap(&mut self.own, &mut self.own_before);
            self.own.clear();
            self.submits += 1;
        }
    }

    /// The round is over: whether its order was frozen, and is no more.
    fn next(&mut self, retuned: Option<u64>) -> bool {
        self.number += 1;
        self.left = self.tensors;
        if self.frozen.is_some() {
            if self.until > self.number {
                self.frozen = Some(0);
                return false;
            }
            self.thaw();
            return true;
        }
        self.held = if self.starts == self.last { self.held + 1 } else { 1 };
        std::mem::swap(&mut self.starts, &mut self.last);
        self.starts.clear();
        let until = self.until.min(retuned.unwrap_or(u64::MAX));
        if self.held >= self.after && until > self.number && !self.last.is_empty() {
            (self.frozen, self.until) = (Some(0), until);
        }
        false
    }

    fn thaw(&mut self) {
        (self.frozen, self.until, self.held) = (None, u64::MAX, 0);
        self.last.clear();
        self.starts.clear();
    }
}

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
