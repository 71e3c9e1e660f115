//! From a request to a [`CollectivePlan`]: divide the buffer, schedule the chunks, and fix the
//! order of every dimension by running the schedule once (Themis §4.6).

use allrail_collective::{ChunkPlan, CollectivePlan, plan::SCHEMA_VERSION};
use allrail_core::{Bytes, Time};
use allrail_fabric::Wiring;

use crate::algorithms::Algorithms;
use crate::chunk::{ChunkScheduler, Problem, Watch};
use crate::error::ScheduleError;
use crate::key::Inputs;
use crate::made;
use crate::request::Request;
use crate::scheduled::{self, Scheduled, fix};

impl Request {
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

/// The schedule of a collective, before the order of the dimensions is fixed: all that a training
/// step needs, which issues many.
///
/// # Errors
/// Names the field of the scenario that is wrong.
pub fn schedule(request: &Request) -> Result<Scheduled, ScheduleError> {
    request.validate()?;
    scheduled::schedule(&*request.decided()?, &|_, _| {})
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
    request.validate()?;
    planned(request, scheduled::schedule(request, watch)?)
}

/// Whether [`finalists`] may be several.
///
/// # Errors
/// There is no such chunk scheduler.
pub fn has_finalists(request: &Request) -> Result<bool, ScheduleError> {
    Ok(!request.plugins.named(&request.policy)?.rivals().is_empty() || made::are_open(request))
}

/// The plans among which a network model that carries messages may choose, that of [`plan`] first: see
/// [`ChunkScheduler::finalists`]. Where algorithms are left open, there are finalists with those that each rival
/// would have, too: which are the fastest in `dims` depends on the policy and the order. And those with what is made for
/// the network, and with what is counted to be the fastest beside it: links that messages share are not counted.
///
/// # Errors
/// As [`plan`].
pub fn finalists(
    request: &Request,
    watch: Watch<'_>,
) -> Result<Vec<CollectivePlan>, ScheduleError> {
    let of = |request: &Request| -> Result<Vec<CollectivePlan>, ScheduleError> {
        request.validate()?;
        let finalists =
            |scheduler: &dyn ChunkScheduler, problem: &Problem<'_>| scheduler.finalists(problem);
        let all = scheduled::schedules(request, watch, finalists)?;
        all.into_iter().map(|scheduled| planned(request, scheduled)).collect()
    };
    let own = request.decided()?.into_owned();
    let mut plans = of(&own)?;
    let mut known = vec![own.algorithms];
    let mut others = rivals_algorithms(request)?;
    if made::are_open(request) {
        others.extend(near_what_is_made(request)?);
    }
    for names in others {
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

/// What is made for the network, and what is counted to be the fastest beside it if that is not counted to be a
/// quarter slower.
fn near_what_is_made(request: &Request) -> Result<Vec<Option<Algorithms>>, ScheduleError> {
    let ends = |names: &Algorithms| {
        let named = Request { algorithms: Some(names.clone()), ..request.clone() };
        finish(&named).map(Time::as_ps)
    };
    let made = Algorithms::from(vec![made::TREES; request.fabric.dimensions.len()]);
    let named = Algorithms::from(request.algorithm_names()?);
    let (time, other) = (ends(&made)?, ends(&named)?);
    let mut near = vec![Some(made)];
    if other <= time.saturating_add(time / 4) {
        near.push(Some(named));
    }
    Ok(near)
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
    let algorithms = request.names()?;
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
    request.validate()?;
    scheduled::finish(&*request.decided()?)
}
