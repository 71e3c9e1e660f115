//! What a stage is in each world: one transfer in `dims`, its algorithm's messages in `links`.
//!
//! To the driver both are the same: a stage of an actor is a list of steps; a step sends transfers
//! and is over when it has received as many as it expects. In `dims` the one actor is a class of
//! ranks that are alike, and its one step sends one transfer to itself.

use allrail_collective::model::DimensionSet;
use allrail_collective::plan::scattered_at_start;
use allrail_collective::{CollectivePlan, Operation, Program, Stage, StageModel, algorithm};
use allrail_core::{Bytes, DimensionId, Rank};
use allrail_fabric::Fabric;
use allrail_fabric::topology::{self, Reach};
use allrail_schedule::evaluate::{Task, Work};
use allrail_world::Transfer;

use crate::SimulateError;
use crate::scenario::WorldKind;

/// A stage of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageAt {
    /// Index of the collective.
    pub collective: u32,
    /// Index of the chunk.
    pub chunk: u32,
    /// Index of the stage.
    pub stage: u32,
}

/// A transfer that a step sends.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing {
    /// What the world is asked to carry.
    pub transfer: Transfer,
    /// Which actor receives it.
    pub to: u32,
    /// Whether the sender's links are free for another stage only after it.
    pub last_on_link: bool,
}

/// How stages become transfers. The driver calls it when a stage starts and at each of its steps.
pub trait Lowering {
    /// How many actors there are: classes of ranks that are alike, or ranks.
    fn actors(&self) -> u32;

    /// How many steps a stage has.
    fn steps(&self, at: StageAt) -> u32;

    /// Whether an actor takes part in a stage.
    fn concerns(&self, actor: u32, at: StageAt) -> bool;

    /// Appends what an actor sends in a step.
    fn sends(&self, actor: u32, at: StageAt, step: u32, out: &mut Vec<Outgoing>);

    /// How many transfers an actor receives in a step.
    fn expected(&self, actor: u32, at: StageAt, step: u32) -> u32;

    /// A stage with its sizes: what queues go by.
    fn task(&self, at: StageAt) -> Task;
}

/// A stage as one transfer of a class of ranks that are alike.
pub struct StageLowering<'a> {
    /// The tasks of each collective.
    pub work: &'a [Work],
}

impl Lowering for StageLowering<'_> {
    fn actors(&self) -> u32 {
        1
    }

    fn steps(&self, _at: StageAt) -> u32 {
        1
    }

    fn concerns(&self, _actor: u32, _at: StageAt) -> bool {
        true
    }

    fn sends(&self, actor: u32, at: StageAt, _step: u32, out: &mut Vec<Outgoing>) {
        let task = self.work[at.collective as usize].chunk(at.chunk as usize)[at.stage as usize];
        out.push(Outgoing {
            transfer: Transfer::Stage {
                dimension: DimensionId(task.dimension),
                occupancy: task.occupancy,
                latency: task.latency,
            },
            to: actor,
            last_on_link: true,
        });
    }

    fn expected(&self, _actor: u32, _at: StageAt, _step: u32) -> u32 {
        1
    }

    fn task(&self, at: StageAt) -> Task {
        self.work[at.collective as usize].chunk(at.chunk as usize)[at.stage as usize]
    }
}

/// One stage of one chunk, ready to be expanded.
struct Expanded {
    /// Index into the programs.
    program: usize,
    dimension: DimensionId,
    /// Bytes of one block of the program.
    block: Bytes,
    /// For a broadcast: the dimensions on which the data has not spread yet.
    unreached: DimensionSet,
    broadcast: bool,
}

/// A stage as the messages of its algorithm's program.
pub struct MessageLowering<'a> {
    work: &'a [Work],
    npus: u32,
    /// Size and stride of each dimension.
    shape: Vec<(u32, u32)>,
    reaches: Vec<Reach>,
    programs: Vec<Program>,
    /// `stages[collective][chunk][stage]`.
    stages: Vec<Vec<Vec<Expanded>>>,
}

