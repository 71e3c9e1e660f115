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

use allrail_schedule::tensor::Pieces;

/// An operation that the tensor scheduler starts.
#[derive(Clone, PartialEq)]
pub(super) struct Start {
    pub(super) pieces: Pieces,
    pub(super) priority: i64,
}

/// See the module.
pub(super) struct Rounds {
    /// After how many equal rounds an order is frozen.
    after: u32,
    /// How many tensors a round has.
    tensors: usize,
    /// How many rounds are over: the generation of all tensors in this one.
    pub(super) number: u64,
    /// How many tensors of it are not done.
    pub(super) left: usize,
    /// What it has started, if that is agreed.
    starts: Vec<Start>,
    /// What the round before has started; or what is frozen.
    pub(super) last: Vec<Start>,
    /// How many rounds in a row have started that.
    held: u32,
    /// The round that this rank submits, and what it has submitted of it: which tensor, and whether unused.
    submits: u64,
    own: Vec<(u32, bool)>,
    /// The same of the round before.
    own_before: Vec<(u32, bool)>,
    /// The last round in which the two differ.
    pub(super) differs: Option<u64>,
    /// How many operations of the frozen list have started in this round.
    pub(super) frozen: Option<usize>,
    /// No order is frozen in this round and after it.
    pub(super) until: u64,
    /// Who has not answered that it knows.
    pub(super) unheard: BTreeSet<u32>,
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
    pub(super) fn submitted(&mut self, tensor: u32, unused: bool, fits: bool) {
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
    pub(super) fn next(&mut self, retuned: Option<u64>) -> bool {
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

    /// From now on all is agreed again.
    pub(super) fn thaw(&mut self) {
        (self.frozen, self.until, self.held) = (None, u64::MAX, 0);
        self.last.clear();
        self.starts.clear();
    }
}
