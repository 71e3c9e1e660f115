//! A communicator with parameter servers beside it: pieces of gradients go over these, all else as before.
//!
//! Every group that exchanges gradients spans parts of one dimension: so many workers, each with a
//! link of the dimension's bandwidth, and its latency. The servers have links of their own there, or
//! share the workers' ([`crate::training::communicator::servers::machines`]); what other communication does on the same dimension at
//! the same time is not felt.

pub mod machines;

use allrail_collective::Operation;
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::Fabric;
use allrail_schedule::tensor::{Exchange, Leg, TensorParameters};
use allrail_workload::{StepGraph, Work};

use crate::SimulateError;
use crate::scenario::field;
use crate::training::communicator::classes::Idealisation;
use crate::training::communicator::servers::machines::{Machines, Servers, Transfer};
use crate::training::communicator::slow::Felt;
use crate::training::communicator::{Ask, Communicator, Event, Submission, Usage};
use crate::training::players::Players;

/// MXNet's default bound of a big array: a million parameters of four bytes.
const BIG_ARRAY: Bytes = Bytes::new(4_000_000);

/// The servers of one process group.
struct Of {
    servers: Servers,
    dimension: usize,
    /// Bytes that a worker has pushed.
    pushed: u64,
}

/// See the module.
pub struct ServerCommunicator<'a> {
    inner: &'a mut dyn Communicator,
    /// By process group; none where it exchanges no gradients.
    of: Vec<Option<Of>>,
    under_way: u32,
    since: Time,
    active: Time,
}

impl<'a> ServerCommunicator<'a> {
    /// Idle servers for every group of the graph that exchanges gradients; the parameters say that
    /// there are servers.
    ///
    /// # Errors
    /// A group over several dimensions; a gradient that is not an all-reduce's; more co-located servers than workers.
    pub fn new(
        inner: &'a mut dyn Communicator,
        graph: &StepGraph,
        players: &Players,
        fabric: &Fabric,
        parameters: &TensorParameters,
        network: Idealisation,
        slow: Option<&Felt<'_>>,
    ) -> Result<Self, SimulateError> {
        if network.is_ideal() {
            return Err(field(
                "what_if".to_owned(),
                "ideal",
                "it is said of collectives, and these gradients go over servers",
                "ask for `infinite_bandwidth`",
            ));
        }
        let infinite = network == Idealisation::Infinite;
        let mut exchanges = vec![false; graph.groups().len()];
        for id in graph.ids() {
            let node = graph.node(id);
            let (Some(_), Work::Collective { operation, group, .. }) = (node.tensor, node.work)
            else {
                continue;
            };
            if operation != Operation::AllReduce {
                return Err(field(
                    "schedule.tensor.exchange".to_owned(),
                    "parameter_server",
                    &format!("`{}` is a {operation}, and servers do all-reduces", graph.name(id)),
                    "leave it out, or train without ZeRO",
                ));
            }
            exchanges[group.index()] = true;
        }
        let cuts = parameters.policy()?.reads().contains(&"partition");
        let told = parameters.servers.clone().unwrap_or_default();
        let mut of = Vec::with_capacity(players.process_groups.len());
        for process_group in &players.process_groups {
            if !exchanges[process_group.group.index()] {
                of.push(None);
                continue;
            }
            let group = &graph.groups()[process_group.group.index()];
            let several = || {
                field(
                    "schedule.tensor.exchange".to_owned(),
                    "parameter_server",
                    &format!(
                        "the gradients of group `{}` travel over several dimensions",
                        group.name
                    ),
                    "let the machines be one dimension, or leave it out for all-reduces",
                )
            };
            let first = group.parts.first().ok_or_else(several)?.dimension;
            if group.parts.iter().any(|part| part.dimension != first) {
                return Err(several());
            }
            let workers: u32 = group.parts.iter().map(|part| part.size).product();
            let count = told.count.unwrap_or(workers);
            if told.colocated && count > workers {
                return Err(field(
                    "schedule.tensor.servers.count".to_owned(),
                    count,
                    &format!("only {workers} machines have one"),
                    "lower it, or add `colocated: false`",
                ));
            }
            let dimension = fabric.dimension(first);
            let whole = dimension.aggregate();
            let slow = slow.map(|slow| slow.bandwidth(process_group.group.0, first, whole));
            let machines = Machines {
                workers,
                servers: count,
                colocated: told.colocated,
                bandwidth: if infinite { largest() } else { slow.unwrap_or(whole) },
                host: told.host.filter(|_| !infinite),
                sum: told.sum.filter(|_| !infinite),
                in_order: told.in_order,
                latency: dimension.latency,
                big_array: told.big_array.or((!cuts).then_some(BIG_ARRAY)),
            };
            of.push(Some(Of {
                servers: Servers::new(machines),
                dimension: first.index(),
                pushed: 0,
            }));
        }
        for process_group in of.iter().flatten() {
            process_group.servers.within_the_clock(graph_bytes(graph)).ok_or_else(|| {
                field(
                    "workload".to_owned(),
                    "",
                    "an exchange of all gradients takes longer than 53 days of simulated time",
                    "make the bandwidths larger or the model smaller",
                )
            })?;
        }
        Ok(Self { inner, of, under_way: 0, since: Time::ZERO, active: Time::ZERO })
    }

