//! A plan as the messages of its algorithms' programs.
//!
//! Ranks are numbered by their coordinates on the plan's dimensions, the first fastest. Uneven shards
//! are padded to whole blocks. A broadcast's stage concerns the ranks on lines that the data has
//! reached.

use std::sync::Arc;

use allrail_collective::dataflow::{Does, RankMessages};
use allrail_collective::model::DimensionSet;
use allrail_collective::plan::{ChunkPlan, scattered_at_start};
use allrail_collective::program::{Combine, Receive};
use allrail_collective::{
    CollectivePlan, Dataflow, Operation, Pace, Pattern, Program, Stage, StageRef,
};
use allrail_core::{Bandwidth, Bytes, DimensionId, FieldError, Time};
use allrail_engine::{StageTask, Stages};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Dimension, Fabric};
use allrail_schedule::Order;
use allrail_schedule::evaluate::Work;

use super::lowered::{Carried, Lowered, MessageSteps, Outgoing};
use super::programs::{Made, Programs, too_large};
use crate::SimulateError;
use crate::scenario::NetworkModelKind;

/// More ranks than this are refused where every rank is simulated.
pub(crate) const MAX_RANKS: u64 = 1 << 17;

/// Refuses a fabric that is too large for a network model of messages, or whose switches reduce.
///
/// # Errors
/// Names the field.
pub(crate) fn check_fabric(
    fabric: &Fabric,
    network_model: NetworkModelKind,
) -> Result<u32, SimulateError> {
    let npus = u32::try_from(fabric.npus())
        .ok()
        .filter(|npus| u64::from(*npus) <= MAX_RANKS)
        .ok_or_else(|| {
            too_large(
                "network_model".to_owned(),
                network_model.tag().to_owned(),
                format!("it simulates every rank, and {} are too many", fabric.npus()),
            )
        })?;
    for (i, dimension) in fabric.dimensions.iter().enumerate() {
        if dimension.in_network_reduction {
            return Err(too_large(
                format!("fabric.dimensions[{i}].in_network_reduction"),
                "true".to_owned(),
                format!("`{}` does not model a switch that reduces", network_model.tag()),
            ));
        }
    }
    Ok(npus)
}

/// One stage of one chunk, ready to be expanded.
struct Expanded {
    program: Arc<Program>,
    /// Where its messages wait for their own blocks only.
    dataflow: Option<Arc<Dataflow>>,
    dimension: usize,
    /// Bytes of one block of the program.
    block: Bytes,
    first: u64,
    /// Whether what is passed on goes through memory, and whether the next step sends a part of it.
    relays: bool,
    halving: bool,
    /// From which coordinate on the program counts its ranks.
    turn: u32,
    /// Under a window.
    pace: Option<Pace>,
}

struct PlanMessages {
    ports: Vec<u32>,
    /// Size and stride of each dimension.
    shape: Vec<(u32, u32)>,
    reaches: Vec<Reach>,
    stages: Vec<Expanded>,
    /// Whether any of them has a dataflow: asked for every message that arrives.
    has_dataflow: bool,
    /// Of an NPU, where reducing takes time.
    memory: Option<Bandwidth>,
    /// `starts[chunk]` is its first stage.
    starts: Vec<u32>,
}

/// Lowers a plan; its times in `dims` are `work`, and `ports[d]` is the port of its dimension `d`.
///
/// # Errors
/// If a program is too large; if two of its dimensions share a port, and queues keep to the plan.
pub(crate) fn lower(
    plan: &CollectivePlan,
    work: &Work,
    ports: &[u32],
    order: Order,
    programs: &mut Programs,
) -> Result<Lowered, SimulateError> {
    let messages = PlanMessages::new(plan, ports, programs)?;
    let planned = planned(plan, ports, order)?;
    if plan.operation != Operation::Broadcast {
        let stages = stages(plan, work, ports, planned, |_| true);
        return Ok(Lowered::alike(stages, Carried::Messages(Box::new(messages))));
    }
    let unreached = unreached(plan);
    let (known, kinds) = kinds_of_rank(&messages.shape);
    let of_kind = |away: &usize| {
        let concerns = |at: StageRef| unreached[messages.place(at)].bits() & away == 0;
        let planned = planned
            .iter()
            .map(|order| order.iter().copied().filter(|at| concerns(*at)).collect())
            .collect();
        stages(plan, work, ports, planned, concerns)
    };
    let stages = known.iter().map(of_kind).collect();
    Ok(Lowered::of_kinds(stages, kinds, Carried::Messages(Box::new(messages))))
}

