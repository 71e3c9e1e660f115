//! The carrier of worlds of messages: `links`, `flows` and `packets`.
//!
//! Players are ranks. A collective among an instance's ranks is the messages of its algorithm
//! ([`lowering`]): a rank begins a step when all that it receives in the steps before has
//! arrived. All collectives and messages in flight share the world, and so its links. A message of
//! the job is one message of the world; in `links` one on each dimension on which its ranks differ,
//! one after the other.
//!
//! ```text
//! a message arrives = when the world delivers it + overhead
//! ```
//!
//! With [`Messages::steady`], alike steps of a collective are one message each (`steady`).
//!
//! At one time, everything that arrives is taken in before anything new is sent. Ignored: priority,
//! as links and switches know none; and what a message costs the processors of its ends, but for
//! the overhead, which keeps nothing else waiting.

mod flights;
mod log;
mod lowering;

use std::collections::VecDeque;
use std::sync::Arc;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, EventQueue, Rank, Time};
use allrail_workload::StepGraph;
use allrail_world::{Transfer, World};

use super::carrier::{Ask, Carrier, Event, Span, Submission, Usage};
use super::players::Players;
use super::steady::Steady;
use crate::SimulateError;
use crate::traffic::driver::{Demand, Message};
use crate::traffic::rounds::Rounds;
use flights::{Flight, Inner, Join, Purpose, keep};
use log::Log;
use lowering::Lowering;
pub use lowering::{Latency, Wiring};

/// See the module.
pub struct Messages<'a> {
    lowering: Lowering<'a>,
    world: Box<dyn World + 'a>,
    overhead: Time,
    infinite: bool,
    log: Option<Log>,
    flights: Vec<Option<Flight>>,
    free_flights: Vec<u32>,
    joins: Vec<Join>,
    free_joins: Vec<u32>,
    messages: Vec<Option<Purpose>>,
    free_messages: Vec<u64>,
    events: EventQueue<Inner>,
    ready: VecDeque<(Time, Event)>,
    now: Time,
    sent: Vec<u64>,
    carried: u64,
    /// Submissions under way, since when there are any, and how long there were before.
    open: u64,
    since: Time,
    active: Time,
}

