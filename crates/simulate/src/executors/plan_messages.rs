//! A plan as the messages of its algorithms' programs.
//!
//! Ranks are numbered by their coordinates on the plan's dimensions, the first fastest. Uneven shards
//! are padded to whole blocks. A broadcast's stage concerns the ranks on lines that the data has
//! reached.

use std::sync::Arc;

use allrail_collective::algorithm::Own;
use allrail_collective::model::DimensionSet;
use allrail_collective::plan::scattered_at_start;
use allrail_collective::program::{Blocks, Combine, Receive, Send};
use allrail_collective::{CollectivePlan, Operation, Pace, Pattern, Program, Stage, StageRef};
use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_engine::{StageTask, Stages};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Fabric, Kind};
use allrail_schedule::Order;
use allrail_schedule::evaluate::Work;

use super::lowered::{Carried, Lowered, MessageSteps, Outgoing};
use crate::SimulateError;
use crate::scenario::WorldKind;

/// More messages than this in one stage's program are refused.
const MAX_PROGRAM: u64 = 1 << 24;
/// More ranks than this are refused where every rank is simulated.
pub const MAX_RANKS: u64 = 1 << 17;

/// Programs that were made, by algorithm, operation and number of ranks.
#[derive(Default)]
pub struct Programs(Vec<Made>);

struct Made {
    name: String,
    /// Where it is a user's own: two plans may have one of this name.
    own: Option<Arc<Own>>,
    operation: Operation,
    size: u32,
    program: Arc<Program>,
}

impl Programs {
    fn get(
        &mut self,
        plan: &CollectivePlan,
        Stage { operation, dimension }: Stage,
        (kind, size): (Kind, u32),
        field: impl FnOnce() -> String,
    ) -> Result<Arc<Program>, SimulateError> {
        let (name, algorithm) = (&plan.algorithms[dimension.index()], plan.algorithm(dimension)?);
        let own = plan.programs.get(name);
        let is_it = |made: &&Made| {
            (made.operation, made.size) == (operation, size)
                && made.name == *name
                && made.own.as_ref() == own
        };
        if let Some(known) = self.0.iter().find(is_it) {
            return Ok(Arc::clone(&known.program));
        }
        let steps = u64::from(algorithm.cost(operation, size).steps);
        let counted = algorithm.on_links(kind, operation, size).messages;
        let messages = counted.unwrap_or(match operation {
            // In transit, a message names every block that it carries.
            Operation::AllToAll => u64::from(size).pow(3),
            _ => u64::from(size) * steps,
        });
        if messages > MAX_PROGRAM {
            return Err(too_large(
                field(),
                size.to_string(),
                format!(
                    "`{name}` on it has {messages} per stage",
                    messages = allrail_core::counted(messages, "message")
                ),
            ));
        }
        let mut program = algorithm.program(operation, size);
        if algorithm.on_links(kind, operation, size).block_by_block {
            program = block_by_block(&program);
        }
        let program = Arc::new(program);
        let (name, own, made) = (name.clone(), own.cloned(), Arc::clone(&program));
        self.0.push(Made { name, own, operation, size, program: made });
        Ok(program)
    }
}

/// Every step as so many as its messages have blocks, one of each message in each.
fn block_by_block(program: &Program) -> Program {
    let lengths = |step: usize| {
        let of_rank = program.steps.iter().flat_map(move |steps| &steps[step].sends);
        of_rank.map(|send| send.blocks.len()).max().unwrap_or(1)
    };
    let parts: Vec<(usize, usize)> = (0..program.step_count())
        .flat_map(|step| (0..lengths(step) as usize).map(move |part| (step, part)))
        .collect();
    let mut spread = Program::empty(program.ranks, program.blocks, parts.len());
    for (rank, steps) in (0u32..).zip(&program.steps) {
        for (place, (step, part)) in parts.iter().enumerate() {
            for Send { to, blocks } in &steps[*step].sends {
                let Some(block) = blocks.iter(program.blocks).nth(*part) else { continue };
                let one = Blocks::Wrapped { start: block, count: 1 };
                spread.message(place, (rank, one.clone()), (*to, one), Combine::Replace);
            }
        }
    }
    spread
}

fn too_large(field: String, value: String, why: String) -> SimulateError {
    SimulateError::Field { field, value, why, hint: "use `world: dims`".to_owned() }
}

/// Refuses a fabric that is too large for a world of messages, or whose switches reduce.
///
/// # Errors
/// Names the field.
pub fn check_fabric(fabric: &Fabric, world: WorldKind) -> Result<u32, SimulateError> {
    let npus = u32::try_from(fabric.npus())
        .ok()
        .filter(|npus| u64::from(*npus) <= MAX_RANKS)
        .ok_or_else(|| {
            too_large(
                "world".to_owned(),
                world.tag().to_owned(),
                format!("it simulates every rank, and {} are too many", fabric.npus()),
            )
        })?;
    for (i, dimension) in fabric.dimensions.iter().enumerate() {
        if dimension.in_network_reduction {
            return Err(too_large(
                format!("fabric.dimensions[{i}].in_network_reduction"),
                "true".to_owned(),
                format!("`{}` does not model a switch that reduces", world.tag()),
            ));
        }
    }
    Ok(npus)
}

/// One stage of one chunk, ready to be expanded.
struct Expanded {
    program: Arc<Program>,
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
    /// Of an NPU, where reducing takes time.
    memory: Option<Bandwidth>,
    /// `starts[chunk]` is its first stage.
    starts: Vec<u32>,
}

