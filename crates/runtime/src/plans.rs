//! The plans of a node: given with its settings or made from them, alike on every rank, for every size.
//!
//! Where no algorithm is named, for each size the one is taken that the stage model predicts to be the quickest
//! (so, too, for operations that the one that is named does not do): few steps for little data, few bytes for
//! much. Sizes are tried from 1 KiB to 4 GiB, four times as large each; the one that is usual on the links of
//! each dimension is left only for what is a tenth quicker, as the model does not know what it costs to talk with
//! many at once; among at most four ranks, who are not many, for whatever is quicker. There a direct exchange, of
//! the fewest steps, was measured to take an eighth less of the CPU's time than halving and doubling, and 3-7 %
//! less time for 25 MB at 1 Gb/s: each step costs its threads a wake-up. A plan holds from half-way (a factor of
//! two) below the first that it was the best for.
//!
//! So does a plan that is given and names no sizes; the largest holds for all that is larger. Where no given plan
//! holds, the node makes its own.

use allrail_collective::rank::Plans;
use allrail_collective::{
    CollectiveError, CollectivePlan, DimensionSet, Operation, SizeRange, algorithm,
};
use allrail_core::{Bytes, DimensionId, Time};
use allrail_engine::Ordering;
use allrail_engine::engine;
use allrail_fabric::Dimension;
use allrail_schedule::chunk::{self, Composition, Parameters};
use allrail_schedule::planner::schedule;
use allrail_schedule::{Request, ScheduleError, evaluate, plan, queue};
use serde_json::Value;

use crate::{RuntimeError, Settings, elsewhere};

/// How many parts of plans, one a size, are kept.
const ROOM: usize = 1024;

/// Among so many ranks of a dimension it costs nothing to talk with all at once.
const FEW: u32 = 4;

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
    let known = chunk::Plugins::default();
    let composes =
        known.named(&settings.policy).is_ok_and(|policy| policy.composes(Composition::Merged));
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

/// How long an operation of this size takes, in the model.
pub(crate) fn time(
    settings: &Settings,
    operation: Operation,
    size: Bytes,
) -> Result<Time, RuntimeError> {
    predicted(&request(settings, operation, size)).map_err(|error| wrong(&error))
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
        named_calls: settings.named_calls,
        ..engine::Settings::default()
    };
    let engine = if settings.elsewhere { elsewhere::in_one_order(engine) } else { engine };
    Ok((engine, table(settings.rank, all)?))
}

pub(crate) fn wrong(error: &ScheduleError) -> RuntimeError {
    match error {
        ScheduleError::Field { field, value, why, hint } => {
            RuntimeError::setting(field, value, why, hint)
        }
        other => {
            RuntimeError::setting("schedule.policy", "...", other.to_string(), "another policy")
        }
    }
}

/// The plans for an operation over all dimensions.
pub(crate) fn of(
    settings: &Settings,
    operation: Operation,
) -> Result<Vec<CollectivePlan>, RuntimeError> {
    let given = given(settings, operation)?;
    let mut all = Vec::new();
    for plan in made(settings, operation)? {
        let mut rest = vec![plan.holds_for()];
        for other in given.iter().map(CollectivePlan::holds_for) {
            rest = rest.into_iter().flat_map(|range| without(range, other)).collect();
        }
        let cut = |sizes: SizeRange| {
            // A plan's own size is one that it holds for.
            let size = plan.size.clamp(sizes.from, sizes.to);
            let whole = CollectivePlan { sizes: Some(plan.holds_for()), ..plan.clone() };
            Ok(CollectivePlan { sizes: Some(sizes), ..whole.for_size(size)? })
        };
        let cut: Result<Vec<_>, CollectiveError> = rest.into_iter().map(cut).collect();
        all.extend(cut.map_err(|error| wrong(&error.into()))?);
    }
    all.extend(given);
    all.sort_by_key(|plan| plan.holds_for().from);
    Ok(all)
}

