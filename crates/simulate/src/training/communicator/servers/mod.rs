//! A communicator with parameter servers beside it: partitions of gradients go over these, all else as before.
//!
//! The last dimension of a group that exchanges gradients joins machines: each is a worker, with a link of
//! its NPUs' bandwidths there together, and the dimension's latency. What the group spans of other dimensions
//! lies within a machine, whose NPUs are summed before a push ([`machines::Local`]). The servers have links of
//! their own there, or share the workers' ([`lines`]); what other communication does on the same dimensions at
//! the same time is not felt.

pub mod lines;
pub mod machines;
pub(crate) mod placement;
mod slots;
mod sums;
pub(crate) mod workers;

use allrail_collective::Operation;
use allrail_core::{Bytes, DimensionId, Time, counted, either};
use allrail_fabric::Fabric;
use allrail_schedule::tensor::{Exchange, Leg, PartitionPlacement, TensorParameters};
use allrail_workload::{Group, Part, StepGraph, Work};

use crate::SimulateError;
use crate::scenario::field;
use crate::training::communicator::classes::Idealisation;
use crate::training::communicator::servers::lines::{Happened, Servers};
use crate::training::communicator::servers::machines::{Machines, Transfer};
use crate::training::communicator::servers::sums::{Slowed, Sums, endless};
use crate::training::communicator::slow::Felt;
use crate::training::communicator::{Ask, Communicator, Event, Submission, Usage};
use crate::training::players::Players;

/// MXNet's default bound of a big array: a million parameters of four bytes. Its kvstore splits whatever reaches
/// that, a partition of ByteScheduler's as well as a tensor.
const BIG_ARRAY: Bytes = Bytes::new(4_000_000);

/// No iteration has more messages: each takes some hundred nanoseconds to simulate.
const MOST_MESSAGES: u128 = 50_000_000;

/// The servers of one process group.
struct Of {
    servers: Servers,
    /// The dimension that joins machines.
    dimension: usize,
    /// NPUs of a machine.
    npus: u64,
    /// Of each collective within a machine: its dimension, and what an NPU sends of a partition.
    within: Vec<(usize, f64)>,
    /// Bytes that all workers have pushed.
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

fn refused(why: &str, hint: &str) -> SimulateError {
    field("schedule.tensor.exchange", "parameter_server", why, hint)
}

impl<'a> ServerCommunicator<'a> {
    /// Idle servers for every group of the graph that exchanges gradients; the parameters say that
    /// there are servers.
    ///
    /// # Errors
    /// A gradient that is not an all-reduce's; more co-located servers than workers; too many messages.
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
                "what_if",
                "ideal",
                "it is said of collectives, and these gradients go over servers",
                "ask for `infinite_bandwidth`",
            ));
        }
        let mut sizes: Vec<Vec<Bytes>> = vec![Vec::new(); graph.groups().len()];
        for id in graph.ids() {
            let node = graph.node(id);
            let (Some(_), Work::Collective { operation, bytes, group, .. }) =
                (node.tensor, node.work)
            else {
                continue;
            };
            if operation != Operation::AllReduce {
                let name = graph.name(id);
                return Err(refused(
                    &format!("`{name}` is a {operation}, and servers do all-reduces"),
                    "leave it out, or train without ZeRO",
                ));
            }
            let whose = &graph.groups()[group.index()];
            // Other actors exchange the same gradients.
            if whose.actors[0] == node.actor {
                sizes[group.index()].push(bytes);
            }
        }
        let mut of = Vec::with_capacity(players.process_groups.len());
        for process_group in &players.process_groups {
            let index = process_group.group;
            let sizes = &sizes[index.index()];
            if sizes.is_empty() {
                of.push(None);
                continue;
            }
            let group = &graph.groups()[index.index()];
            let slow = |id, whole| slow.map(|slow| slow.bandwidth(index.0, id, whole));
            let built = Of::new(group, fabric, parameters, network, &slow)?;
            built.check(sizes, parameters)?;
            of.push(Some(built));
        }
        Ok(Self { inner, of, under_way: 0, since: Time::ZERO, active: Time::ZERO })
    }

    /// Whether the parameters ask for servers.
    #[must_use]
    pub fn asked(parameters: &TensorParameters) -> bool {
        parameters.exchange == Exchange::ParameterServer
    }
}

