//! `agreed`: ours. Ranks agree on events, and each decides for itself what follows (the ledger). There
//! is no cycle: a node of the tree speaks to its parent when a tensor has become ready in its whole
//! subtree, rank 0 when it is ready everywhere, and that event goes down to all. Nobody speaks while
//! nothing happens, and a tensor is launched two times the height of the tree after its last
//! submission, not at the end of a cycle.
//!
//! - A tensor with a slot is one bit; one without is a request, held back until the whole subtree has
//!   made it. Events come down in one order, so all ledgers take the same steps.
//! - Slots are never given twice: a bit that is under way while its slot is freed means nothing later.
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
use super::ledger::{Ledger, Outcome};
use super::lists;
use super::messages::{Agreed, Asked, Asks, Missing, Payload, Ranks, Reason, Report, Request};
use super::place::Place;
use super::table::Table;
use search::Search;

use super::{Action, CYCLE, CoordinationPolicy, Coordinator, Event, Job, Settings, WATCH};

/// The policy.
pub struct AgreedPolicy;

impl CoordinationPolicy for AgreedPolicy {
    fn tag(&self) -> &'static str {
        "agreed"
    }

    fn about(&self) -> &'static str {
        "no cycle: a subtree speaks when a tensor is ready in all of it; every rank decides (allrail)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn reads(&self) -> &'static [&'static str] {
        &["cycle", "fan_out"]
    }

    fn slots(&self, _: &Settings) -> (usize, bool) {
        (usize::MAX, false)
    }

    fn defaults(&self) -> Settings {
        Settings { cycle: Time::ZERO, ..Settings::default() }
    }

    fn coordinator(&self, job: &Job, rank: u32) -> Box<dyn Coordinator> {
        Box::new(Machine::new(job, rank))
    }
}