/// More messages than this in one stage's program are refused.
const MAX_PROGRAM: u64 = 1 << 24;
/// More ranks than this are refused where every rank is simulated.
pub const MAX_RANKS: u64 = 1 << 17;

impl<'a> MessageLowering<'a> {
    /// Expands the stages of `plans`, whose times in `dims` are `work`.
    ///
    /// # Errors
    /// If the fabric or a program is too large for `world`, or a switch reduces.
    pub fn new(
        fabric: &Fabric,
        plans: &[CollectivePlan],
        work: &'a [Work],
        world: WorldKind,
    ) -> Result<Self, SimulateError> {
        let too_large = |field: &str, value: String, why: String| SimulateError::Field {
            field: field.to_owned(),
            value,
            why,
            hint: "use `world: dims`".to_owned(),
        };
        let npus = u32::try_from(fabric.npus())
            .ok()
            .filter(|npus| u64::from(*npus) <= MAX_RANKS)
            .ok_or_else(|| {
            too_large(
                "world",
                world.tag().to_owned(),
                format!("it simulates every rank, and {} are too many", fabric.npus()),
            )
        })?;
        for (i, dimension) in fabric.dimensions.iter().enumerate() {
            if dimension.in_network_reduction {
                return Err(too_large(
                    &format!("fabric.dimensions[{i}].in_network_reduction"),
                    "true".to_owned(),
                    format!("`{}` does not model a switch that reduces", world.tag()),
                ));
            }
        }
        let mut stride = 1;
        let shape = fabric
            .dimensions
            .iter()
            .map(|d| {
                let place = (d.size, stride);
                stride *= d.size;
                place
            })
            .collect();
        let mut lowering = Self {
            work,
            npus,
            shape,
            reaches: fabric.dimensions.iter().map(|d| topology::of(d.kind).reach()).collect(),
            programs: Vec::new(),
            stages: Vec::new(),
        };
        let mut known: Vec<(DimensionId, Operation, String)> = Vec::new();
        for plan in plans {
            let algorithms = plan
                .algorithms
                .iter()
                .map(|name| algorithm::named(name))
                .collect::<Result<Vec<_>, _>>()?;
            let mut chunks = Vec::new();
            for chunk in &plan.chunks {
                let mut scattered = scattered_at_start(&chunk.stages);
                let mut unreached =
                    plan.dimensions.iter().fold(DimensionSet::default(), |set, d| set.with(*d));
                let mut stages = Vec::new();
                for Stage { operation, dimension } in chunk.stages.iter().copied() {
                    let name = &plan.algorithms[dimension.index()];
                    let identity = (dimension, operation, name.clone());
                    let program = match known.iter().position(|other| *other == identity) {
                        Some(program) => program,
                        None => {
                            let size = fabric.dimension(dimension).size;
                            let algorithm = algorithms[dimension.index()];
                            let steps = u64::from(algorithm.cost(operation, size).steps);
                            let kind = fabric.dimension(dimension).kind;
                            let counted = algorithm.on_links(kind, operation, size).messages;
                            let messages = counted.unwrap_or(match operation {
                                // In transit, a message names every block that it carries.
                                Operation::AllToAll => u64::from(size).pow(3),
                                _ => u64::from(size) * steps,
                            });
                            if messages > MAX_PROGRAM {
                                return Err(too_large(
                                    &format!("fabric.dimensions[{}].size", dimension.0),
                                    size.to_string(),
                                    format!("`{name}` on it has {messages} messages per stage"),
                                ));
                            }
                            lowering.programs.push(algorithm.program(operation, size));
                            known.push(identity);
                            lowering.programs.len() - 1
                        }
                    };
                    unreached = unreached.without(dimension);
                    stages.push(Expanded {
                        program,
                        dimension,
                        block: block(
                            chunk.bytes,
                            &lowering.shape,
                            scattered.without(dimension),
                            lowering.programs[program].blocks,
                        ),
                        unreached,
                        broadcast: operation == Operation::Broadcast,
                    });
                    match operation {
                        Operation::ReduceScatter => scattered = scattered.with(dimension),
                        Operation::AllGather => scattered = scattered.without(dimension),
                        _ => {}
                    }
                }
                chunks.push(stages);
            }
            lowering.stages.push(chunks);
        }
        Ok(lowering)
    }

