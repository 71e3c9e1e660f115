//! The schedule of a collective whose algorithms are all named: its stages, and the time of each.

use allrail_collective::{
    CollectivePlan, Operation, Stage, StageModel,
    algorithm::{self, OwnPrograms},
    plan::check_stages,
};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::Fabric;

use crate::chunk::{ChunkScheduler, Composition, Problem, Watch};
use crate::error::ScheduleError;
use crate::evaluate::{Evaluation, Work, evaluate};
use crate::queue::{self, Order};
use crate::request::Request;
use crate::room::ActiveChunks;

/// The time model for the stages of a plan on `fabric`, which may differ from the plan's own in
/// bandwidths and latencies.
///
/// # Errors
/// An unknown algorithm, or one that does not do what the plan asks of it.
pub fn model_of(plan: &CollectivePlan, fabric: &Fabric) -> Result<StageModel, ScheduleError> {
    let mut operations: Vec<Operation> = Vec::new();
    for stage in plan.chunks.iter().flat_map(|chunk| &chunk.stages) {
        if !operations.contains(&stage.operation) {
            operations.push(stage.operation);
        }
    }
    let named = (plan.algorithms.as_slice(), &plan.programs);
    model(fabric, named, &plan.dimensions, &operations, plan.endpoint_delay)
}

fn model(
    fabric: &Fabric,
    (names, programs): (&[String], &OwnPrograms),
    spanned: &[DimensionId],
    operations: &[Operation],
    endpoint_delay: Time,
) -> Result<StageModel, ScheduleError> {
    let algorithms =
        names.iter().map(|name| programs.named(name)).collect::<Result<Vec<_>, _>>()?;
    Ok(StageModel::new(fabric, &algorithms, spanned, operations, endpoint_delay)?)
}

/// A schedule that has not been run: its chunks, their stages and the time of each.
pub struct Scheduled {
    /// The time model.
    pub model: StageModel,
    /// The bytes of every chunk.
    pub chunks: Vec<Bytes>,
    /// The stages of every chunk.
    pub stages: Vec<Vec<Stage>>,
    /// How many of them a dimension runs at once.
    pub active_chunks: Option<ActiveChunks>,
}

impl Scheduled {
    /// The tasks of every chunk.
    ///
    /// # Errors
    /// If the times do not fit the clock.
    pub fn work(&self) -> Result<Work, ScheduleError> {
        let chunks = self.chunks.iter().copied();
        let work = Work::new(&self.model, chunks.zip(self.stages.iter().map(Vec::as_slice)))?;
        Ok(work.side_by_side(self.active_chunks))
    }
}

/// One schedule or several, as the scheduler is asked, of a request whose algorithms are all named.
pub(crate) fn schedules(
    request: &Request,
    watch: Watch<'_>,
    asked: impl Fn(&dyn ChunkScheduler, &Problem<'_>) -> Result<Vec<Vec<Vec<Stage>>>, ScheduleError>,
) -> Result<Vec<Scheduled>, ScheduleError> {
    let scheduler = request.plugins.named(&request.policy)?;
    let algorithms = request.names()?;
    let spanned = request.spanned();
    let one_stage = request.is_one_stage()?;
    let operations = if one_stage { &[Operation::AllReduce] } else { request.stage_operations() };
    request.check_sizes(&algorithms)?;
    let merged = request.parameters.composition == Composition::Merged;
    if !one_stage && merged && !scheduler.keeps_the_order() {
        request.check_each(&algorithms, operations)?;
    }
    let named = (algorithms.as_slice(), &request.programs);
    let model = model(&request.fabric, named, &spanned, operations, request.endpoint_delay)?;
    let members = spanned.iter().map(|id| u64::from(request.fabric.dimension(*id).size)).product();
    let chunks =
        request.parameters.cut(request.operation, request.size, request.chunks, members)?;
    let problem = Problem {
        model: &model,
        operation: request.operation,
        dimensions: &spanned,
        chunks: &chunks,
        order: request.order,
        active_chunks: request.active_chunks,
        parameters: &request.parameters,
        seed: request.seed,
        watch,
    };
    let found = if one_stage {
        let stage = Stage { operation: Operation::AllReduce, dimension: spanned[0] };
        vec![vec![vec![stage]; chunks.len()]]
    } else {
        asked(scheduler, &problem)?
    };
    for (i, stages) in found.iter().flat_map(|stages| stages.iter().enumerate()) {
        check_stages(i, stages, request.operation, &spanned)?;
    }
    let scheduled = found.into_iter().map(|stages| Scheduled {
        model: model.clone(),
        chunks: chunks.clone(),
        stages,
        active_chunks: request.active_chunks,
    });
    Ok(scheduled.collect())
}

/// The one that the scheduler gives.
pub(crate) fn schedule(request: &Request, watch: Watch<'_>) -> Result<Scheduled, ScheduleError> {
    let asked = |scheduler: &dyn ChunkScheduler, problem: &Problem<'_>| {
        Ok(vec![scheduler.schedule(problem)?])
    };
    Ok(schedules(request, watch, asked)?.swap_remove(0))
}

/// When the collective ends, in the model of `dims`.
pub(crate) fn finish(request: &Request) -> Result<Time, ScheduleError> {
    let work = schedule(request, &|_, _| {})?.work()?;
    Ok(fix(&work, request.order, request.fabric.dimensions.len(), request.active_chunks).finish)
}

/// Runs `work` under each of the orders that may fix `order`; the run that ends first.
pub(crate) fn fix(
    work: &Work,
    order: Order,
    dimensions: usize,
    active_chunks: Option<ActiveChunks>,
) -> Evaluation {
    let run =
        |order: &Order| evaluate(work, &mut queue::queues(*order, dimensions, &[]), active_chunks);
    order.fixed_by().iter().map(run).min_by_key(|outcome| outcome.finish).unwrap_or_default()
}

impl Request {
    /// Whether an all-reduce is one stage: on one dimension, where it is merged or its algorithm does
    /// nothing else.
    fn is_one_stage(&self) -> Result<bool, ScheduleError> {
        let spanned = self.spanned();
        if self.operation != Operation::AllReduce || spanned.len() != 1 {
            return Ok(false);
        }
        let names = self.names()?;
        let algorithm = self.programs.named(&names[spanned[0].index()])?;
        Ok(self.parameters.composition != Composition::Stages
            || !algorithm.operations().contains(&Operation::ReduceScatter))
    }

    /// Refuses algorithms that do not do every operation: chunks may end on any dimension, and the time
    /// model lets the last one do less where stages are merged.
    fn check_each(&self, names: &[String], operations: &[Operation]) -> Result<(), ScheduleError> {
        for id in self.spanned() {
            let algorithm = self.programs.named(&names[id.index()])?;
            for operation in operations {
                algorithm::check(algorithm, *operation, self.fabric.dimension(id).size)?;
            }
        }
        Ok(())
    }

    /// Refuses programs that are for collectives of other sizes.
    fn check_sizes(&self, names: &[String]) -> Result<(), ScheduleError> {
        for id in self.spanned() {
            if let Some(own) = self.programs.get(&names[id.index()]) {
                own.check_size(self.size)?;
            }
        }
        Ok(())
    }
}
