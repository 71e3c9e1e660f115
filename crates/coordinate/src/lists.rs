//! Lists of requests on their way to rank 0, and rank 0's answer: what `central` and `tree` do
//! every cycle, and `cached` for what is not in its cache.

use std::sync::Arc;

use allrail_core::Time;
use allrail_schedule::signature::Signed;

use super::bits::Bits;
use super::broken::{Breach, Broken, Kind};
use super::finishes::{Over, Tally};
use super::fleet::Shared;
use super::messages::{Decision, Payload, Reason};
use super::place::Place;
use super::ranks::Ranks;
use super::requests::{Asked, Asks, Request};
use super::table::Table;
use super::{Action, Settings, make_room};

/// One rank's part in the gathering of lists.
#[derive(Debug)]
pub(super) struct Lists {
    place: Place,
    /// Which children have sent theirs this cycle.
    heard: Bits,
    arrived: u32,
    gathered: Option<Box<Asks>>,
    tally: Tally,
    cut: Option<u64>,
    /// Of rank 0.
    table: Option<Box<Table>>,
}

impl Lists {
    pub(super) fn new(place: Place) -> Self {
        let table = place.parent().is_none().then(|| Box::new(Table::new(place.span())));
        Self {
            place,
            heard: Bits::default(),
            arrived: 0,
            gathered: None,
            tally: Tally::default(),
            cut: None,
            table,
        }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Adds the rank's own list, or a child's.
    pub(super) fn add(
        &mut self,
        now: Time,
        from: Option<u32>,
        mut asks: Asks,
        shared: &Shared,
        over: &Over,
    ) -> Result<(), Broken> {
        let peer = from.unwrap_or(self.place.rank());
        let parties = self.place.children() as usize + 1;
        let mut party = parties - 1;
        if let Some(from) = from {
            let kind = Kind::Asks;
            let child = self.place.is_child(from);
            party = child.ok_or_else(|| Breach::NotItsPart { kind }.by(from))?;
            if self.heard.contains(party) {
                return Err(Breach::OutOfTurn { kind }.by(from));
            }
            let span = self.place.span_of(party as u32);
            let checked = asks.check(&span, shared.ranks, shared.tensors);
            checked.map_err(|breach| breach.by(from))?;
            self.heard.insert(party);
        }
        if !asks.finished.is_empty() {
            let finished = std::mem::take(&mut asks.finished);
            let counted = self.tally.add(party, parties, &finished, over);
            counted.map_err(|breach| breach.by(peer))?;
        }
        self.cut = self.cut.max(asks.cut);
        self.arrived += 1;
        match (&mut self.table, &mut self.gathered) {
            (Some(table), _) => table.add(now, asks),
            (None, Some(gathered)) => gathered.unite(asks),
            (None, none) => *none = Some(Box::new(asks)),
        }
        Ok(())
    }

    /// Whether its own and all children's lists are here. Begins anew if so.
    pub(super) fn is_complete(&mut self) -> bool {
        let complete = self.arrived == self.place.children() + 1;
        if complete {
            self.arrived = 0;
            self.heard = Bits::default();
        }
        complete
    }

    /// What to send to the parent.
    pub(super) fn take(&mut self) -> Box<Asks> {
        let mut asks = self.gathered.take().unwrap_or_default();
        asks.finished = self.tally.take_whole();
        asks.cut = self.cut.take();
        asks
    }

    /// The children whose lists are not here.
    pub(super) fn silent(&self) -> Vec<u32> {
        let below = self.place.below().enumerate();
        below
            .filter(|(child, _)| !self.heard.contains(*child))
            .map(|(_, span)| span.start)
            .collect()
    }

    /// Rank 0's answer, after `cut`.
    pub(super) fn decide(&mut self, cut: Option<u64>) -> Decision {
        let finished = self.tally.take_whole();
        let cut = self.cut.take().filter(|number| Some(*number) > cut);
        let Some(table) = &mut self.table else { return Decision::default() };
        let all_joined = table.all_joined();
        let complete = table.take_complete();
        if all_joined {
            table.rejoin();
        }
        Decision { complete, all_joined, stop: None, finished, cut }
    }

    /// All ranks agree that these are over.
    pub(super) fn agree(&mut self, finished: &[u64]) {
        self.tally.agree(finished);
    }

    /// On rank 0: warns of tensors that have waited for `stall`. The reason to stop, if they wait longer
    /// still.
    pub(super) fn inspect(
        &mut self,
        now: Time,
        stall: Time,
        settings: &Settings,
        actions: &mut Vec<Action>,
    ) -> Option<Arc<Reason>> {
        let table = self.table.as_mut()?;
        let (oldest, tensor) = table.oldest()?;
        let waited = now.saturating_sub(oldest);
        if waited < stall {
            return None;
        }
        for tensor in table.stalled(now.saturating_sub(stall)) {
            actions.push(Action::Warn { tensor, missing: table.missing(tensor) });
        }
        let ends = settings.stall_shutdown > Time::ZERO && waited >= settings.stall_shutdown;
        ends.then(|| Arc::new(Reason::Stalled { tensor, missing: table.missing(tensor) }))
    }

    /// When [`Lists::inspect`] will next have something to say.
    pub(super) fn inspects_at(&self, stall: Time, settings: &Settings) -> Time {
        let Some(table) = &self.table else { return Time::MAX };
        let after = |since: Option<Time>, wait: Time| {
            since.and_then(|since| since.checked_add(wait)).unwrap_or(Time::MAX)
        };
        let warning = after(table.oldest_unnamed(), stall);
        if settings.stall_shutdown == Time::ZERO {
            return warning;
        }
        warning.min(after(table.oldest().map(|(since, _)| since), settings.stall_shutdown))
    }
}

/// A rank's own requests as a list.
pub(super) fn own(
    rank: u32,
    requests: &mut Vec<Request>,
    joins: bool,
    signature: impl Fn(u32) -> Option<Signed>,
) -> Asks {
    requests.sort_unstable_by_key(|request| request.tensor);
    let joined = if joins { Ranks::span(rank..rank + 1) } else { Ranks::default() };
    let asked = |request: Request| Asked::by(rank, request, signature(request.tensor));
    let entries = requests.drain(..).map(asked).collect();
    Asks { entries, joined, ..Asks::default() }
}

/// Sends to all children.
#[inline]
pub(super) fn forward(place: &Place, payload: Payload, actions: &mut Vec<Action>) {
    if place.children() > 0 {
        make_room(actions);
        actions.push(Action::Spread { below: *place, payload });
    }
}

/// Tells the neighbours in the given trees to stop, but for the one who said so, and stops. Rank 0 is
/// told too: the way to it may lead over the dead.
pub(super) fn stop(
    places: &[&Place],
    from: Option<u32>,
    reason: &Arc<Reason>,
    actions: &mut Vec<Action>,
) {
    let mut told: Vec<u32> = vec![0];
    for place in places {
        told.extend(place.parent());
        told.extend(place.below().map(|span| span.start));
    }
    told.sort_unstable();
    told.dedup();
    let own = places.first().map(|place| place.rank());
    let told = told.into_iter().filter(|to| Some(*to) != from && Some(*to) != own);
    let payload = Payload::Stop(reason.clone());
    actions.extend(told.map(|to| Action::Send { to, payload: payload.clone() }));
    actions.push(Action::Stop(reason.clone()));
}
