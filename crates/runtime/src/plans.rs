//! The plans of a node: made from its settings, alike on every rank, for every size.
//!
//! Where no algorithm is named, for each size the one is taken that the stage model predicts to be the
//! quickest (so, too, for operations that the one that is named does not do): few steps for little data, few bytes for much. Sizes are tried from 1 KiB to 4 GiB, four times
//! as large each; the one that is usual on the links of each dimension is left only for what is a tenth quicker,
//! as the model does not know what it costs to talk with many at once. A plan holds from half-way (a factor of two) below the first that it was the best for.

use allrail_collective::rank::Plans;
use allrail_collective::{CollectivePlan, DimensionSet, Operation, SizeRange, algorithm};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::Ordering;
use allrail_engine::engine;
use allrail_schedule::chunk::{self, Composition, Parameters};
use allrail_schedule::planner::schedule;
use allrail_schedule::{Request, ScheduleError, evaluate, plan, queue};

use crate::{RuntimeError, Settings, elsewhere};

/// How many parts of plans, one a size, are kept.
const ROOM: usize = 1024;

fn request(settings: &Settings, operation: Operation, size: Bytes) -> Request {
    Request {
        fabric: settings.fabric(),
        operation,
        size,
        dimensions: Vec::new(),
        policy: settings.policy.clone(),
        order: settings.order,
        chunks: chunks(settings, size),
        algorithms: settings.algorithms.clone(),
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters { composition: composition(settings), ..Parameters::default() },
        seed: 1,
        plugins: Default::default(),
    }
}

/// A group reduces and gathers in one call, where the policy leaves that open.
fn composition(settings: &Settings) -> Composition {
    let composes = chunk::ALL.iter().any(|one| one.tag() == settings.policy && one.composes());
    if settings.elsewhere && composes { Composition::Merged } else { Composition::default() }
}

/// As many as the settings say, but none smaller than they say.
fn chunks(settings: &Settings, size: Bytes) -> u32 {
    if settings.elsewhere && settings.dimensions.len() == 1 {
        // Its launches go one after the other.
        return 1;
    }
    let most = size.count() / settings.smallest_chunk.count().max(1);
    u32::try_from(most).unwrap_or(u32::MAX).clamp(1, settings.chunks.max(1))
}

/// When the schedule is over, in the model.
fn predicted(request: &Request) -> Result<Time, ScheduleError> {
    let work = schedule(request)?.work()?;
    let queues = request.fabric.dimensions.len();
    let mut queues = queue::queues(request.order.while_planning(), queues, &[]);
    Ok(evaluate::finish(&work, &mut queues, None))
}

/// The algorithm for every dimension, one and the same, or that which is usual on its links.
fn candidates(settings: &Settings, operation: Operation) -> Vec<Option<Vec<String>>> {
    let parts = match operation {
        Operation::AllReduce => vec![Operation::ReduceScatter, Operation::AllGather],
        other => vec![other],
    };
    let does =
        |one: &&&dyn algorithm::Algorithm| parts.iter().all(|part| one.operations().contains(part));
    let all = algorithm::ALL.iter().filter(does);
    // Algorithms are named for all-reduces; another operation may not be among what they do.
    if let Some(named) = &settings.algorithms {
        let can = |tag: &String| algorithm::named(tag).is_ok_and(|one| does(&&one));
        if operation == Operation::AllReduce || named.iter().all(can) {
            return vec![Some(named.clone())];
        }
    }
    let everywhere = |tag: &str| vec![tag.to_owned(); settings.dimensions.len()];
    std::iter::once(None).chain(all.map(|one| Some(everywhere(one.tag())))).collect()
}

/// What the engine of a node is made with.
pub(crate) fn decider(settings: &Settings) -> Result<(engine::Settings, Plans), RuntimeError> {
    let operation = Operation::AllReduce;
    let mut all = Vec::new();
    let is_had = |one: &Operation| !settings.elsewhere || *one == operation;
    let operations = Operation::ALL.into_iter().filter(is_had);
    for operation in operations.filter(|_| settings.ranks > 1) {
        all.extend(of(settings, operation)?);
    }
    let engine = engine::Settings {
        rank: settings.rank,
        ranks: settings.ranks,
        epoch: settings.epoch,
        group: settings.group,
        operation,
        dimensions: (0..settings.dimensions.len() as u32)
            .fold(DimensionSet::default(), |set, d| set.with(DimensionId(d))),
        ports: settings.dimensions.len(),
        order: settings.order,
        tensor: settings.tensor_parameters(),
        ordering: Ordering::Tagged,
        ..engine::Settings::default()
    };
    let engine = if settings.elsewhere { elsewhere::in_one_order(engine) } else { engine };
    Ok((engine, table(settings.rank, all)?))
}

