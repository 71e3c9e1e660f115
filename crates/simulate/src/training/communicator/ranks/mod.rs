//! The communication of a step in network models of messages: `links`, `flows` and `packets`.
//!
//! Players are ranks, each with an executor. A collective among a process group's ranks is the chunks of a
//! plan on the dimensions of its group, or on a graph the messages of one algorithm (`lowering`).
//! All that is in flight shares the network model, and so its links. A message of the job is one message of the
//! network model; in `links` one on each dimension on which its ranks differ, one after the other. On
//! dimensions a message waits in the queue of its port as stages do.
//!
//! Plans that need runs to be made, or to be chosen among, are run in `links` (`judged`).
//!
//! With [`RankCommunicator::steady`], alike steps of an algorithm are one message each (`steady`).
//!
//! Ignored: what a message costs the processors of its ends, but for the overhead, which keeps nothing
//! else waiting.

pub(crate) mod algorithms;
mod group;
mod judged;
mod log;
mod lowering;
mod messages;
mod steady;
mod wiring;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_network::NetworkModel;
use allrail_workload::StepGraph;

use crate::SimulateError;
use crate::executors::{self, Cargo, Executors};
use crate::scenario::Communicators;
use crate::training::communicator::{Ask, Communicator, Event, Span, Submission, Usage};
use crate::training::players::Players;
use log::Log;
use lowering::Lowering;
pub use wiring::{Latency, Wiring};

/// A message on its way over several dimensions.
struct Way {
    at: Rank,
    left: VecDeque<Rank>,
    bytes: Bytes,
    communicator: u32,
    priority: i64,
}

/// See the module.
pub struct RankCommunicator<'a> {
    lowering: Lowering<'a>,
    sharing: Communicators,
    executors: Executors<Box<dyn NetworkModel + 'a>>,
    /// The players of each process group.
    members: Vec<Rc<[u32]>>,
    ways: BTreeMap<u64, Way>,
    log: Option<Log>,
    ready: VecDeque<(Time, Event)>,
    now: Time,
    /// Submissions under way, since when there are any, and how long there were before.
    open: u64,
    since: Time,
    active: Time,
}

impl<'a> RankCommunicator<'a> {
    /// An idle network. `overhead` is what each message waits for at its ends.
    #[must_use]
    pub fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        wiring: Wiring<'a>,
        network_model: Box<dyn NetworkModel + 'a>,
        overhead: Time,
    ) -> Self {
        let settings = executors::Settings { overhead, ..wiring.settings() };
        let lowering = Lowering::new(graph, players, wiring);
        let npus: Vec<Rank> =
            players.ranks.iter().map(|rank| Rank(lowering.npu(*rank).0)).collect();
        Self {
            executors: Executors::new(network_model, npus, lowering.dimensions(), settings),
            lowering,
            sharing: Communicators::default(),
            members: players.process_groups.iter().map(|i| i.players.as_slice().into()).collect(),
            ways: BTreeMap::new(),
            log: None,
            ready: VecDeque::new(),
            now: Time::ZERO,
            open: 0,
            since: Time::ZERO,
            active: Time::ZERO,
        }
    }

    /// Carries alike steps as steady flows; only a network model in which a message's bytes are on all its
    /// links at once (`flows`) gives the same times then.
    #[must_use]
    pub fn steady(mut self, latency: Latency<'a>) -> Self {
        self.lowering.latency = Some((latency, self.executors.settings().overhead));
        self
    }

    /// Ports choose while their links have as many bytes yet to send.
    #[must_use]
    pub(crate) fn sending_ahead(mut self, bytes: Bytes) -> Self {
        self.executors.set_send_ahead(bytes);
        self.lowering.judged.send_ahead = bytes;
        self
    }

    /// Lets endpoints take otherwise long over a message between two ranks than over a collective's.
    #[must_use]
    pub(crate) fn with_message_delay(mut self, delay: Option<Time>) -> Self {
        self.lowering.message_delay = delay;
        self
    }

    /// Chooses algorithms for parts of rings as for lines, which they are where rings are cables.
    #[must_use]
    pub(crate) fn cutting_rings(mut self, are_cut: bool) -> Self {
        self.lowering.choices.rings.are_cut = are_cut;
        self
    }

    /// What communicators do where they meet.
    #[must_use]
    pub fn sharing(mut self, sharing: Communicators) -> Self {
        self.sharing = sharing;
        self
    }

    /// Carries bytes in no time; latencies and the overhead remain.
    #[must_use]
    pub fn infinite(mut self) -> Self {
        self.executors.set_infinite();
        self
    }

    /// Keeps when each submission was under way.
    #[must_use]
    pub(crate) fn logged(mut self) -> Self {
        self.log = Some(Log::default());
        self
    }

    /// What was under way when, where it was kept.
    pub(crate) fn take_spans(&mut self) -> Vec<Span> {
        self.log.as_mut().map(|log| std::mem::take(&mut log.spans)).unwrap_or_default()
    }

    /// Looks at what will be asked, so that a mistake is found before anything runs.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub fn prepare(&mut self, ask: Ask) -> Result<(), SimulateError> {
        match ask {
            Ask::Collective { operation, bytes, process_group } => {
                self.lowering.collective(operation, bytes, process_group).map(|_| ())
            }
            Ask::Message { .. } => Ok(()),
        }
    }

    /// How many messages the network model has been given, and how many bytes.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        (self.executors.transfers(), self.executors.sent().sum::<f64>() as u64)
    }

    /// Whether the executors' queues decide what goes first.
    #[must_use]
    pub(crate) fn keeps_priorities(&self) -> bool {
        self.lowering.is_exclusive()
    }

    /// The next part of a message's way; whether there is one.
    fn pass_on(&mut self, now: Time, tag: u64, overhead: Time, is_first: bool) -> bool {
        let Some(way) = self.ways.get_mut(&tag) else { return false };
        let Some(next) = way.left.pop_front() else {
            self.ways.remove(&tag);
            return false;
        };
        let from = std::mem::replace(&mut way.at, next);
        let (bytes, communicator, priority) = (way.bytes, way.communicator, way.priority);
        let player = |rank: Rank| {
            // A rank that runs nothing passes messages on all the same.
            self.lowering.players.of(rank).expect("every rank on the way has a player")
        };
        let members: Rc<[u32]> = Rc::from([player(from), player(next)]);
        let lowered = self.lowering.message(bytes, from, next);
        let tell_left = is_first;
        let cargo = Cargo { lowered, members, communicator, priority, overhead, tag, tell_left };
        self.executors.carry(now, cargo);
        true
    }

    /// A submission is over.
    fn over(&mut self, now: Time, tag: u64) {
        self.open -= 1;
        if self.open == 0 {
            self.active += now.saturating_sub(self.since);
        }
        if let Some(log) = &mut self.log {
            log.ends(now, tag, self.lowering.players);
        }
        self.ready.push_back((now, Event::Delivered { tag }));
    }
}

