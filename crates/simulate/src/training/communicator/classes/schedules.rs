//! What a collective or a message is on the dimensions of its group: chunks, stages, times.

use std::collections::BTreeMap;
use std::rc::Rc;

use allrail_collective::{Operation, StageRef};
use allrail_core::{Bytes, DimensionId, FieldError, Rank, Time};
use allrail_engine::StageTask;
use allrail_fabric::kinds;
use allrail_fabric::{Dimension, Fabric, Wiring};
use allrail_schedule::room::Share;
use allrail_schedule::{Algorithms, Request, evaluate, planner};
use allrail_workload::{GroupId, StepGraph};

use crate::SimulateError;
use crate::executors::lowered::{Carried, Lowered, StageTimes};
use crate::training::communicator::choices::Choices;
use crate::training::communicator::slow::{Felt, LONGEST};

/// Which network carries the stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idealisation {
    /// The scenario's.
    #[default]
    Real,
    /// The scenario's, all dimensions of a group kept busy without latency: no schedule is faster. Or
    /// kept busy for a part of the time, in millionths.
    Ideal {
        /// All of it is a million.
        millionths: u32,
    },
    /// Bytes take no time.
    Infinite,
}

/// All of something, in millionths.
pub(crate) const WHOLE: u32 = 1_000_000;

impl Idealisation {
    /// Whether collectives ask no schedule, but take a part of the bandwidth.
    #[must_use]
    pub(crate) fn is_ideal(self) -> bool {
        matches!(self, Self::Ideal { .. })
    }

    /// A time at full bandwidth, at the part of it that is used.
    fn stretched(self, seconds: f64) -> f64 {
        match self {
            Self::Ideal { millionths } => seconds * f64::from(WHOLE) / f64::from(millionths),
            Self::Real | Self::Infinite => seconds,
        }
    }
}

fn too_long() -> SimulateError {
    SimulateError::Schedule(allrail_schedule::ScheduleError::TooLong)
}

/// How long a message keeps the links of a dimension, and its latency.
fn on_links(
    dimension: &Dimension,
    (from, to): (u32, u32),
    bytes: Bytes,
) -> (Option<Time>, Option<Time>) {
    let links = kinds::of(dimension.kind);
    let mut path = Vec::new();
    kinds::path(dimension, from, to, &mut path);
    let hops = u64::try_from(path.len()).expect("few hops");
    let steps = hops.div_ceil(u64::from(links.hops_per_step()));
    let latency = dimension.latency.checked_mul(steps);
    let latency = latency.and_then(|time| time.checked_add(dimension.message_latency));
    (links.link_bandwidth(dimension).time_for(bytes), latency)
}

/// How long a message keeps cables, which all instances of its group use at once, and its latency.
fn over_cables(
    group: &Wiring,
    dimension: &Dimension,
    (from, to): (u32, u32),
    bytes: Bytes,
) -> (Option<Time>, Option<Time>) {
    let load = group.load(&[(group.member(from), group.member(to), 1)]);
    let millionths = (load.most() * f64::from(WHOLE)).round() as u128;
    let amount = u128::from(bytes.count()) * millionths;
    let time = dimension.aggregate().time_for_fraction(amount, u128::from(WHOLE));
    (time, load.latency.checked_add(dimension.message_latency))
}

/// A collective or message, scheduled: its chunks, and the time of each of their stages.
#[derive(Default)]
struct Scheduled {
    chunks: Vec<Vec<StageTask>>,
    times: Vec<StageTimes>,
    /// The order of each dimension, where queues keep to plans.
    planned: Vec<Vec<StageRef>>,
}

impl Scheduled {
    fn push(&mut self, task: StageTask, times: StageTimes) {
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(task);
        }
        self.times.push(times);
    }

    fn lowered(self) -> Lowered {
        let mut stages = allrail_engine::Stages::new(self.planned);
        self.chunks.into_iter().for_each(|chunk| stages.push(chunk));
        Lowered::alike(stages, Carried::Stages(self.times))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Collective(Operation, Bytes, u32),
    Message(Bytes, (Rank, Rank), u32),
}

