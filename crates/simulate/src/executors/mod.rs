//! The executors of all ranks, over a network model: what the simulator does with [`allrail_engine`].
//!
//! An actor is a rank, or in `dims` a class of ranks that are alike; each has an [`Executor`]. What is
//! carried has been lowered ([`lowered`]): its stages are issued to the executors of its members, the
//! stages that these choose become transfers of the network model, and what the network model says of them is told to
//! the executors. Nothing is decided here. Ports may be told free before their links have sent all
//! (`send_ahead`).
//!
//! At one time, everything that happens is taken in before any executor chooses
//! ([`Executors::settle`]); where their queues are eager, they choose after every single event, in the
//! order of the dimensions.
//!
//! ```text
//! a step's messages leave = the last of the step before has come + endpoint delay
//! a stage is over         = its last message has come + 2 · endpoint delay
//! a message has come      = when the network model delivers it + message overhead
//! ```

mod dataflow;
mod flight;
mod going;
mod handed;
mod link_queues;
pub(crate) mod lowered;
pub(crate) mod paced;
pub(crate) mod plan_messages;
pub(crate) mod programs;
pub(crate) mod send_ahead;
mod stage;
mod stall;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use allrail_collective::StageRef;
use allrail_core::{Bytes, EventQueue, Rank, Time};
use allrail_engine::{Executor, Progress};
use allrail_network::NetworkModel;
use allrail_schedule::{ActiveChunks, Order};

use flight::{AFTER, BEFORE, Chunk, Flight, Inner, Port, Slots};
use link_queues::LinkQueues;
use lowered::{Carried, Lowered, Outgoing};
use send_ahead::SendAhead;

/// What happened to what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The message has left its sender.
    Left {
        /// As it was given.
        tag: u64,
    },
    /// It is over everywhere.
    Over {
        /// As it was given.
        tag: u64,
    },
}

/// A stage as it ran on an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageSpan {
    /// Where.
    pub actor: u32,
    /// On which dimension.
    pub port: u32,
    /// Of what.
    pub tag: u64,
    /// Which stage.
    pub at: StageRef,
    /// When its port chose it; in `dims`, when its link began with it.
    pub start: Time,
    /// When its last byte had left.
    pub end: Time,
    /// When it was over.
    pub finish: Time,
}

/// Whose stages are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nobody's.
    #[default]
    None,
    /// Those of actor 0.
    First,
    /// Everybody's.
    All,
}

/// What is to be carried.
pub(crate) struct Cargo {
    /// As stages.
    pub lowered: Rc<Lowered>,
    /// The actor at each position.
    pub members: Rc<[u32]>,
    /// Whose: those of different communicators share ports by turns.
    pub communicator: u32,
    /// Of a communicator's, higher goes first where a port can choose.
    pub priority: i64,
    /// Before its first byte: in `dims` on the first port, elsewhere on none.
    pub overhead: Time,
    /// Comes back in its events.
    pub tag: u64,
    /// Whether [`Event::Left`] is said, once the last stage's bytes have left (in `dims`).
    pub tell_left: bool,
}

/// How executors run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// How dimensions choose.
    pub order: Order,
    /// How many stages a port runs at once.
    pub active_chunks: Option<ActiveChunks>,
    /// How long an endpoint takes over every step, and once more over a stage; the links go on.
    pub endpoint_delay: Time,
    /// What every message waits for at its ends.
    pub overhead: Time,
    /// Whether messages are without bytes.
    pub infinite: bool,
    /// Whose stages are kept.
    pub kept: Kept,
}

/// A rank, or a class of ranks.
struct Actor {
    executor: Executor,
    /// By slot of the executor: what is there, and at which of its positions.
    flights: Vec<(u32, u32)>,
    unsettled: bool,
}

/// See the module.
pub(crate) struct Executors<W> {
    network_model: W,
    settings: Settings,
    dimensions: usize,
    actors: Vec<Actor>,
    /// Where each is in the network model.
    npus: Vec<Rank>,
    /// By actor and dimension.
    ports: Vec<Port>,
    /// What ports hand over before their links have sent all; none where they do not.
    ahead: Option<SendAhead>,
    eager: bool,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    slots: Slots,
    timers: EventQueue<Inner>,
    ready: VecDeque<(Time, Event)>,
    unsettled: Vec<u32>,
    /// Messages that wait for links, where each waits for its own blocks only.
    links: LinkQueues,
    /// How many flights have begun.
    begun: u64,
    outgoing: Vec<Outgoing>,
    may_leave: Vec<u32>,
    spans: Vec<StageSpan>,
    transfers: u64,
    stages_over: u64,
    events: u64,
}