impl Communicator for RankCommunicator<'_> {
    fn submit(&mut self, now: Time, submission: Submission) {
        let Submission { ask, priority, overhead, tag, .. } = submission;
        if let Some(log) = &mut self.log {
            log.begins(now, tag, ask);
        }
        if self.open == 0 {
            self.since = now + overhead;
        }
        self.open += 1;
        let communicator = ask.communicator(self.lowering.players, self.sharing);
        let (bytes, at, to) = match ask {
            Ask::Collective { operation, bytes, process_group } => {
                let lowered = self.lowering.collective(operation, bytes, process_group);
                match lowered.expect("what is asked was looked at before the run") {
                    Some(lowered) => {
                        let members = Rc::clone(&self.members[process_group as usize]);
                        let cargo = Cargo {
                            lowered,
                            members,
                            communicator,
                            priority,
                            overhead,
                            tag,
                            tell_left: false,
                        };
                        self.executors.carry(now, cargo);
                    }
                    None => self.over(now, tag),
                }
                return;
            }
            Ask::Message { bytes, ranks: (from, to), .. } => (bytes, from, to),
        };
        let left: VecDeque<Rank> = self.lowering.passed(at, to).into();
        self.ways.insert(tag, Way { at, left, bytes, communicator, priority });
        if !self.pass_on(now, tag, overhead, true) {
            // To itself.
            self.over(now, tag);
            self.ready.push_back((now, Event::Sent { tag }));
        }
    }

    fn next_time(&self) -> Option<Time> {
        self.ready.front().map(|(time, _)| *time).or_else(|| self.executors.next_time())
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        loop {
            if self.ready.front().is_some_and(|(time, _)| *time <= until) {
                return self.ready.pop_front();
            }
            let (now, event) = self.executors.next_event(until)?;
            self.now = self.now.max(now);
            match event {
                executors::Event::Left { tag } => return Some((now, Event::Sent { tag })),
                executors::Event::Over { tag } => {
                    if !self.pass_on(now, tag, Time::ZERO, false) {
                        self.over(now, tag);
                    }
                }
            }
        }
    }

    fn choose(&mut self, now: Time) {
        self.executors.settle(now);
    }

    fn chosen(&self, dimension: DimensionId) -> &[String] {
        self.lowering.choices.ran(dimension)
    }

    fn usage(&self, now: Time) -> Usage {
        let now = self.now.max(now);
        let dimensions = self.lowering.dimensions();
        let ranks = self.lowering.players.len().max(1) as f64;
        let busy = self.executors.network_model().busy(now.max(Time::from_ps(1)));
        let time = |share: f64| Time::from_ps((share * now.as_ps() as f64) as u64);
        let mut sent = vec![0.0; dimensions];
        for (place, bytes) in self.executors.sent().enumerate() {
            sent[place % dimensions] += bytes;
        }
        let mut usage = Usage {
            busy: busy.map(|shares| shares.into_iter().map(time).collect()),
            sent: sent.into_iter().map(|bytes| bytes / ranks).collect(),
            links: self.executors.network_model().link_seconds(),
            active: self.active,
        };
        if self.open > 0 {
            usage.active += now.saturating_sub(self.since);
        }
        usage
    }
}