impl Of {
    fn new(
        group: &Group,
        fabric: &Fabric,
        parameters: &TensorParameters,
        network: Idealisation,
        slow: &Slowed<'_>,
    ) -> Result<Self, SimulateError> {
        let told = parameters.servers.clone().unwrap_or_default();
        let last = workers::joining(group).ok_or_else(|| {
            refused(
                &format!("group `{}` lies on no dimension", group.name),
                "let the machines be a dimension, or leave it out for all-reduces",
            )
        })?;
        let (workers, npus) = (workers::count(group, last), workers::npus(group, last));
        let byteps = told.placement == PartitionPlacement::Byteps;
        let count = told.count.unwrap_or(workers);
        let (servers, hosted) = match (byteps, told.colocated) {
            (true, _) => (workers + count, workers),
            (false, true) => (count, count),
            (false, false) => (count, 0),
        };
        if hosted > workers {
            return Err(field(
                "schedule.tensor.servers.count",
                count,
                format!(
                    "only {workers} {have} one",
                    workers = counted(workers, "machine"),
                    have = either(&workers, "has", "have")
                ),
                "lower it, or add `colocated: false`",
            ));
        }
        let infinite = network == Idealisation::Infinite;
        let real = |bandwidth| if infinite { endless() } else { bandwidth };
        let dimension = fabric.dimension(last);
        let whole = dimension.aggregate();
        let each = slow(last, whole).unwrap_or(whole);
        let link = each.checked_mul(npus).ok_or_else(|| {
            refused("the link of a machine has 2^64 B/s or more", "lower the bandwidth")
        })?;
        let inner: Vec<&Part> = group.parts.iter().filter(|part| part.dimension != last).collect();
        let Sums { before, after, sent, model } =
            Sums::new(&told, &inner, npus, fabric, infinite, slow)?;
        let machines = Machines {
            workers,
            servers,
            hosted,
            placement: told.placement,
            big_array: Some(told.big_array.unwrap_or(BIG_ARRAY)),
            synchronous: told.synchronous,
            backup: parameters.backup_workers,
            bandwidth: real(link),
            own: real(told.bandwidth.unwrap_or(link)),
            latency: dimension.latency,
            before,
            after,
            model,
            sum: told.sum.filter(|_| !infinite),
            copy: told.copy.filter(|_| !infinite),
            in_order: told.in_order,
        };
        let servers = Servers::new(machines);
        Ok(Self { servers, dimension: last.index(), npus, within: sent, pushed: 0 })
    }

    /// Refuses what outlasts the clock, or patience.
    fn check(&self, sizes: &[Bytes], parameters: &TensorParameters) -> Result<(), SimulateError> {
        let machines = self.servers.machines();
        let all = sizes.iter().map(|bytes| u128::from(bytes.count())).sum();
        machines.within_the_clock(all).ok_or_else(|| {
            field(
                "workload",
                "",
                "an exchange of all gradients takes longer than 53 days of simulated time",
                "make the bandwidths larger or the model smaller",
            )
        })?;
        let partition = parameters.policy()?.partition(parameters);
        let messages = |bytes: &Bytes| {
            let largest = partition.unwrap_or(*bytes).min(*bytes);
            let partitions = bytes.count().div_ceil(largest.count().max(1));
            let split = machines.big_array.is_some_and(|bound| largest >= bound);
            u128::from(partitions) * u128::from(if split { machines.servers } else { 1 })
        };
        let each: u128 = sizes.iter().map(messages).sum();
        let all = each * 2 * u128::from(machines.workers);
        if all > MOST_MESSAGES {
            return Err(refused(
                &format!(
                    "an iteration has {all}, and at most 50,000,000 are simulated",
                    all = counted(all, "message")
                ),
                "make `partition` or `servers.big_array` larger, or take fewer servers",
            ));
        }
        Ok(())
    }
}

impl Communicator for ServerCommunicator<'_> {
    fn submit(&mut self, now: Time, submission: Submission) {
        if self.under_way == 0 {
            self.since = now;
        }
        self.under_way += 1;
        let Submission { ask, priority, overhead, tag, portion } = submission;
        let (Some(portion), Ask::Collective { bytes, process_group, .. }) = (portion, ask) else {
            self.inner.submit(now, submission);
            return;
        };
        let of = self.of[process_group as usize].as_mut().expect("whoever exchanges has servers");
        if portion.leg == Leg::Push {
            of.pushed += bytes.count();
        }
        of.servers.submit(
            now,
            Transfer {
                leg: portion.leg,
                worker: portion.worker,
                partition: portion.partition,
                round: portion.round,
                bytes,
                priority,
                overhead,
                tag,
            },
        );
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
            found = of.servers.next_event(until).map(|happened| match happened {
                Happened::Arrived { tag } => (until, Event::Arrived { tag }),
                Happened::Over { tag } => (until, Event::Delivered { tag }),
            });
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
            let busy = of.servers.busy();
            let workers = f64::from(of.servers.machines().workers);
            let pushed = of.pushed as f64 / workers;
            usage.sent[of.dimension] += pushed / of.npus as f64;
            for (dimension, sent) in &of.within {
                usage.sent[*dimension] += pushed * sent;
            }
            if let Some(all) = &mut usage.busy {
                all[of.dimension] += busy.up.max(busy.down);
                for ((dimension, _), local) in of.within.iter().zip(&busy.local) {
                    all[*dimension] += *local;
                }
            }
        }
        let open = match self.under_way {
            0 => Time::ZERO,
            _ => now.saturating_sub(self.since),
        };
        Usage { active: self.active + open, ..usage }
    }

    fn taken(&self) -> Option<(f64, f64)> {
        let each = self.of.iter().flatten().map(|of| of.servers.taken());
        Some(each.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1)))
    }

    fn bottleneck(&mut self, ask: Ask) -> Option<u32> {
        self.inner.bottleneck(ask)
    }
}
