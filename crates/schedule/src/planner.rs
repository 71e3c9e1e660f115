//! From a request to a [`CollectivePlan`]: divide the buffer, schedule the chunks, and fix the
//! order of every dimension by running the schedule once (Themis §4.6).

use std::borrow::Cow;

use allrail_collective::{
    Algorithm, ChunkPlan, CollectivePlan, Operation, Stage, StageModel,
    algorithm::{self, OwnPrograms},
    model::topology_aware,
    plan::{SCHEMA_VERSION, check_stages},
};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind, Wiring};

use crate::algorithms::{self, Algorithms, Choice, Preference};
use crate::chunk::{self, ChunkScheduler, Composition, Parameters, Plugins, Problem, Watch};
use crate::error::ScheduleError;
use crate::evaluate::{Evaluation, Work, evaluate};
use crate::key::Inputs;
use crate::queue::{self, Order};
use crate::room::ActiveChunks;

/// What is to be planned.
#[derive(Clone, Debug)]
pub struct Request {
    /// The network.
    pub fabric: Fabric,
    /// What the collective does.
    pub operation: Operation,
    /// The whole buffer.
    pub size: Bytes,
    /// The dimensions that it spans; all where empty.
    pub dimensions: Vec<DimensionId>,
    /// The chunk scheduler.
    pub policy: String,
    /// The order within a dimension.
    pub order: Order,
    /// How many chunks.
    pub chunks: u32,
    /// The algorithm of each dimension; where `None`, see [`Request::said`].
    pub algorithms: Option<Algorithms>,
    /// What `algorithms` may name beside those of [`allrail_collective::algorithm::ALL`].
    pub programs: OwnPrograms,
    /// How many stages a dimension runs at once; no limit where `None`.
    pub active_chunks: Option<ActiveChunks>,
    /// Added to every step.
    pub endpoint_delay: Time,
    /// The policies' parameters.
    pub parameters: Parameters,
    /// For policies that draw.
    pub seed: u64,
    /// Chunk schedulers that `policy` may name beside those of this crate.
    pub plugins: Plugins,
}

/// More chunks than this are refused.
pub const MAX_CHUNKS: u32 = 1 << 16;

fn field(
    name: &str,
    value: impl std::fmt::Display,
    why: impl Into<String>,
    hint: &str,
) -> ScheduleError {
    ScheduleError::Field {
        field: name.to_owned(),
        value: value.to_string(),
        why: why.into(),
        hint: hint.to_owned(),
    }
}

impl Request {
    /// The dimensions that the collective spans.
    #[must_use]
    pub fn spanned(&self) -> Vec<DimensionId> {
        if self.dimensions.is_empty() {
            self.fabric.ids().collect()
        } else {
            self.dimensions.clone()
        }
    }

    /// As many chunks as a buffer of `size` can have of those that are asked for.
    #[must_use]
    pub fn chunks_of(&self, size: Bytes) -> u32 {
        if self.parameters.smallest_chunk > Bytes::default() {
            return self.chunks;
        }
        // A chunk has one byte at least.
        self.chunks.min(u32::try_from(size.count()).unwrap_or(u32::MAX))
    }

