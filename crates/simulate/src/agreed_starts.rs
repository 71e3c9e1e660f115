//! When collectives that stand by themselves start, where ranks agree on each first (`schedule.coordination`).
//!
//! All ranks ask for a collective at its time, each up to the skew later; it starts when all of them have agreed. The
//! collectives over the same dimensions are talked of by the ranks of one process group over these, of which there may
//! be several, all alike. Each has a plan of its own, so that nothing is fused.

use std::collections::BTreeMap;

use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::Fabric;
use serde_json::Value;

use crate::coordination::{Agreement, Collectives, Coordination, Counts};
use crate::error::SimulateError;
use crate::scenario::{Collective, CollectiveScenario, field};

/// What ranks have agreed on.
pub(crate) struct AgreedStarts {
    /// When each collective starts.
    pub(crate) starts: Vec<Time>,
    /// What all ranks said.
    pub(crate) counts: Counts,
}

/// When collectives start that ranks agree on; `None` where they do not.
///
/// # Errors
/// A setting is wrong, or of gradients: names its key.
pub(crate) fn agreed_starts(
    scenario: &CollectiveScenario,
) -> Result<Option<AgreedStarts>, SimulateError> {
    let Some(mut coordination) = read(scenario.schedule.coordination.as_ref())? else {
        return Ok(None);
    };
    coordination.settings.threshold = Bytes::default();
    coordination.collectives = Collectives::All;
    let mut starts: Vec<Time> = scenario.job.iter().map(|one| one.start).collect();
    let mut counts = Counts::default();
    let mut over: BTreeMap<Vec<DimensionId>, Vec<usize>> = BTreeMap::new();
    for (index, collective) in scenario.job.iter().enumerate() {
        over.entry(dimensions(&scenario.fabric, collective)).or_default().push(index);
    }
    for (spanned, mut members) in over {
        let size = |id: &DimensionId| u64::from(scenario.fabric.dimension(*id).size);
        let together: u64 = spanned.iter().map(size).product();
        if together < 2 {
            continue;
        }
        let ranks = u32::try_from(together).map_err(|_| {
            let why = "more than 4 billion ranks are too many to talk";
            field("schedule.coordination", together, why, "leave it out")
        })?;
        members.sort_by_key(|index| starts[*index]);
        let ask = |index: &usize| (scenario.job[*index].kind, scenario.job[*index].size);
        let asked: Vec<_> = members.iter().map(ask).collect();
        let mut agreement = coordination.agreement(&[ranks], &asked, asked.len(), scenario.seed)?;
        let agreed = when(&mut *agreement, members.iter().map(|index| starts[*index]));
        for (place, at) in agreed {
            starts[members[place as usize]] = at;
        }
        let alike = scenario.fabric.npus() / together;
        counts = counts + agreement.counts().times(alike);
    }
    Ok(Some(AgreedStarts { starts, counts }))
}

/// Submits what is asked for at these times, and returns when each, by its place, has been agreed.
fn when(agreement: &mut dyn Agreement, times: impl Iterator<Item = Time>) -> Vec<(u32, Time)> {
    for (place, time) in (0..).zip(times) {
        agreement.submit(time, 0, place);
    }
    let mut agreed = Vec::new();
    while let Some((at, places)) = agreement.next_event(Time::MAX) {
        agreed.extend(places.into_iter().map(|place| (place, at)));
    }
    agreed
}

/// The settings, if ranks agree on anything.
pub(crate) fn read(tree: Option<&Value>) -> Result<Option<Coordination>, SimulateError> {
    let Some(tree) = tree else { return Ok(None) };
    for (key, why) in [
        ("groups", "collectives that stand by themselves have no groups"),
        ("threshold", "collectives that stand by themselves are not fused"),
        ("collectives", "ranks agree on all that stand by themselves"),
    ] {
        if let Some(value) = tree.get(key) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let hint = "leave it out, or train a `workload`";
            return Err(field(format!("schedule.coordination.{key}"), value, why, hint));
        }
    }
    let coordination = Coordination::read(tree, &[])?;
    Ok(coordination.policy.is_some().then_some(coordination))
}

/// Which dimensions a collective spans, in their order.
fn dimensions(fabric: &Fabric, collective: &Collective) -> Vec<DimensionId> {
    let mut all = collective.dimensions.clone().unwrap_or_default();
    if all.is_empty() {
        all = fabric.ids().collect();
    }
    all.sort_unstable();
    all
}