    /// Whether the parameters ask for servers.
    #[must_use]
    pub fn asked(parameters: &TensorParameters) -> bool {
        parameters.exchange == Exchange::ParameterServer
    }
}

/// At which bytes take no time.
fn largest() -> Bandwidth {
    Bandwidth::from_bytes_per_second(u64::MAX).expect("not zero")
}

/// All gradients together.
fn graph_bytes(graph: &StepGraph) -> u128 {
    let bytes = |work: Work| match work {
        Work::Collective { bytes, .. } => u128::from(bytes.count()),
        _ => 0,
    };
    graph.ids().map(|id| graph.node(id)).filter(|n| n.tensor.is_some()).map(|n| bytes(n.work)).sum()
}

impl Communicator for ServerCommunicator<'_> {
    fn submit(&mut self, now: Time, submission: Submission) {
        if self.under_way == 0 {
            self.since = now;
        }
        self.under_way += 1;
        let Submission { ask, priority, overhead, tag, piece } = submission;
        let Some((leg, piece)) = piece else {
            self.inner.submit(now, submission);
            return;
        };
        let (Ask::Collective { process_group, .. } | Ask::Message { process_group, .. }) = ask;
        let of = self.of[process_group as usize].as_mut().expect("whoever exchanges has servers");
        if leg == Leg::Push {
            of.pushed += piece.bytes.count();
        }
        of.servers.submit(now, &Transfer { leg, piece, priority, overhead, tag });
    }

    fn next_time(&self) -> Option<Time> {
        let servers = self.of.iter().flatten().filter_map(|of| of.servers.next_time());
        servers.chain(self.inner.next_time()).min()
    }

    /// As the driver does, the caller stops at every [`Communicator::next_time`].
    fn next_event(&mut self, until: Time) -> Option<(Time, Event)> {
        let mut found = self.inner.next_event(until);
        for of in self.of.iter_mut().flatten() {
            if found.is_some() {
                break;
            }
            found = of.servers.next_event(until).map(|tag| (until, Event::Delivered { tag }));
        }
        if let Some((now, Event::Delivered { .. })) = found {
            self.under_way -= 1;
            if self.under_way == 0 {
                self.active += now - self.since;
            }
        }
        found
    }

    fn choose(&mut self, now: Time) {
        self.inner.choose(now);
        for of in self.of.iter_mut().flatten() {
            of.servers.choose(now);
        }
    }

    fn chosen(&self, dimension: DimensionId) -> &[String] {
        self.inner.chosen(dimension)
    }

    fn usage(&self, now: Time) -> Usage {
        let mut usage = self.inner.usage(now);
        for of in self.of.iter().flatten() {
            let [up, down, ..] = of.servers.busy();
            if let Some(busy) = &mut usage.busy {
                busy[of.dimension] += up.max(down);
            }
            usage.sent[of.dimension] += of.pushed as f64;
        }
        let open = match self.under_way {
            0 => Time::ZERO,
            _ => now.saturating_sub(self.since),
        };
        Usage { active: self.active + open, ..usage }
    }

    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        self.inner.bottleneck(ask)
    }
}
