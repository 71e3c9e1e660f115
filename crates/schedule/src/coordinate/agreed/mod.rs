//! `agreed`: ours. Ranks agree on events, and each decides for itself what follows (the ledger). There
//! is no cycle: a node of the tree speaks to its parent when a tensor has become ready in its whole
//! subtree, rank 0 when it is ready everywhere, and that event goes down to all. Nobody speaks while
//! nothing happens, and a tensor is launched two times the height of the tree after its last
//! submission, not at the end of a cycle.
//!
//! - A tensor with a slot is one bit; one without is a request, held back until the whole subtree has
//!   made it. Events come down in one order, so all ledgers take the same steps.
//! - A report says how many events its sender had taken in, and its bits mean what they meant then: a bit
//!   that is under way while its slot is given to another tensor means nothing later.
//! - With a `cycle`, a node waits that long before it speaks again, and what comes meanwhile goes
//!   together: fewer messages, later launches.
//! - A rank that waits longer than `stall` complains to its parent, which passes it on; rank 0 then asks
//!   down the tree who lacks the tensor, and names them. Who does not answer stops the job.
//!
//! Messages a step: at most two for each rank and tensor, and none for a subtree that is not ready.

mod search;

use std::sync::Arc;

use allrail_core::Time;

use super::bits::Bits;
use super::broken::{Breach, Broken};
use super::finishes::{Own, Tally};
use super::fleet::{self, Alone, Shared, Together};
use super::ledger::Consensus;
use super::lists;
use super::messages::{Agreed, Decision, Missing, Payload, Reason, Report};
use super::place::Place;
use super::ranks::Ranks;
use super::requests::{Asked, Asks, Request};
use super::signatures::Signatures;
use super::table::Table;
use search::Search;

use super::{
    Action, CYCLE, CoordinationPolicy, CoordinationSpec, Coordinator, Event, Fleet, Settings, WATCH,
};

/// The policy.
pub struct AgreedPolicy;

impl CoordinationPolicy for AgreedPolicy {
    fn tag(&self) -> &'static str {
        "agreed"
    }

    fn about(&self) -> &'static str {
        "no cycle: a subtree speaks when a tensor is ready in all of it; every rank decides"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "fan_out"]
    }

    fn slots(&self, _: &Settings) -> usize {
        usize::MAX
    }

    fn defaults(&self) -> Settings {
        Settings { cycle: Time::ZERO, ..Settings::default() }
    }

    fn coordinator(&self, job: &CoordinationSpec, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Alone::new(job, |shared| Machine::new(shared, rank)))
    }

    fn fleet(&self, job: &CoordinationSpec) -> Box<dyn Fleet> {
        Box::new(Together::new(job, Machine::new))
    }
}

struct Machine {
    rank: u32,
    is_stopped: bool,
    joined: bool,
    epoch: u64,
    /// How many events it has taken in.
    seen: u64,
    place: Place,
    /// Submitted, not launched; by tensor.
    open: Bits,
    /// Ready here; by slot.
    own: Bits,
    /// Ready in each child's subtree; by slot.
    below: Box<[Bits]>,
    /// Said to the parent, not agreed yet; by slot.
    said: Bits,
    /// Requests passed on to the parent, not agreed yet; by tensor.
    asked: Bits,
    table: Table,
    signatures: Signatures,
    finished: Own,
    tally: Tally,
    /// Joins and slots to free, for the next report.
    news: Report,
    shuts_down: bool,
    /// Until when it gathers.
    gate: Option<Time>,
    /// When its timer fires.
    watch_at: Time,
    /// What waited when it last looked; by tensor.
    aged: Bits,
    search: Option<Box<Search>>,
    /// When it last passed a complaint on.
    complained: Option<Time>,
    /// Of rank 0: what it has warned of, and when first.
    warned: Vec<(u32, Time)>,
}