    /// What is said of the algorithms. Where nothing is: the usual one of each kind of dimension, and over one that
    /// stands for a network without dimensions, which has no usual one, what is counted to be the fastest.
    #[must_use]
    pub fn said(&self) -> Cow<'_, Algorithms> {
        if let Some(said) = &self.algorithms {
            return Cow::Borrowed(said);
        }
        let dimensions = &self.fabric.dimensions;
        let spanned = self.spanned();
        let mut spanned = spanned.iter().filter_map(|id| dimensions.get(id.index()));
        // A part of a ring, whose cables are a ring's, has a ring's usual one.
        if spanned.any(|one| one.wiring.is_some() && one.kind == Kind::Switch) {
            return Cow::Owned(Algorithms::Auto);
        }
        let usual = |one: &Dimension| topology_aware(one.kind, self.operation);
        Cow::Owned(dimensions.iter().map(usual).collect())
    }

    /// The name of the algorithm on each dimension; chosen where that is left open.
    ///
    /// # Errors
    /// If the list is not as long as the fabric's; if nothing fits what is open.
    pub fn algorithm_names(&self) -> Result<Vec<String>, ScheduleError> {
        let said = self.said();
        if said.is_open() {
            return algorithms::choose(self, &said, Preference::default());
        }
        let each = said.each(self.fabric.dimensions.len())?;
        Ok(each.into_iter().map(String::from).collect())
    }

    /// The same with every algorithm named, and merged where that is the only way.
    ///
    /// # Errors
    /// As [`Self::algorithm_names`].
    pub fn decided(&self) -> Result<Cow<'_, Self>, ScheduleError> {
        if self.ends_whole() {
            let mut merged = self.clone();
            merged.parameters.composition = Composition::Merged;
            return Ok(Cow::Owned(merged.decided()?.into_owned()));
        }
        if !self.said().is_open() {
            return Ok(Cow::Borrowed(self));
        }
        self.validate()?;
        let algorithms = Some(self.algorithm_names()?.into());
        let named = Self { algorithms, ..self.clone() };
        Ok(Cow::Owned(named.decided()?.into_owned()))
    }

    /// Whether an all-reduce of stages can only end in a whole one: the algorithm that is named for its last
    /// dimension does nothing else, and the policy merges the two stages there.
    pub(crate) fn ends_whole(&self) -> bool {
        let spanned = self.spanned();
        let stages = self.operation == Operation::AllReduce
            && self.parameters.composition == Composition::Stages
            && spanned.len() > 1;
        let Some(Algorithms::Each(each)) = self.algorithms.as_ref().filter(|_| stages) else {
            return false;
        };
        let last = spanned.last().and_then(|id| each.get(id.index()));
        let Some(name) = last.cloned().and_then(Choice::named) else { return false };
        let does = self.programs.named(&name).map(Algorithm::operations).unwrap_or_default();
        does.contains(&Operation::AllReduce)
            && !does.contains(&Operation::ReduceScatter)
            && self.plugins.named(&self.policy).is_ok_and(ChunkScheduler::keeps_the_order)
    }

    /// Refuses what is out of range.
    ///
    /// # Errors
    /// Names the field.
    fn validate(&self) -> Result<(), ScheduleError> {
        algorithms::check_measured(&self.fabric)?;
        if self.chunks > MAX_CHUNKS {
            return Err(field(
                "schedule.chunks",
                self.chunks,
                format!("more than {MAX_CHUNKS} chunks"),
                "64 is the usual number",
            ));
        }
        if self.active_chunks == Some(ActiveChunks::AtMost(0)) {
            return Err(field(
                "schedule.active_chunks",
                0,
                "no stage could ever run",
                "leave it out for no limit",
            ));
        }
        if self.parameters.threshold == 0 {
            return Err(field(
                "schedule.threshold",
                0,
                "the chunk size is divided by it",
                "16 is the paper's",
            ));
        }
        let mut seen = vec![false; self.fabric.dimensions.len()];
        for dimension in &self.dimensions {
            match seen.get_mut(dimension.index()) {
                None => {
                    return Err(field(
                        "collective.dimensions",
                        dimension.0,
                        format!("the fabric has dimensions 0 to {}", seen.len() - 1),
                        "dimensions are counted from 0, innermost first",
                    ));
                }
                Some(true) => {
                    return Err(field(
                        "collective.dimensions",
                        dimension.0,
                        "it is named twice",
                        "name each dimension once",
                    ));
                }
                Some(seen) => *seen = true,
            }
        }
        let composition = self.parameters.composition;
        if !self.plugins.named(&self.policy)?.composes(composition) {
            let composing = chunk::ALL.iter().filter(|policy| policy.composes(composition));
            let composing: Vec<String> = composing.map(|one| format!("`{}`", one.tag())).collect();
            return Err(field(
                "schedule.composition",
                format!("{:?}", self.parameters.composition).to_lowercase(),
                format!("only {} composes an all-reduce otherwise", composing.join(", ")),
                "use `stages`",
            ));
        }
        Ok(())
    }

    /// Whether an all-reduce is one stage: on one dimension, where it is merged or its algorithm does
    /// nothing else.
    fn is_one_stage(&self) -> Result<bool, ScheduleError> {
        let spanned = self.spanned();
        if self.operation != Operation::AllReduce || spanned.len() != 1 {
            return Ok(false);
        }
        let names = self.algorithm_names()?;
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

    /// The operations that the stages of the plan can have.
    pub(crate) fn stage_operations(&self) -> &'static [Operation] {
        use Operation::{AllGather, AllReduce, ReduceScatter};
        match (self.operation, self.parameters.composition) {
            (AllReduce, Composition::Stages) => &[ReduceScatter, AllGather],
            (AllReduce, Composition::Merged) => &[ReduceScatter, AllGather, AllReduce],
            (AllReduce, Composition::Sequential) => &[AllReduce],
            (ReduceScatter, _) => &[ReduceScatter],
            (AllGather, _) => &[AllGather],
            (Operation::AllToAll, _) => &[Operation::AllToAll],
            (Operation::Broadcast, _) => &[Operation::Broadcast],
        }
    }

    /// The hash of every input of the planner and its version.
    ///
    /// # Errors
    /// As for [`plan`], of what is checked before planning.
    pub fn key(&self) -> Result<String, ScheduleError> {
        let algorithms = self.decided()?.algorithm_names()?;
        let fixed_by = self.order.fixed_by();
        Ok(Inputs {
            policy: &self.policy,
            version: self.plugins.named(&self.policy)?.version(),
            fabric: &self.fabric,
            wiring: self
                .fabric
                .dimensions
                .iter()
                .filter_map(|d| d.wiring.as_ref())
                .map(Wiring::digest)
                .collect(),
            operation: self.operation,
            size: self.size,
            dimensions: &self.spanned(),
            algorithms: &algorithms,
            programs: &self.programs.among(&algorithms),
            chunks: self.chunks,
            order: self.order,
            fixed_by: if self.order.keeps_to_plans() { &fixed_by } else { &[] },
            active_chunks: self.active_chunks,
            endpoint_delay: self.endpoint_delay,
            parameters: &self.parameters,
            seed: self.seed,
        }
        .hash())
    }
}

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