impl<W: NetworkModel> Executors<W> {
    /// Idle executors; `npus` says where each actor is in the network model.
    #[must_use]
    pub(crate) fn new(
        network_model: W,
        npus: impl IntoIterator<Item = Rank>,
        dimensions: usize,
        settings: Settings,
    ) -> Self {
        let npus: Vec<Rank> = npus.into_iter().collect();
        let actor = |_: &Rank| Actor {
            executor: Executor::new(settings.order, dimensions, settings.active_chunks),
            flights: Vec::new(),
            unsettled: false,
        };
        let actors: Vec<Actor> = npus.iter().map(actor).collect();
        Self {
            network_model,
            settings,
            dimensions,
            eager: actors.first().is_some_and(|actor| actor.executor.is_eager()),
            ports: vec![Port::default(); actors.len() * dimensions],
            ahead: None,
            actors,
            npus,
            flights: Vec::new(),
            free_flights: Vec::new(),
            slots: Slots::default(),
            timers: EventQueue::new(),
            ready: VecDeque::new(),
            unsettled: Vec::new(),
            links: LinkQueues::default(),
            begun: 0,
            outgoing: Vec::new(),
            may_leave: Vec::new(),
            spans: Vec::new(),
            transfers: 0,
            stages_over: 0,
            events: 0,
        }
    }

    /// How it runs.
    #[must_use]
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Messages are without bytes from now on.
    pub(crate) fn set_infinite(&mut self) {
        self.settings.infinite = true;
    }

    /// Before anything runs: ports choose while links have as many bytes yet to send (`send_ahead`).
    pub(crate) fn set_send_ahead(&mut self, bytes: Bytes) {
        self.ahead = (bytes > Bytes::default()).then(|| SendAhead::new(bytes, self.ports.len()));
    }

    /// The network model.
    pub(crate) fn network_model(&self) -> &W {
        &self.network_model
    }

    /// Transfers that the network model was given.
    #[must_use]
    pub(crate) fn transfers(&self) -> u64 {
        self.transfers
    }

    /// Stages that are over, of all actors.
    #[must_use]
    pub(crate) fn stages_over(&self) -> u64 {
        self.stages_over
    }

    /// How much has happened, in events.
    #[must_use]
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The stages that are kept, in the order in which they started.
    pub(crate) fn take_spans(&mut self) -> Vec<StageSpan> {
        std::mem::take(&mut self.spans)
    }