/// Schedules that were made, by what they are for.
pub(super) struct Schedules<'a> {
    pub(super) graph: &'a StepGraph,
    pub(super) request: &'a Request,
    /// Those of a kind of collective, where they differ from the request's.
    pub(super) algorithms: &'a BTreeMap<Operation, Algorithms>,
    pub(super) choices: Choices,
    pub(super) network: Idealisation,
    pub(super) slow: Option<&'a Felt<'a>>,
    pub(super) known: BTreeMap<Key, Rc<Lowered>>,
}

impl Schedules<'_> {
    pub(super) fn collective(
        &mut self,
        operation: Operation,
        bytes: Bytes,
        group: u32,
    ) -> Result<Rc<Lowered>, SimulateError> {
        let key = Key::Collective(operation, bytes, group);
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let parts = &self.graph.groups()[group as usize].parts;
        let stages = if bytes == Bytes::default() || parts.iter().all(|part| part.size < 2) {
            // Nothing to send, or nobody to send it to: one stage of no time would need a server.
            Scheduled { chunks: vec![Vec::new()], ..Scheduled::default() }
        } else {
            self.schedule(operation, bytes, group)?
        };
        let stages = Rc::new(stages.lowered());
        self.known.insert(key, Rc::clone(&stages));
        Ok(stages)
    }

    fn schedule(
        &mut self,
        operation: Operation,
        bytes: Bytes,
        group: u32,
    ) -> Result<Scheduled, SimulateError> {
        let (fabric, dimensions) = self.network_of(group)?;
        let said = self.algorithms.get(&operation).or(self.request.algorithms.as_ref());
        let (id, own) = (GroupId(group), &self.graph.groups()[group as usize]);
        let names = self.choices.names(self.request, said, (operation, bytes), (id, own))?;
        let request = Request {
            fabric,
            operation,
            size: bytes,
            dimensions: dimensions.clone(),
            chunks: self.request.chunks_of(bytes),
            algorithms: names.map(Algorithms::from),
            ..self.request.clone()
        };
        let scheduled = planner::schedule(&request)?;
        let work = scheduled.work()?;
        if self.network.is_ideal() {
            return Ok(self.ideal(&request, &dimensions, &work, group));
        }
        let planned = if request.order.keeps_to_plans() {
            planner::plan(&request)?.dimension_order
        } else {
            Vec::new()
        };
        let mut stages = Scheduled { planned, ..Scheduled::default() };
        let mut total = Time::ZERO;
        for chunk in 0..work.chunks() {
            stages.chunks.push(Vec::new());
            for (stage, task) in (0u32..).zip(work.chunk(chunk)) {
                let served = self.occupancy(group, task.dimension, task.served);
                let served = served.filter(|time| *time <= LONGEST).ok_or_else(too_long)?;
                total = total.checked_add(served).ok_or_else(too_long)?;
                // Where stages run side by side, the time of their bytes is within the latency.
                let beside = task.occupancy < task.served;
                let latency = task.latency + task.occupancy - task.served;
                let times = StageTimes {
                    occupancy: if beside { Time::ZERO } else { served },
                    latency: if beside { latency + served } else { latency },
                    served,
                    sent: task.sent.0,
                };
                let port = task.dimension;
                let (operation, buffer, brought) = (task.operation, task.buffer, task.brought);
                let stage = StageTask {
                    stage,
                    port,
                    operation,
                    buffer,
                    brought,
                    load: served.as_ps(),
                    share: Share::of(served, times.occupancy + times.latency),
                };
                stages.push(stage, times);
            }
        }
        Ok(stages)
    }

    /// The fabric as a group sees it, and its dimensions.
    fn network_of(&self, group: u32) -> Result<(Fabric, Vec<DimensionId>), SimulateError> {
        let group = &self.graph.groups()[group as usize];
        if group.parts.is_empty() {
            let ideal = self.network.is_ideal();
            return Err(FieldError::new(
                if ideal { "what_if" } else { "network_model" }.to_owned(),
                if ideal { "ideal_schedule" } else { "dims" }.to_owned(),
                format!(
                    "the ranks of group `{}` are no product of dimensions, and `dims` knows ranks \
                     by their dimensions only",
                    group.name
                ),
                if ideal { "ask for `infinite_bandwidth`" } else { "use `network_model: flows`" }
                    .to_owned(),
            )
            .into());
        }
        Ok(self.choices.network(&self.request.fabric, &group.parts))
    }

    /// For how long a stage of a group keeps a dimension busy that should take `nominal`.
    fn occupancy(&self, group: u32, dimension: u32, nominal: Time) -> Option<Time> {
        match (self.slow, self.network) {
            (_, Idealisation::Infinite) => Some(Time::ZERO),
            (Some(slow), _) => slow.time(group, DimensionId(dimension), nominal),
            (None, _) => Some(nominal),
        }
    }

    pub(super) fn message(
        &mut self,
        bytes: Bytes,
        ranks: (Rank, Rank),
        group: u32,
    ) -> Result<Rc<Lowered>, SimulateError> {
        let key = Key::Message(bytes, ranks, group);
        if let Some(known) = self.known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let mut stages = Scheduled { chunks: vec![Vec::new()], ..Scheduled::default() };
        let (mut source, mut destination) = (ranks.0.0, ranks.1.0);
        for (d, dimension) in (0u32..).zip(&self.request.fabric.dimensions) {
            let (from, to) = (source % dimension.size, destination % dimension.size);
            source /= dimension.size;
            destination /= dimension.size;
            if from == to {
                continue;
            }
            let parts = &self.graph.groups()[group as usize].parts;
            let (fabric, id) = (&self.request.fabric, DimensionId(d));
            let (time, latency) =
                match (&dimension.wiring, self.choices.rings.among(fabric, id, parts)) {
                    (Some(wiring), _) => {
                        let of_part = parts.iter().filter(|part| part.dimension == id);
                        let of_part: Vec<(u32, u32)> =
                            of_part.map(|part| (part.size, part.stride)).collect();
                        let among = || wiring.among(of_part.iter().copied());
                        let group = if of_part.is_empty() { wiring.clone() } else { among() };
                        over_cables(&group, dimension, (from, to), bytes)
                    }
                    (None, Some(line)) => over_cables(&line, dimension, (from, to), bytes),
                    (None, None) => on_links(dimension, (from, to), bytes),
                };
            let time = time.and_then(|time| self.occupancy(group, d, time));
            let (occupancy, latency) = time.zip(latency).ok_or_else(too_long)?;
            let latency = if self.network.is_ideal() { Time::ZERO } else { latency };
            let sent = bytes.count() as f64;
            let times = StageTimes { occupancy, latency, served: occupancy, sent };
            let task = StageTask {
                stage: u32::try_from(stages.times.len()).expect("few dimensions"),
                port: d,
                operation: Operation::Broadcast,
                buffer: bytes,
                brought: bytes,
                load: occupancy.as_ps(),
                share: Share::of(occupancy, occupancy + latency),
            };
            stages.push(task, times);
        }
        let stages = Rc::new(stages.lowered());
        self.known.insert(key, Rc::clone(&stages));
        Ok(stages)
    }

    /// As many chunks, each spread over all dimensions at once so that they end together.
    fn ideal(
        &self,
        request: &Request,
        dimensions: &[DimensionId],
        work: &evaluate::Work,
        group: u32,
    ) -> Scheduled {
        let bandwidth = |id: &DimensionId| {
            let whole = request.fabric.dimension(*id).aggregate();
            let slow = self.slow.map(|slow| slow.bandwidth(group, *id, whole));
            slow.unwrap_or(whole).bytes_per_second() as f64
        };
        let total: f64 = dimensions.iter().map(bandwidth).sum();
        let mut stages = Scheduled::default();
        for chunk in 0..work.chunks() {
            let bytes: f64 = work.chunk(chunk).iter().map(|task| task.sent.0).sum();
            let seconds = self.network.stretched(bytes / total);
            let time = Time::from_ps((seconds * 1e12).ceil() as u64);
            let part = Bytes::new((bytes / dimensions.len() as f64) as u64);
            for dimension in dimensions {
                let task = StageTask {
                    stage: 0,
                    port: dimension.0,
                    operation: request.operation,
                    buffer: part,
                    brought: part,
                    load: time.as_ps(),
                    share: Share::of(time, time),
                };
                let sent = bytes * bandwidth(dimension) / total;
                let times = StageTimes { occupancy: time, latency: Time::ZERO, served: time, sent };
                stages.chunks.push(Vec::new());
                stages.push(task, times);
            }
        }
        stages
    }
}