/// Lowers a plan; its times in `dims` are `work`, and `ports[d]` is the port of its dimension `d`.
///
/// # Errors
/// If a program is too large; if two of its dimensions share a port, and queues keep to the plan.
pub fn lower(
    plan: &CollectivePlan,
    work: &Work,
    ports: &[u32],
    order: Order,
    programs: &mut Programs,
) -> Result<Lowered, SimulateError> {
    let fabric = &plan.fabric;
    let mut stride = 1;
    let place = |d: &allrail_fabric::Dimension| {
        let place = (d.size, stride);
        stride *= d.size;
        place
    };
    let mut messages = PlanMessages {
        ports: ports.to_vec(),
        shape: fabric.dimensions.iter().map(place).collect(),
        reaches: fabric.dimensions.iter().map(|d| kinds::of(d.kind).reach()).collect(),
        stages: Vec::new(),
        memory: fabric.memory_bandwidth,
        starts: Vec::new(),
    };
    // For every stage of a broadcast, the dimensions on which the data has not spread yet.
    let mut unreached: Vec<DimensionSet> = Vec::new();
    let broadcast = plan.operation == Operation::Broadcast;
    for (number, chunk) in (0u32..).zip(&plan.chunks) {
        messages.starts.push(u32::try_from(messages.stages.len()).expect("fewer than 2^32 stages"));
        let mut scattered = scattered_at_start(&chunk.stages);
        let mut left = plan.dimensions.iter().fold(DimensionSet::default(), |set, d| set.with(*d));
        let mut first = 0;
        for stage in chunk.stages.iter().copied() {
            let Stage { operation, dimension } = stage;
            let on = fabric.dimension(dimension);
            let field = || format!("fabric.dimensions[{}].size", ports[dimension.index()]);
            let program = programs.get(plan, stage, (on.kind, on.size), field)?;
            left = left.without(dimension);
            unreached.push(left);
            let outside = scattered.without(dimension);
            let steps = program.step_count() as u64;
            let known = plan.algorithm(dimension)?.on_links(on.kind, operation, on.size);
            let everyone = known.unaware == Some(Pattern::Direct) && !broadcast;
            let window = fabric.window.filter(|_| everyone);
            messages.stages.push(Expanded {
                pace: window.map(|window| paced(&program, window)),
                relays: known.relays,
                halving: known.halving,
                block: block(chunk.bytes, &messages.shape, outside, program.blocks),
                program,
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
    let planned = planned(plan, ports, order)?;
    if !broadcast {
        let stages = stages(plan, work, ports, planned, |_| true);
        return Ok(Lowered::alike(stages, Carried::Messages(Box::new(messages))));
    }
    // A kind of rank is a set of dimensions on which it is not first.
    let mut known: Vec<usize> = Vec::new();
    let ranks: u32 = messages.shape.iter().map(|(size, _)| size).product();
    let kinds = (0..ranks)
        .map(|rank| {
            let off = |(d, (size, stride)): (usize, &(u32, u32))| {
                usize::from(!(rank / stride).is_multiple_of(*size)) << d
            };
            let away = messages.shape.iter().enumerate().map(off).sum();
            let kind = known.iter().position(|other| *other == away).unwrap_or_else(|| {
                known.push(away);
                known.len() - 1
            });
            u32::try_from(kind).expect("few kinds")
        })
        .collect();
    let starts = messages.starts.clone();
    let of_kind = |away: &usize| {
        let concerns = |at: StageRef| {
            unreached[(starts[at.chunk as usize] + at.stage) as usize].bits() & away == 0
        };
        let planned = planned
            .iter()
            .map(|order| order.iter().copied().filter(|at| concerns(*at)).collect())
            .collect();
        stages(plan, work, ports, planned, concerns)
    };
    let stages = known.iter().map(of_kind).collect();
    Ok(Lowered::of_kinds(stages, kinds, Carried::Messages(Box::new(messages))))
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
            return Err(SimulateError::Field {
                field: "schedule.order".to_owned(),
                value: "planned".to_owned(),
                why: format!(
                    "a group takes two parts of {}, which have an order each",
                    DimensionId(*port).name()
                ),
                hint: "use `smallest_first`, or `world: dims`".to_owned(),
            });
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
    fn expanded(&self, at: StageRef) -> &Expanded {
        &self.stages[(self.starts[at.chunk as usize] + at.stage) as usize]
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
        // Messages of one step are reduced side by side; read twice, written once, each in whole ns.
        let received = reduced.map(|one| u64::from(one.blocks.len())).max().unwrap_or(0);
        let next = steps.get(step + 1).filter(|next| next.receives.iter().any(reduces));
        let sent = next.map(|next| next.sends.iter().map(|one| u64::from(one.blocks.len())));
        // Where a rank sends on a part of it, only that part has to be reduced before.
        let most = if stage.halving {
            received.min(sent.and_then(Iterator::max).unwrap_or(0))
        } else {
            received
        };
        let bytes = u128::from(stage.block.count()) * u128::from(most);
        let access = memory.time_for_fraction(bytes, 1);
        let access = access.expect("the driver bounds the time of a message");
        Time::from_ns(3 * (access.as_ps() / 1_000))
    }
}

/// The longest message of a plan, to check that it fits the clock.
#[must_use]
pub fn largest_message(plan: &CollectivePlan) -> Bytes {
    // No block is larger than what its chunk has, and no message than all blocks.
    plan.chunks.iter().map(|chunk| chunk.bytes).max().unwrap_or_default()
}
