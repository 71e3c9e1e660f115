//! Lists of requests on their way to rank 0, and rank 0's answer: what `coordinator` and `tree` do
//! every cycle, and `cached` for what is not in its cache.

use std::sync::Arc;

use allrail_core::Time;

use super::bits::Bits;
use super::messages::{Asked, Asks, Decision, Payload, Ranks, Reason, Request};
use super::place::Place;
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
    /// Of rank 0.
    table: Option<Box<Table>>,
}

impl Lists {
    pub(super) fn new(place: Place) -> Self {
        let table = place.parent().is_none().then(|| Box::new(Table::new(place.span())));
        Self { place, heard: Bits::default(), arrived: 0, gathered: None, table }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Adds the rank's own list, or a child's.
    pub(super) fn add(&mut self, now: Time, from: Option<u32>, asks: Asks) {
        if let Some(child) = from.and_then(|from| self.place.child(from)) {
            self.heard.insert(child);
        }
        self.arrived += 1;
        match (&mut self.table, &mut self.gathered) {
            (Some(table), _) => table.add(now, asks),
            (None, Some(gathered)) => gathered.unite(asks),
            (None, none) => *none = Some(Box::new(asks)),
        }
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
        self.gathered.take().unwrap_or_default()
    }

    /// The children whose lists are not here.
    pub(super) fn silent(&self) -> Vec<u32> {
        let below = self.place.below().enumerate();
        below
            .filter(|(child, _)| !self.heard.contains(*child))
            .map(|(_, span)| span.start)
            .collect()
    }

    /// Rank 0's answer.
    pub(super) fn decide(&mut self) -> Decision {
        let table = self.table.as_mut().expect("rank 0 has the table");
        let all_joined = table.all_joined();
        let complete = table.take_complete();
        if all_joined {
            table.rejoin();
        }
        Decision { complete, all_joined, stop: None }
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

/// A rank's own list.
pub(super) fn own(rank: u32, requests: &mut Vec<Request>, joins: bool, shutdown: bool) -> Asks {
    requests.sort_unstable_by_key(|request| request.tensor);
    let joined = if joins { Ranks::span(rank..rank + 1) } else { Ranks::default() };
    let entries = requests.drain(..).map(|request| Asked::by(rank, request)).collect();
    Asks { entries, joined, shutdown }
}

/// Sends to all children; the last one gets what the others get copies of.
#[inline]
pub(super) fn forward(place: &Place, payload: Payload, actions: &mut Vec<Action>) {
    let Some(others) = place.children().checked_sub(1) else { return };
    let mut to = place.below().map(|span| span.start);
    for to in to.by_ref().take(others as usize) {
        make_room(actions);
        actions.push(Action::Send { to, payload: payload.clone() });
    }
    if let Some(to) = to.next() {
        make_room(actions);
        actions.push(Action::Send { to, payload });
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