fn wrong(error: &ScheduleError) -> RuntimeError {
    match error {
        ScheduleError::Field { field, value, why, hint } => {
            RuntimeError::setting(field, value, why, hint)
        }
        other => RuntimeError::setting("policy", "...", other.to_string(), "another policy"),
    }
}

/// The plans for an operation over all dimensions.
pub(crate) fn of(
    settings: &Settings,
    operation: Operation,
) -> Result<Vec<CollectivePlan>, RuntimeError> {
    let mut candidates = candidates(settings, operation);
    if settings.elsewhere {
        // Whoever carries the data has its own.
        candidates.truncate(1);
    }
    let mut best: Vec<(Bytes, usize)> = Vec::new();
    for power in (10..=32).step_by(2) {
        let size = Bytes::new(1 << power);
        // When it is over, in tenths: another than the usual counts for more.
        let mut quickest: Option<(u128, usize)> = None;
        let mut failed = None;
        for (place, algorithms) in candidates.iter().enumerate() {
            let request =
                Request { algorithms: algorithms.clone(), ..request(settings, operation, size) };
            let counted = |time: Time| u128::from(time.as_ps()) * if place == 0 { 9 } else { 10 };
            match predicted(&request).map(counted) {
                Ok(time) if quickest.is_none_or(|(least, _)| time < least) => {
                    quickest = Some((time, place));
                }
                Ok(_) => {}
                // This one does not go there; the first is what the settings say.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let place = match (quickest, failed) {
            (Some((_, place)), _) => place,
            (None, Some(error)) => return Err(wrong(&error)),
            (None, None) => continue,
        };
        let cut = |size: Bytes| chunks(settings, size);
        if best.last().is_none_or(|(last, other)| *other != place || cut(*last) != cut(size)) {
            best.push((size, place));
        }
    }
    let mut plans = Vec::new();
    for (i, (size, place)) in best.iter().enumerate() {
        let algorithms = candidates[*place].clone();
        let request = Request { algorithms, ..request(settings, operation, *size) };
        let mut plan = plan(&request).map_err(|error| wrong(&error))?;
        let from = if i == 0 { 1 } else { size.count() / 2 };
        let to = best.get(i + 1).map_or(u64::MAX, |(next, _)| next.count() / 2 - 1);
        plan.sizes = Some(SizeRange { from: Bytes::new(from), to: Bytes::new(to) });
        plans.push(plan);
    }
    Ok(plans)
}

/// One rank's table of plans.
pub(crate) fn table(
    rank: u32,
    plans: impl IntoIterator<Item = CollectivePlan>,
) -> Result<Plans, RuntimeError> {
    let mut table = Plans::new(rank, ROOM);
    for plan in plans {
        table.add(plan).map_err(|error| RuntimeError::Engine(error.into()))?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::local;

    #[test]
    fn every_size_has_a_plan_and_little_goes_in_few_steps() {
        for operation in Operation::ALL {
            for sizes in [&[4][..], &[2, 3], &[2, 2, 2]] {
                let plans = of(&local(0, sizes), operation).expect("plans");
                let (first, last) = (&plans[0], &plans[plans.len() - 1]);
                assert_eq!(first.holds_for().from, Bytes::new(1));
                assert_eq!(last.holds_for().to, Bytes::new(u64::MAX));
                let next = |pair: &[CollectivePlan]| {
                    pair[0].holds_for().to.count() + 1 == pair[1].holds_for().from.count()
                };
                assert!(plans.windows(2).all(next));
                assert!(table(0, plans).is_ok());
            }
        }
        let small = &of(&local(0, &[4]), Operation::AllReduce).expect("plans")[0];
        assert_eq!(small.algorithms, ["direct"]);
    }

    #[test]
    fn what_the_settings_name_is_what_is_planned() {
        let mut settings = local(0, &[2, 2]);
        settings.algorithms = Some(vec!["ring".to_owned(), "direct".to_owned()]);
        let plans = of(&settings, Operation::AllReduce).expect("plans");
        assert!(plans.iter().all(|plan| plan.algorithms == ["ring", "direct"]));
        let chunks: Vec<usize> = plans.iter().map(|plan| plan.chunks.len()).collect();
        assert_eq!(chunks, [1, 4, 16]);
        settings.policy = "fastest".to_owned();
        let error = of(&settings, Operation::AllReduce).expect_err("no such policy");
        assert!(error.to_string().contains("fastest") && error.hint().is_some());
    }
}