    /// For every actor and dimension, the bytes sent.
    pub(crate) fn sent(&self) -> impl Iterator<Item = f64> + '_ {
        self.ports.iter().map(|port| port.sent)
    }

    /// For every actor and dimension, how long it served stages (in `dims`).
    pub(crate) fn busy(&self) -> impl Iterator<Item = Time> + '_ {
        self.ports.iter().map(|port| port.busy)
    }

    /// Carries what was lowered, on an actor a position; its events bring the tag back.
    pub(crate) fn carry(&mut self, now: Time, cargo: Cargo) {
        let Cargo { lowered, members, communicator, priority, overhead, tag, tell_left } = cargo;
        let left = u32::try_from(members.len()).expect("fewer than 2^32 members");
        let messages = matches!(lowered.carried, Carried::Messages(_));
        let is_kept = messages || self.settings.kept != Kept::None;
        let chunks = if is_kept { (left * lowered.chunks()) as usize } else { 0 };
        let id = self.free_flights.pop().unwrap_or_else(|| {
            self.flights.push(Flight {
                lowered: Rc::clone(&lowered),
                members: Rc::clone(&members),
                chunks: Vec::new(),
                first_slot: 0,
                left: 0,
                tag,
                communicator,
                priority,
                begun: 0,
                overhead,
                tell_left,
                ids: Vec::new(),
            });
            u32::try_from(self.flights.len() - 1).expect("fewer than 2^32 under way")
        });
        let flight = &mut self.flights[id as usize];
        flight.first_slot = self.slots.take(lowered.chunks(), id);
        (flight.lowered, flight.members, flight.left) = (lowered, members, left);
        (flight.tag, flight.overhead, flight.tell_left) = (tag, overhead, tell_left);
        (flight.communicator, flight.priority) = (communicator, priority);
        flight.chunks.clear();
        flight.chunks.resize(chunks, Chunk::default());
        flight.ids.clear();
        if messages && overhead > Time::ZERO {
            self.timers.push(now + overhead, AFTER, Inner::Begin { flight: id });
        } else {
            self.begin(now, id);
        }
    }

    fn begin(&mut self, now: Time, id: u32) {
        let members = Rc::clone(&self.flights[id as usize].members);
        self.flights[id as usize].begun = self.begun;
        self.begun += 1;
        for (position, member) in (0u32..).zip(members.iter()) {
            let flight = &mut self.flights[id as usize];
            let stages = flight.lowered.stages(position);
            let actor = &mut self.actors[*member as usize];
            let issued =
                actor.executor.issue(Arc::clone(stages), flight.communicator, flight.priority);
            let (collective, progress) = issued.expect("what is lowered is on the fabric's ports");
            let slot = collective.slot as usize;
            if actor.flights.len() <= slot {
                actor.flights.resize(slot + 1, (0, 0));
            }
            actor.flights[slot] = (id, position);
            flight.ids.push(collective);
            if progress == Progress::Over {
                self.position_over(now, id);
            }
            self.attend(now, *member);
            if self.eager {
                self.settle(now);
            }
        }
        if members.is_empty() {
            self.timers.push(now, AFTER, Inner::Over { flight: id });
        }
    }

    fn position_over(&mut self, now: Time, id: u32) {
        let flight = &mut self.flights[id as usize];
        flight.left -= 1;
        if flight.left == 0 {
            let end = now.checked_add(flight.lowered.added).unwrap_or(Time::MAX);
            self.timers.push(end, AFTER, Inner::Over { flight: id });
        }
    }

    /// Lets an executor choose when all of now has been taken in, if it has a reason to.
    fn unsettle(&mut self, actor: u32) {
        let state = &mut self.actors[actor as usize];
        if !state.unsettled && state.executor.is_unsettled() {
            state.unsettled = true;
            self.unsettled.push(actor);
        }
    }

    /// Everything of `now` has been taken in: what waits may be chosen.
    pub(crate) fn settle(&mut self, now: Time) {
        // A stage in which a rank only sends is over at once, and the next may begin: in a next round.
        while !self.unsettled.is_empty() {
            let mut round = std::mem::take(&mut self.unsettled);
            // Whatever happened first: what is chosen now must not depend on it.
            round.sort_unstable();
            for id in round.drain(..) {
                self.actors[id as usize].unsettled = false;
                if self.eager {
                    // Its queues choose before the timers that would free them have all been taken.
                    for port in (0..).take(self.dimensions) {
                        self.free_port(now, id, port);
                    }
                }
                while let Some(run) = self.actors[id as usize].executor.choose() {
                    self.start(now, id, run);
                }
                if self.ahead.is_some() {
                    self.begin_handed(now, id);
                }
                self.attend(now, id);
            }
            if self.unsettled.is_empty() {
                self.unsettled = round;
                break;
            }
        }
        self.settle_links(now);
    }

    /// Whether nobody has anything to choose.
    fn is_settled(&self) -> bool {
        self.unsettled.is_empty() && self.links.are_settled()
    }

    /// In `dims`, where the network model does not say when a port is free: a port that an executor awaits is
    /// freed, now or by a timer.
    fn attend(&mut self, now: Time, actor: u32) {
        while let Some(port) = self.actors[actor as usize].executor.awaited() {
            let state = &self.ports[actor as usize * self.dimensions + port as usize];
            if state.taken && state.free_at > now {
                self.timers.push(state.free_at, BEFORE, Inner::Free { actor, port });
            } else {
                self.free_port(now, actor, port);
            }
        }
        self.unsettle(actor);
    }

    /// In `dims`: tells an executor of a port that has become free, unless it knows.
    fn free_port(&mut self, now: Time, actor: u32, port: u32) {
        let state = &mut self.ports[actor as usize * self.dimensions + port as usize];
        if state.taken && state.free_at <= now {
            state.taken = false;
            let freed = self.actors[actor as usize].executor.port_free(port);
            freed.expect("a port that was taken exists");
        }
    }
}