/// What of `range` is not in `other`.
fn without(range: SizeRange, other: SizeRange) -> impl Iterator<Item = SizeRange> {
    let below = Bytes::new(other.from.count().saturating_sub(1)).min(range.to);
    let above = Bytes::new(other.to.count().saturating_add(1)).max(range.from);
    let last = other.to == Bytes::new(u64::MAX);
    let rest = [(range.from, below, other.from <= range.from), (above, range.to, last)];
    rest.into_iter()
        .filter(|(from, to, nothing)| from <= to && !nothing)
        .map(|(from, to, _)| SizeRange { from, to })
}

/// The plans that were given for an operation, by size, each with the sizes that it holds for.
fn given(settings: &Settings, operation: Operation) -> Result<Vec<CollectivePlan>, RuntimeError> {
    check_given(settings)?;
    let of_it = settings.plans.iter().filter(|plan| plan.operation == operation);
    let mut plans: Vec<CollectivePlan> = of_it.cloned().collect();
    plans.sort_by_key(|plan| (plan.size, plan.holds_for().from));
    let sizes: Vec<Bytes> = plans.iter().map(|plan| plan.size).collect();
    let from = |plan: &CollectivePlan| Bytes::new((plan.size.count() / 2).max(1));
    let starts: Vec<Bytes> =
        plans.iter().map(|plan| plan.sizes.map_or(from(plan), |sizes| sizes.from)).collect();
    for (i, plan) in plans.iter_mut().enumerate().filter(|(_, plan)| plan.sizes.is_none()) {
        let before = i.checked_sub(1).map_or(0, |i| sizes[i].count());
        let after = starts.get(i + 1).map_or(u64::MAX, |next| next.count() - 1);
        let from = from(plan).max(Bytes::new(before.saturating_add(1)));
        plan.sizes = Some(SizeRange { from, to: Bytes::new(after).max(plan.size) });
    }
    for pair in plans.windows(2) {
        let (one, next) = (pair[0].holds_for(), pair[1].holds_for());
        if next.from <= one.to || pair[0].size == pair[1].size {
            let why = format!("two plans for {operation} hold for it: those of {one} and {next}");
            let hint = "keep one of them, or give both `sizes` that do not overlap";
            return Err(RuntimeError::setting("plan", next.from, why, hint));
        }
    }
    Ok(plans)
}

/// The largest size of an all-reduce that a plan was given for.
pub(crate) fn largest_all_reduce(settings: &Settings) -> Option<Bytes> {
    let of_it = settings.plans.iter().filter(|plan| plan.operation == Operation::AllReduce);
    of_it.map(|plan| plan.size).max()
}

/// Refuses plans for another fabric, or over a part of it.
pub(crate) fn check_given(settings: &Settings) -> Result<(), RuntimeError> {
    const ANEW: &str = "make it anew with `allrail plan`, for the fabric and the ranks of this job";
    let ours = settings.fabric().dimensions;
    let sizes = |all: &[Dimension]| {
        all.iter().map(|one| one.size.to_string()).collect::<Vec<_>>().join("×")
    };
    for plan in &settings.plans {
        let theirs = &plan.fabric.dimensions;
        if sizes(theirs) != sizes(&ours) {
            let (ranks, size) = (settings.ranks, sizes(&ours));
            let why = format!("the plan is for so many ranks, and this job has {size} = {ranks}");
            return Err(RuntimeError::setting("plan.fabric", sizes(theirs), why, ANEW));
        }
        for (d, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            let Some((key, theirs, ours)) = differs(theirs, ours) else { continue };
            let field = format!("plan.fabric.dimensions[{d}].{key}");
            let why = format!("the plan was made for it, and the job's fabric has {ours}");
            return Err(RuntimeError::setting(field, theirs, why, ANEW));
        }
        if plan.dimensions.len() != ours.len() {
            let names: Vec<String> = plan.dimensions.iter().map(|one| one.name()).collect();
            let why = "the plan spans these dimensions only, and ranks exchange over all";
            return Err(RuntimeError::setting("plan.dimensions", names.join(", "), why, ANEW));
        }
        plan.check()
            .map_err(|error| RuntimeError::setting("plan", plan.size, error.to_string(), ANEW))?;
    }
    Ok(())
}

