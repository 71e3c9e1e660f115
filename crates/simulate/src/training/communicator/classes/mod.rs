//! The communication of a step in the network model `dims`: each dimension of each player is one server.
//!
//! A collective is cut into chunks and scheduled on its group's dimensions, as a collective of its
//! own would be (`allrail_schedule::planner`), and its stages are run by the players' executors. A stage keeps its dimension busy for `N·B` and is over `A` after
//! its last byte; the next stage's bytes start at once. A part of a dimension is served by the
//! dimension's server at its full bandwidth: parts share it by taking turns.
//!
//! A message takes the dimensions on which its ranks differ, one after the other, over the link
//! that joins them there.
//!
//! With [`Idealisation::Ideal`], a collective keeps all dimensions of its group equally busy from its
//! first byte to its last, without latency: its bytes over the sum of their bandwidths, or over a part of it. With
//! [`Idealisation::Infinite`], bytes take no time, and latencies remain.
//!
//! Ignored: where several players meet in a collective, each runs it on its own servers from their
//! common start; it is over when the last is. So the players of a group are taken for alike.

mod schedules;

use std::collections::BTreeMap;
use std::rc::Rc;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Rank, Time};
use allrail_schedule::{Algorithms, Request};
use allrail_workload::StepGraph;

use crate::SimulateError;
use crate::executors::lowered::{Carried, Lowered};
use crate::executors::{self, Cargo, Executors, Kept, Settings};
use crate::scenario::Communicators;
use crate::training::communicator::choices::Choices;
use crate::training::communicator::slow::Felt;
use crate::training::communicator::{Ask, Communicator, Event, Span, Submission, Usage};
use crate::training::players::Players;
use schedules::Schedules;
pub(crate) use schedules::{Idealisation, WHOLE};

/// What a request takes on an idle network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alone {
    /// It is over no earlier, whatever else is going on.
    pub least: Time,
    /// It is over no later where nothing else is going on: what any server is busy, and the most that one
    /// chunk's latencies take.
    pub most: Time,
    /// By dimension, how long its servers are busy.
    pub busy: Vec<Time>,
}

/// See the module.
pub(crate) struct ClassCommunicator<'a> {
    players: &'a Players,
    dimensions: usize,
    executors: Executors<allrail_network::Dims>,
    schedules: Schedules<'a>,
    sharing: Communicators,
    /// The players of each process group.
    members: Vec<Rc<[u32]>>,
    under_way: u32,
    active_since: Time,
    active: Time,
}

impl<'a> ClassCommunicator<'a> {
    /// An idle network. `request` holds everything of the schedule but what is communicated; its
    /// fabric is the network.
    #[must_use]
    pub(crate) fn new(
        graph: &'a StepGraph,
        players: &'a Players,
        request: &'a Request,
        algorithms: &'a BTreeMap<Operation, Algorithms>,
        network: Idealisation,
        timeline: bool,
    ) -> Self {
        let dimensions = request.fabric.dimensions.len();
        let settings = Settings {
            order: request.order,
            active_chunks: request.active_chunks,
            kept: if timeline { Kept::All } else { Kept::None },
            ..Settings::default()
        };
        // A class is in no place.
        let npus = (0..players.len()).map(|_| Rank(0));
        let network_model = allrail_network::Dims::new(players.len() * dimensions);
        Self {
            players,
            dimensions,
            executors: Executors::new(network_model, npus, dimensions, settings),
            schedules: Schedules {
                graph,
                request,
                algorithms,
                choices: Choices::default(),
                network,
                slow: None,
                known: BTreeMap::new(),
            },
            sharing: Communicators::default(),
            members: players.process_groups.iter().map(|i| i.players.as_slice().into()).collect(),
            under_way: 0,
            active_since: Time::ZERO,
            active: Time::ZERO,
        }
    }

    /// Ports choose while their links have as many bytes yet to send.
    #[must_use]
    pub(crate) fn sending_ahead(mut self, bytes: Bytes) -> Self {
        self.executors.set_send_ahead(bytes);
        self
    }

    /// Counts parts of rings as lines, which they are where rings are cables.
    #[must_use]
    pub(crate) fn cutting_rings(mut self, are_cut: bool) -> Self {
        self.schedules.choices.rings.are_cut = are_cut;
        self
    }

    /// What communicators do where they meet.
    #[must_use]
    pub(crate) fn sharing(mut self, sharing: Communicators) -> Self {
        self.sharing = sharing;
        self
    }

    /// Lets groups feel slow links.
    #[must_use]
    pub(crate) fn slowed(mut self, slow: Option<&'a Felt<'a>>) -> Self {
        self.schedules.slow = slow;
        self
    }