/// For every stage of a broadcast, the dimensions on which the data has not spread yet.
fn unreached(plan: &CollectivePlan) -> Vec<DimensionSet> {
    let all = plan.dimensions.iter().fold(DimensionSet::default(), |set, d| set.with(*d));
    let of_chunk = |chunk: &ChunkPlan| {
        let left = |left: &mut DimensionSet, stage: &Stage| {
            *left = left.without(stage.dimension);
            Some(*left)
        };
        chunk.stages.iter().scan(all, left).collect::<Vec<_>>()
    };
    plan.chunks.iter().flat_map(of_chunk).collect()
}

/// The kinds of ranks of a broadcast, and which each rank is: a kind is a set of dimensions on which it is not first.
fn kinds_of_rank(shape: &[(u32, u32)]) -> (Vec<usize>, Vec<u32>) {
    let mut known: Vec<usize> = Vec::new();
    let ranks: u32 = shape.iter().map(|(size, _)| size).product();
    let kinds = (0..ranks)
        .map(|rank| {
            let off = |(d, (size, stride)): (usize, &(u32, u32))| {
                usize::from(!(rank / stride).is_multiple_of(*size)) << d
            };
            let away = shape.iter().enumerate().map(off).sum();
            let kind = known.iter().position(|other| *other == away).unwrap_or_else(|| {
                known.push(away);
                known.len() - 1
            });
            u32::try_from(kind).expect("few kinds")
        })
        .collect();
    (known, kinds)
}

/// The planned order of every port.
fn planned(
    plan: &CollectivePlan,
    ports: &[u32],
    order: Order,
) -> Result<Vec<Vec<StageRef>>, SimulateError> {
    if !order.keeps_to_plans() {
        return Ok(Vec::new());
    }
    let count = ports.iter().map(|port| *port as usize + 1).max().unwrap_or(0);
    let mut planned = vec![Vec::new(); count];
    for (stages, port) in plan.dimension_order.iter().zip(ports) {
        let kept = &mut planned[*port as usize];
        if !kept.is_empty() && !stages.is_empty() {
            return Err(FieldError::new(
                "schedule.order",
                "planned",
                format!(
                    "a group takes two parts of {}, which have an order each",
                    DimensionId(*port).name()
                ),
                "use `smallest_first`, or `network_model: dims`",
            )
            .into());
        }
        kept.extend(stages);
    }
    Ok(planned)
}

/// What queues have to know of the stages that concern a rank.
pub(crate) fn stages(
    plan: &CollectivePlan,
    work: &Work,
    ports: &[u32],
    planned: Vec<Vec<StageRef>>,
    concerns: impl Fn(StageRef) -> bool,
) -> Stages {
    let mut stages = Stages::new(planned);
    for (chunk, index) in (0u32..).zip(0..plan.chunks.len()) {
        let tasks = (0u32..).zip(work.chunk(index));
        let of_rank = tasks.filter(|(stage, _)| concerns(StageRef { chunk, stage: *stage }));
        stages.push(of_rank.map(|(stage, task)| StageTask {
            stage,
            port: ports[task.dimension as usize],
            operation: task.operation,
            buffer: task.buffer,
            brought: task.brought,
            load: task.served.as_ps(),
            share: task.share,
        }));
    }
    stages
}

/// What a rank of a program, which are all alike, sends under a window.
fn paced(program: &Program, window: u32) -> Pace {
    let count = |messages: usize| u32::try_from(messages).expect("few messages");
    let sends: Vec<usize> = program.steps[0].iter().map(|step| step.sends.len()).collect();
    Pace::new(window, count(sends[0]), count(sends.iter().sum()))
}

/// Bytes of one of `blocks` equal blocks of what is left of a chunk; the last ones are padded.
fn block(chunk: Bytes, shape: &[(u32, u32)], scattered: DimensionSet, blocks: u32) -> Bytes {
    let divisor: u64 = shape
        .iter()
        .enumerate()
        .filter(|(d, _)| scattered.bits() >> d & 1 == 1)
        .map(|(_, (size, _))| u64::from(*size))
        .product();
    Bytes::new(chunk.count().div_ceil(divisor * u64::from(blocks)))
}

