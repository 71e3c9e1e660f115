//! What a node knows, behind its one lock: the engine, and beside it what is kept by whoever needs it.
//!
//! | part | holds |
//! |---|---|
//! | [`tensors`], [`calls`] | what callers exchange, and how far each is |
//! | [`carrying`], [`intake`] | operations whose bytes this node carries, and the frames that have come for them |
//! | [`ports`], [`outgoing`] | what each port has to do |
//! | [`elsewhere`] | launches, where others carry the data |
//! | [`talk`] | words of coordinators |
//! | [`watch`], [`times`] | how far peers are |
//! | [`ending`] | who has left, and why the job ends |
//! | [`log`] | records and notes |
//!
//! Each part is data with methods of its own, and knows neither the engine nor the others. What leads from one to
//! the next is here and in the modules with an `impl State`: [`carry`] does what the engine wants, [`submit`] and
//! [`call`] take what callers bring, [`receive`] and [`send`] serve the ports, [`launch`] whoever carries the data,
//! [`lateness`] compares ranks, and [`end`] ends the job.
//!
//! The lock stays one. A fault must end everything at once: it comes from any thread, and from then on no message
//! is handed out, no call begins, and every waiter hears the same words. The engine takes its events one by one, so
//! a lock for each part would be held for as long, in an order that all threads had to keep.
//!
//! Threads come with what has happened, and leave with what is to be done: the names of sends wait in a heap
//! for every peer, frames that may be combined in a list for every port. Bytes are touched outside of the
//! lock. Whoever changes something asks [`State::take_wakes`] in the end whom it has work for, and wakes
//! them once it has given the lock back.

mod call;
mod calls;
mod carry;
mod carrying;
mod elsewhere;
mod end;
mod ending;
mod group;
mod intake;
mod lateness;
mod launch;
mod log;
mod outgoing;
mod ports;
mod receive;
mod send;
mod submit;
mod talk;
mod tensors;
mod times;
mod wakes;
mod watch;

use allrail_core::Bytes;
use allrail_engine::engine::{Action, Engine, Event};
use allrail_engine::{Broken, Operations, Ordering};
use allrail_schedule::Key;

pub(crate) use self::elsewhere::Elsewhere;
pub(crate) use self::intake::{Intake, Kept};
pub(crate) use self::outgoing::{Frame, Sending};
pub(crate) use self::wakes::Wakes;

use self::calls::{CALLS, Calls};
use self::carrying::Carrying;
use self::ending::Ending;
use self::group::Group;
use self::log::Log;
use self::ports::Ports;
use self::talk::Talk;
use self::tensors::Tensors;
use self::watch::Watch;
use crate::clock::Clock;
use crate::memory::InUse;
use crate::record::What;
use crate::settings::Settings;
use crate::timeline::Timeline;

/// See the module.
pub(crate) struct State {
    pub(crate) engine: Engine,
    clock: Clock,
    group: Group,
    carrying: Carrying,
    pub(crate) ports: Ports,
    pub(crate) tensors: Tensors,
    calls: Calls,
    /// The memory of tensors and calls under way.
    in_use: InUse<Key>,
    /// Where others carry the data.
    pub(crate) elsewhere: Option<Elsewhere>,
    pub(crate) talk: Talk,
    watch: Watch,
    ending: Ending,
    pub(crate) log: Log,
    /// Whether the caller is done with this node.
    pub(crate) closing: bool,
    wakes: Wakes,
    /// What the engine wants; kept for its memory.
    todo: Vec<Action>,
}

impl State {
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        (rank, peers): (u32, Vec<u32>),
        lines: &[Vec<u32>],
        settings: &Settings,
    ) -> Self {
        Self {
            carrying: Carrying::new(engine.settings().epoch),
            engine,
            clock,
            group: Group { rank, peers },
            ports: Ports::new(lines),
            tensors: Tensors::default(),
            calls: Calls::default(),
            in_use: InUse::default(),
            elsewhere: None,
            talk: Talk::default(),
            watch: Watch::new(settings),
            ending: Ending::default(),
            log: Log::new(settings.records),
            closing: false,
            wakes: Wakes::default(),
            todo: Vec::new(),
        }
    }

    /// Whom the last calls have made work for.
    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Tells the engine, and does what it wants.
    pub(crate) fn tell(&mut self, event: Event) -> Result<(), Broken> {
        self.tell_alone(event)?;
        self.settle();
        Ok(())
    }

    fn tell_alone(&mut self, event: Event) -> Result<(), Broken> {
        let mut todo = std::mem::take(&mut self.todo);
        let now = self.clock.now();
        let told = self.log.records.is_on().then(|| event.clone());
        let result = self.engine.on(now, event, &mut todo);
        if let (Some(told), true) = (told, result.is_ok()) {
            self.log.records.push_all(now, What::Told(told), &todo);
        }
        self.carry_out(&mut todo);
        // A call in between may have left a list of its own.
        if self.todo.capacity() < todo.capacity() {
            self.todo = todo;
        }
        result
    }

    fn settle(&mut self) {
        loop {
            let mut todo = std::mem::take(&mut self.todo);
            self.engine.settle(&mut todo);
            let over = todo.is_empty();
            if !over {
                self.log.records.push_all(self.clock.now(), What::Settled, &todo);
            }
            self.carry_out(&mut todo);
            self.todo = todo;
            if over {
                break;
            }
        }
        self.hand_out();
    }

    /// The time has come that the engine asked to be told.
    pub(crate) fn time(&mut self) {
        let _ = self.tell(Event::Time);
    }

    /// All tensors are registered: the job begins, and hears what was said before.
    pub(crate) fn start(&mut self) -> Result<(), Broken> {
        self.tell(Event::Start)?;
        self.talk.start();
        while let Some(event) = self.talk.take_held() {
            self.tell(event)?;
        }
        Ok(())
    }

    pub(super) fn tell_or_note(&mut self, event: Event) {
        if let Err(broken) = self.tell_alone(event)
            && !self.ending.is_over()
        {
            self.log.note(broken.to_string());
        }
    }

    /// Whether no thread touches a tensor's memory any more, now that the job is over.
    pub(crate) fn is_quiet(&self) -> bool {
        self.ports.is_quiet()
    }

    pub(crate) fn port_runs(&mut self, port: u32, runs: bool) {
        self.ports.set_running(port, runs);
        self.wakes.waiters = true;
    }

    /// How often each tensor was exchanged here: the last word to peers.
    pub(crate) fn exchanges(&self) -> impl Iterator<Item = (Key, u64)> + '_ {
        let calls = std::iter::once((CALLS, self.calls.all_before()));
        let tensors = self.tensors.iter().map(|(key, one)| (key, one.done));
        tensors.chain(calls).chain(self.engine.named_calls())
    }

    fn is_tagged(&self) -> bool {
        self.engine.settings().ordering == Ordering::Tagged
    }

    /// Something beside the engine that belongs into the records.
    pub(crate) fn record(&mut self, what: What) {
        self.log.records.push(self.clock.now(), what);
    }

    /// What is recorded, as spans.
    pub(crate) fn timeline(&self) -> Timeline {
        let name_of = |key: Key| self.tensors.name(key).map(str::to_owned);
        let records = &self.log.records;
        Timeline::new(records.iter(), records.lost(), self.clock.origin(), name_of)
    }

    /// How much is kept of what peers send ahead.
    pub(crate) fn allow_early(&mut self, most: Bytes) {
        self.carrying.operations = Operations::new(self.engine.settings().epoch, most);
    }
}