impl Machine {
    fn new(shared: &Shared, rank: u32) -> Self {
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
    fn note(&mut self, shared: &Shared, now: Time, request: Request) {
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

    /// Takes in what a child says.
    fn report(
        &mut self,
        shared: &Shared,
        now: Time,
        from: u32,
        report: Report,
    ) -> Result<(), Breach> {
        let kind = super::broken::Kind::Report;
        let child = self.place.is_child(from).ok_or(Breach::NotItsPart { kind })?;
        let ledger = shared.ledger(self.seen);
        // What is agreed comes to a child from here.
        if report.epoch > self.epoch || report.heard > self.seen {
            return Err(Breach::OutOfTurn { kind });
        }
        let slots = ledger.slots();
        let named = [Some(&report.ready), report.forget.as_deref()];
        let beyond = named.into_iter().flatten().filter_map(Bits::highest).max();
        if let Some(slot) = beyond.filter(|slot| *slot >= slots) {
            return Err(Breach::Slot { slot: slot as u64, slots: slots as u64 });
        }
        if let Some(asks) = &report.asks {
            asks.check(&self.place.span_of(child as u32), shared.ranks, shared.tensors)?;
            // Operations go on when all ranks have joined.
            let parties = self.place.children() as usize + 1;
            self.tally.add(child, parties, &asks.finished, ledger.over())?;
            if asks.cut.is_some() {
                let news = self.news.asks.get_or_insert_default();
                news.cut = news.cut.max(asks.cut);
            }
        }
        if report.epoch != self.epoch {
            return Ok(());
        }
        let holds = |slot: &usize| ledger.entry_since(*slot, report.heard).is_some();
        let ready: Bits = report.ready.iter().filter(holds).collect();
        self.below[child].unite(&ready);
        if let Some(forget) = report.forget {
            let forget: Bits = forget.iter().filter(holds).collect();
            if !forget.is_empty() {
                self.news.forget.get_or_insert_default().unite(&forget);
            }
        }
        if let Some(mut asks) = report.asks {
            self.shuts_down |= asks.shutdown;
            // What was counted goes up when it is whole; a list of nothing else goes up at once.
            let counted = !asks.finished.is_empty() || asks.cut.is_some();
            asks.finished.clear();
            asks.cut = None;
            if !counted || !asks.is_empty() {
                let news = self.news.asks.get_or_insert_default();
                news.joined.unite(&asks.joined);
                news.shutdown |= asks.shutdown;
            }
            self.table.add(now, *asks);
        }
        Ok(())
    }

    /// Says what is new, if there is anything, and it may speak.
    fn speak(
        &mut self,
        shared: &mut Shared,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        while !self.is_stopped && self.gate.is_none_or(|gate| gate <= now) {
            let ledger = shared.ledger(self.seen);
            if self.finished.has_news(ledger.over()) {
                let told = self.finished.tell(ledger.over());
                let parties = self.place.children() as usize + 1;
                let counted = self.tally.add(parties - 1, parties, &told, ledger.over());
                counted.map_err(|breach| breach.by(self.rank))?;
            }
            let mut report = std::mem::take(&mut self.news);
            report.epoch = self.epoch;
            report.heard = self.seen;
            report.ready = if self.joined { Bits::below(ledger.slots()) } else { self.own.clone() };
            self.below.iter().for_each(|below| report.ready.intersect(below));
            report.ready.subtract(&self.said);
            if let Some(forget) = &report.forget {
                report.ready.subtract(forget);
            }
            let Some(parent) = self.place.parent() else {
                if !self.agree(shared, now, report, actions)? {
                    break;
                }
                continue;
            };
            let whole = self.table.take_whole();
            if !whole.is_empty() {
                self.asked.unite(&whole.iter().map(|one| one.request.tensor as usize).collect());
                report.asks.get_or_insert_default().entries = sorted(whole);
            }
            let finished = self.tally.take_whole();
            if !finished.is_empty() {
                report.asks.get_or_insert_default().finished = finished;
            }
            if report.ready.is_empty() && report.asks.is_none() && report.forget.is_none() {
                break;
            }
            self.said.unite(&report.ready);
            let payload = Payload::Report(Box::new(report));
            actions.push(Action::Send { to: parent, payload });
            self.shut_gate(shared, now, actions);
        }
        Ok(())
    }

    fn shut_gate(&mut self, shared: &Shared, now: Time, actions: &mut Vec<Action>) {
        let cycle = shared.settings.cycle;
        if cycle > Time::ZERO {
            let at = now.checked_add(cycle).unwrap_or(Time::MAX);
            self.gate = Some(at);
            actions.push(Action::SetTimer { id: CYCLE, at });
        }
    }

    /// On rank 0: makes an event of what is new. Whether there was anything.
    fn agree(
        &mut self,
        shared: &mut Shared,
        now: Time,
        report: Report,
        actions: &mut Vec<Action>,
    ) -> Result<bool, Broken> {
        let ledger = shared.ledger(self.seen);
        let mut forget = report.forget.map(|forget| *forget).unwrap_or_default();
        forget = forget.iter().filter(|slot| ledger.entry(*slot).is_some()).collect();
        let cut = report.asks.and_then(|asks| asks.cut);
        let all_joined = self.table.all_joined();
        let decision = Decision {
            complete: self.table.take_complete(),
            all_joined,
            stop: self.shuts_down.then(|| Arc::new(Reason::Asked)),
            finished: self.tally.take_whole(),
            cut: cut.filter(|_| cut > ledger.cut()),
        };
        let ready = if all_joined { Bits::default() } else { report.ready };
        let decides = decision != Decision::default();
        if ready.is_empty() && forget.is_empty() && !decides {
            return Ok(false);
        }
        let event = Agreed {
            ready,
            forget: (!forget.is_empty()).then_some(forget),
            decision: decides.then_some(decision),
        };
        self.shut_gate(shared, now, actions);
        self.take_in(shared, now, &Arc::new(event), actions)
            .map_err(|breach| breach.by(self.rank))?;
        Ok(true)
    }

    /// What is wrong with an event, for one that has told what this rank has.
    fn check(&self, shared: &Shared, event: &Agreed) -> Result<(), Breach> {
        let slots = shared.ledger(self.seen).slots();
        let unknown = event.forget.as_ref().and_then(Bits::highest);
        let mut wrong = unknown.filter(|slot| *slot >= slots);
        let highest = event.ready.highest();
        if self.joined {
            wrong = wrong.or(highest.filter(|slot| *slot >= slots));
        } else if !event.ready.is_within(&self.own) {
            wrong = wrong.or(highest);
        }
        if let Some(slot) = wrong {
            return Err(Breach::Slot { slot: slot as u64, slots: slots as u64 });
        }
        let Some(decision) = &event.decision else { return Ok(()) };
        if let Some(number) =
            decision.cut.filter(|_| decision.cut <= shared.ledger(self.seen).cut())
        {
            return Err(Breach::Cut { number });
        }
        let asked = (!self.joined).then_some(&self.open);
        decision.check(self.rank, shared.ranks, shared.tensors, asked)
    }

    /// Takes an event in that all ranks agree on.
    fn take_in(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: &Arc<Agreed>,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        self.check(shared, event)?;
        lists::forward(&self.place, Payload::Agreed(event.clone()), actions);
        let mut again = Vec::new();
        if let Some(forget) = &event.forget {
            let ledger = shared.ledger(self.seen);
            for slot in forget.iter().filter(|slot| self.own.contains(*slot)) {
                again.extend(ledger.entry(slot).map(|entry| entry.request_of(self.rank)));
            }
            self.clear(forget);
        }
        self.clear(&event.ready);
        let decision = event.decision.as_ref();
        let outcome = Consensus {
            invalid: event.forget.clone().unwrap_or_default(),
            ready: event.ready.clone(),
            ..decision.map(Decision::outcome).unwrap_or_default()
        };
        if let Some(decision) = decision {
            self.finished.agree(&decision.finished)?;
            self.tally.agree(&decision.finished);
            for one in &decision.complete {
                self.asked.remove(one.request.tensor as usize);
            }
            if decision.all_joined {
                self.joined = false;
                self.epoch += 1;
                self.table.rejoin();
                self.said = Bits::default();
                self.below.fill(Bits::default());
            }
        }
        if let Some(launch) = shared.ledgers.step(&mut self.seen, &outcome)? {
            self.open.subtract(&launch.tensors);
            self.aged.subtract(&launch.tensors);
            actions.push(Action::Ready(launch));
        }
        // Whatever was said of these slots before was of other tensors.
        let ledger = shared.ledger(self.seen);
        let given = outcome.complete.iter().filter_map(|one| ledger.slot(one.request.tensor));
        self.clear(&given.collect());
        if let Some(reason) = decision.and_then(|decision| decision.stop.clone()) {
            self.is_stopped = true;
            actions.push(Action::Stop(reason));
            return Ok(());
        }
        again.into_iter().for_each(|request| self.note(shared, now, request));
        Ok(())
    }

    fn clear(&mut self, slots: &Bits) {
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

    /// This rank has a tensor.
    fn submitted(
        &mut self,
        shared: &Shared,
        now: Time,
        request: Request,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        shared.check_tensor(request.tensor)?;
        shared.check_rank(request.root)?;
        let tensor = request.tensor as usize;
        if self.open.contains(tensor) {
            actions.push(Action::Refused { tensor: request.tensor });
            return Ok(());
        }
        self.open.insert(tensor);
        self.note(shared, now, request);
        self.watch_soon(shared, now, actions);
        Ok(())
    }

    /// A message of a peer.
    fn hear(
        &mut self,
        shared: &mut Shared,
        now: Time,
        from: u32,
        payload: Payload,
        actions: &mut Vec<Action>,
    ) -> Result<(), Breach> {
        shared.check_rank(from)?;
        let kind = payload.kind();
        match payload {
            Payload::Report(report) => {
                self.report(shared, now, from, *report)?;
                self.watch_soon(shared, now, actions);
            }
            Payload::Agreed(event) => {
                if self.place.parent() != Some(from) {
                    return Err(Breach::NotItsPart { kind });
                }
                self.take_in(shared, now, &event, actions)?;
            }
            Payload::Probe(probe) => {
                shared.check_rank(probe.origin)?;
                probe.tensors.iter().try_for_each(|tensor| shared.check_tensor(*tensor))?;
                self.probed(shared, now, probe.origin, &probe.tensors, actions);
            }
            Payload::Missing(missing) => {
                let Missing { tensors, passed } = *missing;
                tensors.iter().try_for_each(|tensor| shared.check_tensor(*tensor))?;
                passed.iter().try_for_each(|rank| shared.check_rank(*rank))?;
                if let Some(search) = &mut self.search
                    && search.asked.insert(from, true) != Some(true)
                {
                    passed.into_iter().for_each(|rank| {
                        search.asked.entry(rank).or_insert(false);
                    });
                    search.missing.extend(tensors.into_iter().map(|tensor| (tensor, from)));
                }
                self.conclude(shared, now, actions);
            }
            Payload::Stop(reason) => {
                fleet::Machine::stop(self, Some(from), &reason, actions);
            }
            Payload::Asks(_)
            | Payload::Vote(_)
            | Payload::Verdict(_)
            | Payload::Decision(_)
            | Payload::Waits(_)
            | Payload::Idle(_)
            | Payload::Thaw(_) => {
                return Err(Breach::NotItsPart { kind });
            }
        }
        Ok(())
    }
}

fn sorted(mut asked: Vec<Asked>) -> Vec<Asked> {
    asked.sort_unstable_by_key(|one| one.request.tensor);
    asked
}

impl fleet::Machine for Machine {
    const ACTS_ON_SUBMISSION: bool = true;

    fn rank(&self) -> u32 {
        self.rank
    }

    fn on(
        &mut self,
        shared: &mut Shared,
        now: Time,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<(), Broken> {
        if self.is_stopped {
            return Ok(());
        }
        let rank = self.rank;
        let own = |breach: Breach| breach.by(rank);
        match event {
            Event::Submit(request) => {
                self.submitted(shared, now, request, actions).map_err(own)?;
            }
            Event::Register { tensor, signature } => {
                shared.check_tensor(tensor).map_err(own)?;
                self.signatures.change(tensor, signature);
            }
            Event::Finished { operation } => {
                let over = shared.ledger(self.seen).over();
                self.finished.finish(operation, over).map_err(own)?;
            }
            Event::Cut { number } => {
                // Another rank's clock may have come to it before.
                if Some(number) > shared.ledger(self.seen).cut() {
                    let news = self.news.asks.get_or_insert_default();
                    news.cut = news.cut.max(Some(number));
                }
            }
            Event::Join if !self.joined => {
                self.joined = true;
                let joined = Ranks::span(rank..rank + 1);
                self.news.asks.get_or_insert_default().joined.unite(&joined);
                self.table.add(now, Asks { joined, ..Asks::default() });
            }
            Event::Shutdown => {
                self.news.asks.get_or_insert_default().shutdown = true;
                self.shuts_down = true;
            }
            Event::Message { from, payload } => {
                let heard = self.hear(shared, now, from, payload, actions);
                heard.map_err(|breach| breach.by(from))?;
            }
            Event::Timer { id: WATCH } => self.look(shared, now, actions),
            Event::Start | Event::Timer { .. } | Event::Join => {}
        }
        self.speak(shared, now, actions)
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.is_stopped = true;
        lists::stop(&[&self.place], from, reason, actions);
    }

    fn repeats_until(&self, _: &Shared) -> Option<Time> {
        None
    }

    fn skip(&mut self, _: Time) {}
}