impl PlanMessages {
    /// The messages of a plan whose dimension `d` is port `ports[d]`.
    ///
    /// # Errors
    /// A program is too large.
    fn new(
        plan: &CollectivePlan,
        ports: &[u32],
        programs: &mut Programs,
    ) -> Result<Self, SimulateError> {
        let fabric = &plan.fabric;
        let mut stride = 1;
        let place = |d: &Dimension| {
            let place = (d.size, stride);
            stride *= d.size;
            place
        };
        let mut messages = Self {
            ports: ports.to_vec(),
            shape: fabric.dimensions.iter().map(place).collect(),
            reaches: fabric.dimensions.iter().map(|d| kinds::of(d.kind).reach()).collect(),
            stages: Vec::new(),
            has_dataflow: false,
            memory: fabric.memory_bandwidth,
            starts: Vec::new(),
        };
        for (number, chunk) in (0u32..).zip(&plan.chunks) {
            let start = u32::try_from(messages.stages.len()).expect("fewer than 2^32 stages");
            messages.starts.push(start);
            let mut scattered = scattered_at_start(&chunk.stages);
            let mut first = 0;
            for stage in chunk.stages.iter().copied() {
                let Stage { operation, dimension } = stage;
                let on = fabric.dimension(dimension);
                let field = || format!("fabric.dimensions[{}].size", ports[dimension.index()]);
                let Made { program, dataflow } =
                    programs.get(plan, stage, (on.kind, on.size), field)?;
                let outside = scattered.without(dimension);
                let steps = match &dataflow {
                    Some(dataflow) => u64::from(dataflow.most()),
                    None => program.step_count() as u64,
                };
                let known = plan.algorithm(dimension)?.on_links(on.kind, operation, on.size);
                let everyone = known.unaware == Some(Pattern::Direct)
                    && plan.operation != Operation::Broadcast;
                let window = fabric.window.filter(|_| everyone);
                messages.has_dataflow |= dataflow.is_some();
                messages.stages.push(Expanded {
                    pace: window.map(|window| paced(&program, window)),
                    relays: known.relays,
                    halving: known.halving,
                    block: block(chunk.bytes, &messages.shape, outside, program.blocks),
                    program,
                    dataflow,
                    dimension: dimension.index(),
                    first,
                    turn: number % plan.turns(dimension),
                });
                first += steps;
                match operation {
                    Operation::ReduceScatter => scattered = scattered.with(dimension),
                    Operation::AllGather => scattered = scattered.without(dimension),
                    _ => {}
                }
            }
        }
        Ok(messages)
    }

    /// Number of a stage among those of all chunks.
    fn place(&self, at: StageRef) -> usize {
        (self.starts[at.chunk as usize] + at.stage) as usize
    }

    fn expanded(&self, at: StageRef) -> &Expanded {
        &self.stages[self.place(at)]
    }

    /// The rank's coordinate on the stage's dimension, and which of its program's ranks it is.
    fn coordinate(&self, position: u32, stage: &Expanded) -> (u32, usize) {
        let (size, stride) = self.shape[stage.dimension];
        let coordinate = position / stride % size;
        (coordinate, ((coordinate + size - stage.turn) % size) as usize)
    }
}

impl MessageSteps for PlanMessages {
    fn steps(&self, at: StageRef) -> u32 {
        u32::try_from(self.expanded(at).program.step_count()).expect("few steps")
    }

    fn first(&self, at: StageRef) -> u64 {
        self.expanded(at).first
    }

    fn sends(&self, position: u32, at: StageRef, step: u32, out: &mut Vec<Outgoing>) {
        let stage = self.expanded(at);
        let (size, stride) = self.shape[stage.dimension];
        let (coordinate, counted) = self.coordinate(position, stage);
        let sends = &stage.program.steps[counted][step as usize].sends;
        let one_link = self.reaches[stage.dimension] == Reach::Switch;
        for (i, send) in sends.iter().enumerate() {
            let to = position - coordinate * stride + (send.to + stage.turn) % size * stride;
            out.push(Outgoing {
                to,
                heard_by: to,
                dimension: self.ports[stage.dimension],
                bytes: Bytes::new(stage.block.count() * u64::from(send.blocks.len())),
                last_on_link: !one_link || i + 1 == sends.len(),
            });
        }
    }