impl<'a> Messages<'a> {
    /// An idle network. `overhead` is what each message waits for at its ends.
    #[must_use]
    pub fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        wiring: Wiring<'a>,
        world: Box<dyn World + 'a>,
        overhead: Time,
    ) -> Self {
        let lowering = Lowering::new(graph, players, wiring);
        Self {
            sent: vec![0; lowering.dimensions()],
            lowering,
            world,
            overhead,
            infinite: false,
            log: None,
            flights: Vec::new(),
            free_flights: Vec::new(),
            joins: Vec::new(),
            free_joins: Vec::new(),
            messages: Vec::new(),
            free_messages: Vec::new(),
            events: EventQueue::new(),
            ready: VecDeque::new(),
            now: Time::ZERO,
            carried: 0,
            open: 0,
            since: Time::ZERO,
            active: Time::ZERO,
        }
    }

    /// Carries alike steps as steady flows; only a world in which a message's bytes are on all its
    /// links at once (`flows`) gives the same times then.
    #[must_use]
    pub fn steady(mut self, latency: Latency<'a>) -> Self {
        self.lowering.latency = Some(latency);
        self
    }

    /// Carries bytes in no time; latencies and the overhead remain.
    #[must_use]
    pub fn infinite(mut self) -> Self {
        self.infinite = true;
        self
    }

    /// Keeps when each submission was under way.
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.log = Some(Log::default());
        self
    }

    /// What was under way when, where it was kept.
    pub fn take_spans(&mut self) -> Vec<Span> {
        self.log.as_mut().map(|log| std::mem::take(&mut log.spans)).unwrap_or_default()
    }

    /// Looks at what will be asked, so that a mistake is found before anything runs.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn prepare(&mut self, ask: Ask) -> Result<(), SimulateError> {
        match ask {
            Ask::Collective { operation, bytes, instance } => {
                self.lowering.parts(operation, bytes, instance).map(|_| ())
            }
            Ask::Message { .. } => Ok(()),
        }
    }

    /// How many messages the world has been given, and how many bytes.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        (self.carried, self.sent.iter().sum())
    }

    fn begin(&mut self, now: Time, ask: Ask, tag: u64) {
        if self.open == 0 {
            self.since = now;
        }
        self.open += 1;
        let (bytes, from, to) = match ask {
            Ask::Collective { operation, bytes, instance } => {
                return self.begin_collective(now, operation, bytes, instance, tag);
            }
            Ask::Message { bytes, ranks: (from, to), .. } => (bytes, from, to),
        };
        let mut left = self.lowering.passed(from, to);
        if left.is_empty() {
            // To itself.
            self.over(now, tag);
            self.ready.push_back((now, Event::Sent { tag }));
            return;
        }
        let next = left.remove(0);
        let purpose = Purpose::Whole { tag, from: next, left, bytes };
        self.hand_over(now, (from, next), bytes, purpose, true);
    }

    fn begin_collective(
        &mut self,
        now: Time,
        operation: Operation,
        bytes: Bytes,
        instance: u32,
        tag: u64,
    ) {
        let parts = self.lowering.parts(operation, bytes, instance);
        let parts = parts.expect("what is asked was looked at before the run");
        if parts.is_empty() {
            self.over(now, tag);
            return;
        }
        let join = Join { tag, flights: parts.len() as u32, added: Time::ZERO };
        let join = keep(&mut self.joins, &mut self.free_joins, join);
        let mut out = Vec::new();
        for part in parts {
            let mut steps = part;
            if self.lowering.latency.is_some() {
                let steady = Steady::new(steps);
                let added = self.lowering.added(operation, instance, &steady, self.overhead);
                self.joins[join as usize].added = added;
                steps = Arc::new(steady);
            }
            let mut rounds = Rounds::new(steps);
            rounds.due(now, &mut out);
            let flight = Some(Flight { rounds, instance, join });
            let flight = keep(&mut self.flights, &mut self.free_flights, flight);
            self.send(now, flight, &mut out);
        }
    }

    /// Sends what a flight's ranks send.
    fn send(&mut self, now: Time, flight: u32, out: &mut Vec<Message>) {
        let held = self.flights[flight as usize].as_ref().expect("it is under way");
        let ranks = &self.lowering.players.instances[held.instance as usize].ranks;
        for Message { source, destination, bytes, tag } in out.drain(..) {
            let ends = (ranks[source as usize], ranks[destination as usize]);
            self.hand_over(now, ends, bytes, Purpose::Step { flight, own: tag }, false);
        }
    }

    /// Gives the world a message between ranks that it joins.
    fn hand_over(
        &mut self,
        now: Time,
        (from, to): (Rank, Rank),
        bytes: Bytes,
        purpose: Purpose,
        tell_sent: bool,
    ) {
        let dimension = self.lowering.dimension(from, to);
        self.sent[dimension as usize] += bytes.count();
        self.carried += 1;
        let tag = self.free_messages.pop().unwrap_or(self.messages.len() as u64);
        match self.messages.get_mut(tag as usize) {
            Some(place) => *place = Some(purpose),
            None => self.messages.push(Some(purpose)),
        }
        let transfer = Transfer::Message {
            dimension: DimensionId(dimension),
            source: Rank(self.lowering.npu(from).0),
            destination: Rank(self.lowering.npu(to).0),
            bytes: if self.infinite { Bytes::default() } else { bytes },
        };
        let sent_tag = tell_sent.then_some(tag);
        self.world.submit(now, allrail_world::Submission { transfer, tag, sent_tag });
    }

    /// A message of the world, and what it waits for at its ends, is over.
    fn arrived(&mut self, now: Time, message: u64) {
        self.free_messages.push(message);
        match self.messages[message as usize].take().expect("it was under way") {
            Purpose::Step { flight, own } => {
                let held = self.flights[flight as usize].as_mut().expect("it is under way");
                let mut out = Vec::new();
                held.rounds.delivered(now, own, &mut out);
                let (done, total) = held.rounds.progress();
                let join = held.join;
                self.send(now, flight, &mut out);
                if done == total {
                    self.flights[flight as usize] = None;
                    self.free_flights.push(flight);
                    let held = &mut self.joins[join as usize];
                    held.flights -= 1;
                    if held.flights == 0 {
                        let end = now.checked_add(held.added).unwrap_or(Time::MAX);
                        self.events.push(end, 0, Inner::Over { join });
                    }
                }
            }
            Purpose::Whole { tag, from, mut left, bytes } => {
                if left.is_empty() {
                    self.over(now, tag);
                } else {
                    let next = left.remove(0);
                    let purpose = Purpose::Whole { tag, from: next, left, bytes };
                    self.hand_over(now, (from, next), bytes, purpose, false);
                }
            }
        }
    }

    /// A submission is over.
    fn over(&mut self, now: Time, tag: u64) {
        self.open -= 1;
        if self.open == 0 {
            self.active += now - self.since;
        }
        if let Some(log) = &mut self.log {
            log.ends(now, tag, self.lowering.players);
        }
        self.ready.push_back((now, Event::Delivered { tag }));
    }

    /// Everything that happens at `now`, or what of it is known.
    fn happen(&mut self, now: Time) {
        self.now = now;
        let (mut arrived, mut begun) = (Vec::new(), Vec::new());
        while let Some((time, event)) = self.world.next_event(now) {
            match event {
                allrail_world::Event::Sent { tag } => {
                    if let Some(Some(Purpose::Whole { tag, .. })) = self.messages.get(tag as usize)
                    {
                        self.ready.push_back((time, Event::Sent { tag: *tag }));
                    }
                }
                allrail_world::Event::Delivered { tag } if self.overhead == Time::ZERO => {
                    arrived.push(tag);
                }
                allrail_world::Event::Delivered { tag } => {
                    let at = time + self.overhead;
                    self.events.push(at, 0, Inner::Arrived { message: tag });
                }
            }
        }
        while self.events.next_time().is_some_and(|time| time <= now) {
            match self.events.pop() {
                Some((_, Inner::Arrived { message })) => arrived.push(message),
                Some((_, Inner::Over { join })) => {
                    let tag = self.joins[join as usize].tag;
                    self.free_joins.push(join);
                    self.over(now, tag);
                }
                Some((_, Inner::Begun { ask, tag })) => begun.push((ask, tag)),
                None => {}
            }
        }
        for message in arrived {
            self.arrived(now, message);
        }
        for (ask, tag) in begun {
            self.begin(now, ask, tag);
        }
    }

    fn soonest(&self) -> Option<Time> {
        [self.world.next_time(), self.events.next_time()].into_iter().flatten().min()
    }
}