/// The schedule of a collective, before the order of the dimensions is fixed: all that a training
/// step needs, which issues many.
///
/// # Errors
/// Names the field of the scenario that is wrong.
pub fn schedule(request: &Request) -> Result<Scheduled, ScheduleError> {
    schedule_watched(request, &|_, _| {})
}

fn schedule_watched(request: &Request, watch: Watch<'_>) -> Result<Scheduled, ScheduleError> {
    let asked = |scheduler: &dyn ChunkScheduler, problem: &Problem<'_>| {
        Ok(vec![scheduler.schedule(problem)?])
    };
    Ok(schedules(request, watch, asked)?.swap_remove(0))
}

/// One schedule or several, as the scheduler is asked.
fn schedules(
    request: &Request,
    watch: Watch<'_>,
    asked: impl Fn(&dyn ChunkScheduler, &Problem<'_>) -> Result<Vec<Vec<Vec<Stage>>>, ScheduleError>,
) -> Result<Vec<Scheduled>, ScheduleError> {
    request.validate()?;
    let request = &*request.decided()?;
    let scheduler = request.plugins.named(&request.policy)?;
    let algorithms = request.algorithm_names()?;
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

/// Plans a collective.
///
/// # Errors
/// Names the field of the scenario that is wrong.
pub fn plan(request: &Request) -> Result<CollectivePlan, ScheduleError> {
    plan_watched(request, &|_, _| {})
}

/// [`plan`], which tells how far a search is.
///
/// # Errors
/// As [`plan`].
pub fn plan_watched(request: &Request, watch: Watch<'_>) -> Result<CollectivePlan, ScheduleError> {
    let request = &*request.decided()?;
    planned(request, schedule_watched(request, watch)?)
}

/// Whether [`finalists`] may be several.
///
/// # Errors
/// There is no such chunk scheduler.
pub fn has_finalists(request: &Request) -> Result<bool, ScheduleError> {
    Ok(!request.plugins.named(&request.policy)?.rivals().is_empty())
}

/// The plans among which a network model that carries messages may choose, that of [`plan`] first: see
/// [`ChunkScheduler::finalists`]. Where algorithms are left open, there are finalists with those that each rival
/// would have, too: which are the fastest in `dims` depends on the policy and the order.
///
/// # Errors
/// As [`plan`].
pub fn finalists(
    request: &Request,
    watch: Watch<'_>,
) -> Result<Vec<CollectivePlan>, ScheduleError> {
    let of = |request: &Request| -> Result<Vec<CollectivePlan>, ScheduleError> {
        let all = schedules(request, watch, |scheduler, problem| scheduler.finalists(problem))?;
        all.into_iter().map(|scheduled| planned(request, scheduled)).collect()
    };
    let own = request.decided()?.into_owned();
    let mut plans = of(&own)?;
    let mut known = vec![own.algorithms];
    for names in rivals_algorithms(request)? {
        if known.contains(&names) {
            continue;
        }
        let rival = Request { algorithms: names.clone(), ..request.clone() };
        known.push(names);
        // Names that do not go under this policy are not its to choose.
        plans.extend(rival.decided().and_then(|rival| of(&rival)).unwrap_or_default());
    }
    Ok(plans)
}

/// What rivals run on dimensions whose algorithm is open, under each order that a plan may be read off.
fn rivals_algorithms(request: &Request) -> Result<Vec<Option<Algorithms>>, ScheduleError> {
    if !request.said().is_open() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for rival in request.plugins.named(&request.policy)?.rivals() {
        let orders = request.order.fixed_by().into_iter().chain([request.order]);
        for order in orders {
            let rival = Request { policy: (*rival).to_owned(), order, ..request.clone() };
            names.extend(rival.algorithm_names().ok().map(|names| Some(names.into())));
        }
    }
    Ok(names)
}

/// A schedule with the order of its dimensions, of a request whose algorithms are decided.
fn planned(request: &Request, scheduled: Scheduled) -> Result<CollectivePlan, ScheduleError> {
    let work = scheduled.work()?;
    let dimensions = request.fabric.dimensions.len();
    let algorithms = request.algorithm_names()?;
    let outcome = fix(&work, request.order, dimensions, request.active_chunks);
    let Scheduled { chunks, stages, .. } = scheduled;
    // More than the buffer where chunks are padded.
    let size = Bytes::new(chunks.iter().map(|chunk| chunk.count()).sum());
    Ok(CollectivePlan {
        schema_version: SCHEMA_VERSION,
        policy: request.policy.clone(),
        fabric: request.fabric.clone(),
        operation: request.operation,
        size,
        sizes: None,
        dimensions: request.spanned(),
        programs: request.programs.among(&algorithms),
        algorithms,
        endpoint_delay: request.endpoint_delay,
        chunks: chunks
            .into_iter()
            .zip(stages)
            .map(|(bytes, stages)| ChunkPlan { bytes, stages })
            .collect(),
        dimension_order: outcome.served,
        order_made_in: "dims".to_owned(),
        key: request.key()?,
    })
}

/// When a collective that is planned so ends, in the model of `dims`.
///
/// # Errors
/// As [`schedule`].
pub fn finish(request: &Request) -> Result<Time, ScheduleError> {
    let work = schedule(request)?.work()?;
    Ok(fix(&work, request.order, request.fabric.dimensions.len(), request.active_chunks).finish)
}

/// Runs `work` under each of the orders that may fix `order`; the run that ends first.
fn fix(
    work: &Work,
    order: Order,
    dimensions: usize,
    active_chunks: Option<ActiveChunks>,
) -> Evaluation {
    let run =
        |order: &Order| evaluate(work, &mut queue::queues(*order, dimensions, &[]), active_chunks);
    order.fixed_by().iter().map(run).min_by_key(|outcome| outcome.finish).unwrap_or_default()
}