    fn expected(&self, position: u32, at: StageRef, step: u32) -> u32 {
        let stage = self.expanded(at);
        let (_, counted) = self.coordinate(position, stage);
        let receives = &stage.program.steps[counted][step as usize].receives;
        u32::try_from(receives.len()).expect("few messages")
    }

    fn has_dataflow(&self) -> bool {
        self.has_dataflow
    }

    fn dataflow(&self, position: u32, at: StageRef) -> Option<&RankMessages> {
        let stage = self.expanded(at);
        let (_, counted) = self.coordinate(position, stage);
        stage.dataflow.as_ref().map(|dataflow| &dataflow.ranks[counted])
    }

    fn message(&self, position: u32, at: StageRef, number: u32) -> Outgoing {
        let stage = self.expanded(at);
        let (size, stride) = self.shape[stage.dimension];
        let (coordinate, counted) = self.coordinate(position, stage);
        let dataflow = stage.dataflow.as_ref().expect("a stage of dataflow");
        let message = dataflow.ranks[counted].all()[number as usize];
        let to = position - coordinate * stride + (message.peer + stage.turn) % size * stride;
        Outgoing {
            to,
            heard_by: to,
            dimension: self.ports[stage.dimension],
            bytes: Bytes::new(stage.block.count() * u64::from(message.blocks)),
            last_on_link: true,
        }
    }

    fn via(&self, position: u32, at: StageRef, number: u32) -> Option<&[u32]> {
        let stage = self.expanded(at);
        let (_, counted) = self.coordinate(position, stage);
        let dataflow = stage.dataflow.as_ref()?;
        let way = dataflow.ranks[counted].all()[number as usize].way?;
        Some(&dataflow.ways[way as usize])
    }

    fn combining(&self, position: u32, at: StageRef, number: u32) -> Time {
        let Some(memory) = self.memory else { return Time::ZERO };
        let Some(messages) = self.dataflow(position, at) else { return Time::ZERO };
        let message = messages.all()[number as usize];
        if message.does != Does::Receives(Combine::Reduce) {
            return Time::ZERO;
        }
        time_to_reduce(memory, self.expanded(at).block, u64::from(message.blocks))
    }

    fn pace(&self, at: StageRef) -> Option<Pace> {
        self.expanded(at).pace
    }

    fn reducing(&self, position: u32, at: StageRef, step: u32) -> Time {
        let Some(memory) = self.memory else { return Time::ZERO };
        let stage = self.expanded(at);
        let (_, counted) = self.coordinate(position, stage);
        let (step, steps) = (step as usize, &stage.program.steps[counted]);
        let receives = &steps[step].receives;
        let relayed = stage.relays && steps[step + 1..].iter().any(|later| !later.sends.is_empty());
        let reduces = |one: &Receive| one.combine == Combine::Reduce;
        let reduced = receives.iter().filter(|one| relayed || reduces(one));
        // Messages of one step are reduced side by side.
        let received = reduced.map(|one| u64::from(one.blocks.len())).max().unwrap_or(0);
        let next = steps.get(step + 1).filter(|next| next.receives.iter().any(reduces));
        let sent = next.map(|next| next.sends.iter().map(|one| u64::from(one.blocks.len())));
        // Where a rank sends on a part of it, only that part has to be reduced before.
        let most = if stage.halving {
            received.min(sent.and_then(Iterator::max).unwrap_or(0))
        } else {
            received
        };
        time_to_reduce(memory, stage.block, most)
    }
}

/// How long so many blocks are reduced: read twice, written once, each in whole ns.
fn time_to_reduce(memory: Bandwidth, block: Bytes, blocks: u64) -> Time {
    let bytes = u128::from(block.count()) * u128::from(blocks);
    let access = memory.time_for_fraction(bytes, 1);
    let access = access.expect("the driver bounds the time of a message");
    Time::from_ns(3 * (access.as_ps() / 1_000))
}

/// The longest message of a plan, to check that it fits the clock.
#[must_use]
pub(crate) fn largest_message(plan: &CollectivePlan) -> Bytes {
    // No block is larger than what its chunk has, and no message than all blocks.
    plan.chunks.iter().map(|chunk| chunk.bytes).max().unwrap_or_default()
}