impl Carrier for Messages<'_> {
    fn submit(&mut self, now: Time, Submission { ask, overhead, tag, .. }: Submission) {
        if let Some(log) = &mut self.log {
            log.begins(now, tag, ask);
        }
        if overhead > Time::ZERO {
            self.events.push(now + overhead, 0, Inner::Begun { ask, tag });
        } else {
            self.begin(now, ask, tag);
        }
    }

    fn next_time(&self) -> Option<Time> {
        self.ready.front().map(|(time, _)| *time).or_else(|| self.soonest())
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            if self.ready.front().is_some_and(|(time, _)| *time <= until) {
                return self.ready.pop_front();
            }
            let next = self.soonest()?;
            if next > until {
                return None;
            }
            self.happen(next);
        }
    }

    fn usage(&self) -> Usage {
        let ranks = self.lowering.players.len().max(1) as f64;
        let busy = self.world.busy(self.now.max(Time::from_ps(1)));
        let time = |share: f64| Time::from_ps((share * self.now.as_ps() as f64) as u64);
        let mut usage = Usage {
            busy: busy.map(|shares| shares.into_iter().map(time).collect()),
            sent: self.sent.iter().map(|bytes| *bytes as f64 / ranks).collect(),
            links: self.world.link_seconds(),
            active: self.active,
        };
        if self.open > 0 {
            usage.active += self.now.saturating_sub(self.since);
        }
        usage
    }
}