    /// Schedules what will be asked, so that a mistake is found before anything runs.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub(crate) fn prepare(&mut self, ask: Ask) -> Result<(), SimulateError> {
        self.lowered(ask).map(|_| ())
    }

    /// Every stage, where asked for.
    pub(crate) fn take_spans(&mut self) -> Vec<Span> {
        let span = |span: executors::StageSpan| Span {
            player: span.actor,
            dimension: Some(span.port),
            tag: span.tag,
            start: span.start,
            end: span.end,
        };
        self.executors.take_spans().into_iter().map(span).collect()
    }

    /// What a request takes where nothing else is going on: no chunk is over before all of its stages, nor the
    /// whole before a dimension has served its part and the shortest of its latencies is over.
    ///
    /// # Errors
    /// Names the field that is wrong.
    pub(crate) fn alone(&mut self, ask: Ask) -> Result<Alone, SimulateError> {
        let dimensions = self.dimensions;
        let lowered = self.lowered(ask)?;
        let mut alone = Alone { busy: vec![Time::ZERO; dimensions], ..Alone::default() };
        let Carried::Stages(times) = &lowered.carried else { return Ok(alone) };
        let stages = lowered.stages(0);
        let mut latency = vec![Time::MAX; dimensions];
        for chunk in 0..stages.chunks() {
            let (mut whole, mut late) = (Time::ZERO, Time::ZERO);
            for place in stages.chunk(chunk) {
                let port = stages.tasks()[place as usize].port as usize;
                let times = &times[place as usize];
                whole += times.occupancy + times.latency;
                late += times.latency;
                alone.busy[port] += times.occupancy;
                latency[port] = latency[port].min(times.latency);
            }
            alone.least = alone.least.max(whole);
            alone.most = alone.most.max(late);
        }
        alone.most = alone.busy.iter().fold(alone.most, |sum, busy| sum + *busy);
        let served = alone.busy.iter().zip(latency).filter(|(busy, _)| **busy > Time::ZERO);
        alone.least = served.fold(alone.least, |most, (busy, late)| most.max(*busy + late));
        Ok(alone)
    }

    fn lowered(&mut self, ask: Ask) -> Result<Rc<Lowered>, SimulateError> {
        match ask {
            Ask::Collective { operation, bytes, process_group } => {
                let group = self.players.process_groups[process_group as usize].group;
                self.schedules.collective(operation, bytes, group.0)
            }
            Ask::Message { bytes, ranks, process_group, .. } => {
                let group = self.players.process_groups[process_group as usize].group;
                self.schedules.message(bytes, ranks, group.0)
            }
        }
    }
}

impl Communicator for ClassCommunicator<'_> {
    fn submit(&mut self, now: Time, submission: Submission) {
        let Submission { ask, priority, overhead, tag, .. } = submission;
        if self.under_way == 0 {
            self.active_since = now;
        }
        self.under_way += 1;
        let lowered = self.lowered(ask).expect("what is asked was scheduled before the run");
        let (members, is_message) = match ask {
            Ask::Collective { process_group, .. } => {
                (Rc::clone(&self.members[process_group as usize]), false)
            }
            Ask::Message { source, .. } => (Rc::from([source]), true),
        };
        let communicator = ask.communicator(self.players, self.sharing);
        let tell_left = is_message;
        let cargo = Cargo { lowered, members, communicator, priority, overhead, tag, tell_left };
        self.executors.carry(now, cargo);
    }

    fn next_time(&self) -> Option<Time> {
        self.executors.next_time()
    }

    fn choose(&mut self, now: Time) {
        self.executors.settle(now);
    }

    fn run_before(&mut self, now: Time, limit: Time) -> Time {
        self.executors.run_before(now, limit)
    }

    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        let (now, event) = self.executors.next_event(until)?;
        Some(match event {
            executors::Event::Left { tag } => (now, Event::Sent { tag }),
            executors::Event::Over { tag } => {
                self.under_way -= 1;
                if self.under_way == 0 {
                    self.active += now - self.active_since;
                }
                (now, Event::Delivered { tag })
            }
        })
    }

    fn usage(&self, now: Time) -> Usage {
        let ranks: u64 = self.players.weights.iter().map(|weight| u64::from(*weight)).sum();
        let mut busy = vec![0u128; self.dimensions];
        let mut sent = vec![0.0; self.dimensions];
        let ports = self.executors.busy().zip(self.executors.sent());
        for (place, (port_busy, port_sent)) in ports.enumerate() {
            let weight = self.players.weights[place / self.dimensions];
            let d = place % self.dimensions;
            busy[d] += u128::from(port_busy.as_ps()) * u128::from(weight);
            sent[d] += port_sent * f64::from(weight);
        }
        let mean = |sum: u128| {
            Time::from_ps(u64::try_from(sum / u128::from(ranks.max(1))).expect("a mean of times"))
        };
        let open = match self.under_way {
            0 => Time::ZERO,
            _ => now.saturating_sub(self.active_since),
        };
        Usage {
            busy: Some(busy.into_iter().map(mean).collect()),
            sent: sent.into_iter().map(|sum| sum / ranks.max(1) as f64).collect(),
            links: Vec::new(),
            active: self.active + open,
        }
    }

    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        let lowered = self.lowered(ask).ok()?;
        let Carried::Stages(times) = &lowered.carried else { return None };
        let mut load = vec![Time::ZERO; self.dimensions];
        for (task, times) in lowered.stages(0).tasks().iter().zip(times) {
            load[task.port as usize] += times.served;
        }
        let (d, _) = load.iter().enumerate().rev().max_by_key(|(_, load)| **load)?;
        u32::try_from(d).ok()
    }

    fn chosen(&self, dimension: DimensionId) -> &[String] {
        self.schedules.choices.ran(dimension)
    }
}