struct Machine {
    rank: u32,
    is_stopped: bool,
    joined: bool,
    epoch: u32,
    settings: Arc<Settings>,
    ledger: Arc<Ledger>,
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
    fn new(job: &Job, rank: u32) -> Self {
        let place = Place::new(rank, job.ranks, job.settings.fan_out);
        Self {
            rank,
            is_stopped: false,
            joined: false,
            epoch: 0,
            settings: job.settings.clone(),
            ledger: job.ledger.clone(),
            place,
            open: Bits::default(),
            own: Bits::default(),
            below: vec![Bits::default(); place.children() as usize].into_boxed_slice(),
            said: Bits::default(),
            asked: Bits::default(),
            table: Table::new(place.span()),
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
    fn note(&mut self, now: Time, request: Request) {
        if let Some(slot) = self.ledger.hit(self.rank, &request) {
            return self.own.insert(slot);
        }
        if let Some(slot) = self.ledger.slot(request.tensor) {
            self.news.forget.get_or_insert_default().insert(slot);
        }
        let entries = vec![Asked::by(self.rank, request)];
        self.table.add(now, Asks { entries, ..Asks::default() });
    }

    /// Takes in what a child says.
    fn report(&mut self, now: Time, from: u32, report: Report) {
        let Some(child) = self.place.child(from) else { return };
        if report.epoch != self.epoch {
            return;
        }
        let holds = |slot: &usize| self.ledger.entry(*slot).is_some();
        let ready: Bits = report.ready.iter().filter(holds).collect();
        self.below[child].unite(&ready);
        if let Some(forget) = report.forget {
            self.news.forget.get_or_insert_default().unite(&forget);
        }
        if let Some(asks) = report.asks {
            self.shuts_down |= asks.shutdown;
            let news = self.news.asks.get_or_insert_default();
            news.joined.unite(&asks.joined);
            news.shutdown |= asks.shutdown;
            self.table.add(now, *asks);
        }
    }

    /// Says what is new, if there is anything, and it may speak.
    fn speak(&mut self, now: Time, actions: &mut Vec<Action>) {
        while !self.is_stopped && self.gate.is_none_or(|gate| gate <= now) {
            let mut report = std::mem::take(&mut self.news);
            report.epoch = self.epoch;
            report.ready =
                if self.joined { Bits::below(self.ledger.slots()) } else { self.own.clone() };
            self.below.iter().for_each(|below| report.ready.intersect(below));
            report.ready.subtract(&self.said);
            if let Some(forget) = &report.forget {
                report.ready.subtract(forget);
            }
            if self.place.parent().is_none() {
                if !self.agree(now, report, actions) {
                    break;
                }
                continue;
            }
            let whole = self.table.take_whole();
            if !whole.is_empty() {
                self.asked.unite(&whole.iter().map(|one| one.request.tensor as usize).collect());
                report.asks.get_or_insert_default().entries = sorted(whole);
            }
            if report.ready.is_empty() && report.asks.is_none() && report.forget.is_none() {
                break;
            }
            self.said.unite(&report.ready);
            let to = self.place.parent().unwrap_or(0);
            actions.push(Action::Send { to, payload: Payload::Report(Box::new(report)) });
            self.shut_gate(now, actions);
        }
    }

    fn shut_gate(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.settings.cycle > Time::ZERO {
            let at = now.checked_add(self.settings.cycle).unwrap_or(Time::MAX);
            self.gate = Some(at);
            actions.push(Action::SetTimer { id: CYCLE, at });
        }
    }

    /// On rank 0: makes an event of what is new. Whether there was anything.
    fn agree(&mut self, now: Time, report: Report, actions: &mut Vec<Action>) -> bool {
        let mut forget = report.forget.map(|forget| *forget).unwrap_or_default();
        forget = forget.iter().filter(|slot| self.ledger.entry(*slot).is_some()).collect();
        let all_joined = self.table.all_joined();
        let decision = super::messages::Decision {
            complete: self.table.take_complete(),
            all_joined,
            stop: self.shuts_down.then(|| Arc::new(Reason::Asked)),
        };
        let ready = if all_joined { Bits::default() } else { report.ready };
        let decides = !decision.complete.is_empty() || all_joined || decision.stop.is_some();
        if ready.is_empty() && forget.is_empty() && !decides {
            return false;
        }
        let event = Agreed {
            ready,
            forget: (!forget.is_empty()).then_some(forget),
            decision: decides.then_some(decision),
        };
        self.shut_gate(now, actions);
        self.take_in(now, &Arc::new(event), actions);
        true
    }

    /// Takes an event in that all ranks agree on.
    fn take_in(&mut self, now: Time, event: &Arc<Agreed>, actions: &mut Vec<Action>) {
        lists::forward(&self.place, Payload::Agreed(event.clone()), actions);
        let mut again = Vec::new();
        if let Some(forget) = &event.forget {
            for slot in forget.iter().filter(|slot| self.own.contains(*slot)) {
                again.extend(self.ledger.entry(slot).map(|entry| entry.request_of(self.rank)));
            }
            self.clear(forget);
        }
        self.clear(&event.ready);
        let mut outcome = Outcome {
            invalid: event.forget.clone().unwrap_or_default(),
            ready: event.ready.clone(),
            ..Outcome::default()
        };
        if let Some(decision) = &event.decision {
            outcome.complete.clone_from(&decision.complete);
            outcome.all_joined = decision.all_joined;
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
        let (ledger, launch) = self.ledger.after(&outcome);
        self.ledger = ledger;
        if let Some(launch) = launch {
            self.open.subtract(&launch.tensors);
            self.aged.subtract(&launch.tensors);
            actions.push(Action::Ready(launch));
        }
        if let Some(reason) = event.decision.as_ref().and_then(|decision| decision.stop.clone()) {
            self.is_stopped = true;
            actions.push(Action::Stop(reason));
            return;
        }
        again.into_iter().for_each(|request| self.note(now, request));
    }

    fn clear(&mut self, slots: &Bits) {
        self.own.subtract(slots);
        self.said.subtract(slots);
        self.below.iter_mut().for_each(|below| below.subtract(slots));
    }

    fn stop(&mut self, from: Option<u32>, reason: &Arc<Reason>, actions: &mut Vec<Action>) {
        self.is_stopped = true;
        lists::stop(&[&self.place], from, reason, actions);
    }
}

fn sorted(mut asked: Vec<Asked>) -> Vec<Asked> {
    asked.sort_unstable_by_key(|one| one.request.tensor);
    asked
}

impl Coordinator for Machine {
    fn on(&mut self, now: Time, event: Event, actions: &mut Vec<Action>) {
        if self.is_stopped {
            return;
        }
        match event {
            Event::Submit(request) => {
                let tensor = request.tensor as usize;
                if self.open.contains(tensor) {
                    actions.push(Action::Refused { tensor: request.tensor });
                    return;
                }
                self.open.insert(tensor);
                self.note(now, request);
                self.watch_soon(now, actions);
            }
            Event::Join | Event::Shutdown => {
                let asks = self.news.asks.get_or_insert_default();
                if event == Event::Shutdown {
                    asks.shutdown = true;
                    self.shuts_down = true;
                } else if !self.joined {
                    self.joined = true;
                    let joined = Ranks::span(self.rank..self.rank + 1);
                    asks.joined.unite(&joined);
                    self.table.add(now, Asks { joined, ..Asks::default() });
                }
            }
            Event::Message { from, payload } => match payload {
                Payload::Report(report) => {
                    self.report(now, from, *report);
                    self.watch_soon(now, actions);
                }
                Payload::Agreed(event) => self.take_in(now, &event, actions),
                Payload::Probe(probe) => self.probed(now, probe.origin, &probe.tensors, actions),
                Payload::Missing(missing) => {
                    let Missing { tensors, passed } = *missing;
                    if let Some(search) = &mut self.search {
                        search.asked.insert(from, true);
                        passed.into_iter().for_each(|rank| {
                            search.asked.entry(rank).or_insert(false);
                        });
                        search.missing.extend(tensors.into_iter().map(|tensor| (tensor, from)));
                    }
                    self.conclude(now, actions);
                }
                Payload::Stop(reason) => self.stop(Some(from), &reason, actions),
                _ => {}
            },
            Event::Timer { id: WATCH } => self.look(now, actions),
            Event::Start | Event::Timer { .. } => {}
        }
        self.speak(now, actions);
    }

    fn acts_on_submission(&self) -> bool {
        true
    }

    fn repeats_until(&self) -> Option<Time> {
        None
    }

    fn skip(&mut self, _: Time) {}
}
