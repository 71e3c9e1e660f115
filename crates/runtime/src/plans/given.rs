//! The plans that are given with a node's settings: whether they are for its fabric, and the sizes that each holds
//! for.

use allrail_collective::{CollectivePlan, Operation, SizeRange};
use allrail_core::Bytes;
use allrail_fabric::Dimension;
use serde_json::Value;

use crate::error::RuntimeError;
use crate::settings::Settings;

/// The plans that were given for an operation, by size, each with the sizes that it holds for.
pub(super) fn given(
    settings: &Settings,
    operation: Operation,
) -> Result<Vec<CollectivePlan>, RuntimeError> {
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