    fn expanded(&self, at: StageAt) -> &Expanded {
        &self.stages[at.collective as usize][at.chunk as usize][at.stage as usize]
    }

    /// The actor's coordinate on the stage's dimension.
    fn coordinate(&self, actor: u32, stage: &Expanded) -> u32 {
        let (size, stride) = self.shape[stage.dimension.index()];
        actor / stride % size
    }

    /// The longest time that any message takes on a link, to check that it fits the clock.
    #[must_use]
    pub fn largest_message(&self) -> Bytes {
        let bytes = self.stages.iter().flatten().flatten().map(|stage| {
            let blocks = u64::from(self.programs[stage.program].blocks);
            stage.block.count().saturating_mul(blocks)
        });
        Bytes::new(bytes.max().unwrap_or(0))
    }
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

impl Lowering for MessageLowering<'_> {
    fn actors(&self) -> u32 {
        self.npus
    }

    fn steps(&self, at: StageAt) -> u32 {
        let program = &self.programs[self.expanded(at).program];
        u32::try_from(program.step_count()).expect("few steps")
    }

    /// A broadcast's stage concerns the ranks on lines that the data has reached.
    fn concerns(&self, actor: u32, at: StageAt) -> bool {
        let stage = self.expanded(at);
        !stage.broadcast
            || self.shape.iter().enumerate().all(|(d, (size, stride))| {
                stage.unreached.bits() >> d & 1 == 0 || (actor / stride).is_multiple_of(*size)
            })
    }

    fn sends(&self, actor: u32, at: StageAt, step: u32, out: &mut Vec<Outgoing>) {
        let stage = self.expanded(at);
        let (_, stride) = self.shape[stage.dimension.index()];
        let coordinate = self.coordinate(actor, stage);
        let sends = &self.programs[stage.program].steps[coordinate as usize][step as usize].sends;
        let one_link = self.reaches[stage.dimension.index()] == Reach::Switch;
        for (i, send) in sends.iter().enumerate() {
            let to = actor - coordinate * stride + send.to * stride;
            out.push(Outgoing {
                transfer: Transfer::Message {
                    dimension: stage.dimension,
                    source: Rank(actor),
                    destination: Rank(to),
                    bytes: Bytes::new(stage.block.count() * u64::from(send.blocks.len())),
                },
                to,
                last_on_link: !one_link || i + 1 == sends.len(),
            });
        }
    }

    fn expected(&self, actor: u32, at: StageAt, step: u32) -> u32 {
        let stage = self.expanded(at);
        let coordinate = self.coordinate(actor, stage);
        let steps = &self.programs[stage.program].steps[coordinate as usize];
        u32::try_from(steps[step as usize].receives.len()).expect("few messages")
    }

    fn task(&self, at: StageAt) -> Task {
        self.work[at.collective as usize].chunk(at.chunk as usize)[at.stage as usize]
    }
}

/// The tasks of every collective on `fabric`.
///
/// # Errors
/// If an algorithm is not modelled there, or the times do not fit the clock.
pub fn work(
    fabric: &Fabric,
    plans: &[CollectivePlan],
) -> Result<(Vec<StageModel>, Vec<Work>), SimulateError> {
    let mut models = Vec::new();
    let mut works = Vec::new();
    for plan in plans {
        let model = allrail_schedule::planner::model_of(plan, fabric)?;
        let chunks = plan.chunks.iter().map(|chunk| (chunk.bytes, chunk.stages.as_slice()));
        works.push(Work::new(&model, chunks)?);
        models.push(model);
    }
    Ok((models, works))
}
