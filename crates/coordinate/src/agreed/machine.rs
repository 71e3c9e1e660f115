//! What a rank knows.

use allrail_core::Time;

use super::search::Search;
use crate::bits::Bits;
use crate::finishes::{Own, Tally};
use crate::fleet::Shared;
use crate::messages::Report;
use crate::place::Place;
use crate::requests::{Asked, Asks, Request};
use crate::signatures::Signatures;
use crate::table::Table;

/// One rank.
pub(super) struct Machine {
    pub(super) rank: u32,
    pub(super) is_stopped: bool,
    pub(super) joined: bool,
    pub(super) epoch: u64,
    /// How many events it has taken in.
    pub(super) seen: u64,
    pub(super) place: Place,
    /// Submitted, not launched; by tensor.
    pub(super) open: Bits,
    /// Ready here; by slot.
    pub(super) own: Bits,
    /// Ready in each child's subtree; by slot.
    pub(super) below: Box<[Bits]>,
    /// Said to the parent, not agreed yet; by slot.
    pub(super) said: Bits,
    /// Requests passed on to the parent, not agreed yet; by tensor.
    pub(super) asked: Bits,
    pub(super) table: Table,
    pub(super) signatures: Signatures,
    pub(super) finished: Own,
    pub(super) tally: Tally,
    /// Joins and slots to free, for the next report.
    pub(super) news: Report,
    pub(super) shuts_down: bool,
    /// Until when it gathers.
    pub(super) gate: Option<Time>,
    /// When its timer fires.
    pub(super) watch_at: Time,
    /// What waited when it last looked; by tensor.
    pub(super) aged: Bits,
    pub(super) search: Option<Box<Search>>,
    /// When it last passed a complaint on.
    pub(super) complained: Option<Time>,
    /// Of rank 0: what it has warned of, and when first.
    pub(super) warned: Vec<(u32, Time)>,
}

impl Machine {
    pub(super) fn new(shared: &Shared, rank: u32) -> Self {
        let place = Place::new(rank, shared.ranks, shared.settings.fan_out);
        Self {
            rank,
            is_stopped: false,
            joined: false,
            epoch: 0,
            seen: 0,
            place,
            open: Bits::default(),
            own: Bits::default(),
            below: vec![Bits::default(); place.children() as usize].into_boxed_slice(),
            said: Bits::default(),
            asked: Bits::default(),
            table: Table::new(place.span()),
            signatures: Signatures::default(),
            finished: Own::default(),
            tally: Tally::default(),
            news: Report::default(),
            shuts_down: false,
            gate: None,
            watch_at: Time::MAX,
            aged: Bits::default(),
            search: None,
            complained: None,
            warned: Vec::new(),
        }
    }

    /// Notes that this rank has a tensor.
    pub(super) fn note(&mut self, shared: &Shared, now: Time, request: Request) {
        let ledger = shared.ledger(self.seen);
        if let Some(slot) = ledger.hit(self.rank, &request) {
            return self.own.insert(slot);
        }
        if let Some(slot) = ledger.slot(request.tensor) {
            self.news.forget.get_or_insert_default().insert(slot);
        }
        let signature = self.signatures.of(request.tensor, shared);
        let entries = vec![Asked::by(self.rank, request, signature)];
        self.table.add(now, Asks { entries, ..Asks::default() });
    }

    pub(super) fn clear(&mut self, slots: &Bits) {
        self.own.subtract(slots);
        self.said.subtract(slots);
        self.below.iter_mut().for_each(|below| below.subtract(slots));
        if let Some(forget) = &mut self.news.forget {
            forget.subtract(slots);
            if forget.is_empty() {
                self.news.forget = None;
            }
        }
    }
}