/// The first key in which two dimensions differ, with both values.
fn differs(one: &Dimension, other: &Dimension) -> Option<(String, Value, Value)> {
    let (one, other) = (serde_json::to_value(one).ok()?, serde_json::to_value(other).ok()?);
    let (Value::Object(one), Value::Object(mut other)) = (one, other) else { return None };
    for (key, value) in one {
        let theirs = other.remove(&key).unwrap_or_default();
        if theirs != value {
            return Some((key, value, theirs));
        }
    }
    other.into_iter().next().map(|(key, value)| (key, Value::Null, value))
}

/// The plans that the node makes, for every size.
fn made(settings: &Settings, operation: Operation) -> Result<Vec<CollectivePlan>, RuntimeError> {
    let mut candidates = candidates(settings, operation);
    if settings.elsewhere {
        // Whoever carries the data has its own.
        candidates.truncate(1);
    }
    let few = settings.dimensions.iter().all(|dimension| dimension.size <= FEW);
    let mut best: Vec<(Bytes, usize)> = Vec::new();
    for power in (10..=32).step_by(2) {
        let size = Bytes::new(1 << power);
        // When it is over, in tenths: another than the usual counts for more.
        let mut quickest: Option<(u128, usize)> = None;
        let mut failed = None;
        for (place, algorithms) in candidates.iter().enumerate() {
            let request =
                Request { algorithms: algorithms.clone(), ..request(settings, operation, size) };
            let weight = if place == 0 && !few { 9 } else { 10 };
            let counted = |time: Time| u128::from(time.as_ps()) * weight;
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
    fn what_is_given_is_carried_out_where_it_holds() {
        let plain = local(0, &[2, 2]);
        let own = of(&plain, Operation::AllReduce).expect("plans");
        let at = |megabytes: u64| {
            let size = Bytes::new(megabytes << 20);
            let found = own.iter().find(|plan| plan.holds_for().contains(size)).expect("one");
            CollectivePlan {
                key: format!("given {megabytes}"),
                ..found.for_size(size).expect("cut")
            }
        };
        let with = |plans: Vec<CollectivePlan>| Settings { plans, ..plain.clone() };
        let all = of(&with(vec![at(64), at(4)]), Operation::AllReduce).expect("plans");
        let key = |size: u64| {
            let plan = all.iter().find(|plan| plan.holds_for().contains(Bytes::new(size)));
            plan.map(|plan| plan.key.as_str()).expect("every size has a plan")
        };
        assert_eq!([key(2 << 20), key(4 << 20), key(31 << 20)], ["given 4"; 3]);
        assert_eq!([key(32 << 20), key(64 << 20), key(1 << 40)], ["given 64"; 3]);
        assert!([1, 1 << 10, (2 << 20) - 1].iter().all(|size| !key(*size).starts_with("given")));
        assert!(all.windows(2).all(|pair| {
            pair[0].holds_for().to.count() + 1 == pair[1].holds_for().from.count()
        }));
        assert!(table(0, all).is_ok());
        // Nothing was given for the others.
        assert_eq!(
            of(&with(vec![at(4)]), Operation::AllGather).expect("plans"),
            of(&plain, Operation::AllGather).expect("plans")
        );
        let range = SizeRange { from: Bytes::new(1 << 20), to: Bytes::new(8 << 20) };
        let only = CollectivePlan { sizes: Some(range), ..at(4) };
        let all = of(&with(vec![only.clone()]), Operation::AllReduce).expect("plans");
        let held: Vec<SizeRange> =
            all.iter().filter(|one| one.key == only.key).map(CollectivePlan::holds_for).collect();
        assert_eq!(held, [range]);
        for clash in [vec![at(4), at(4)], vec![only.clone(), at(8)]] {
            let error = of(&with(clash), Operation::AllReduce).expect_err("two for one size");
            assert!(error.to_string().starts_with("`plan`"), "{error}");
        }
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
