//! The plans that a node makes itself, for every size, with the algorithms that its settings name or leave open.

use std::collections::BTreeSet;

use allrail_collective::{CollectivePlan, Operation, SizeRange, algorithm};
use allrail_core::{Bytes, Time};
use allrail_schedule::choose::{Preference, choose};
use allrail_schedule::chunk::{self, Composition, Parameters};
use allrail_schedule::planner::finish;
use allrail_schedule::{Algorithms, Request, ScheduleError, plan};

use crate::error::RuntimeError;
use crate::settings::Settings;

/// Among so many ranks of a dimension it costs nothing to talk with all at once.
const FEW: u32 = 4;

pub(super) fn request(settings: &Settings, operation: Operation, size: Bytes) -> Request {
    Request {
        fabric: settings.fabric(),
        operation,
        size,
        dimensions: Vec::new(),
        policy: settings.policy.clone(),
        order: settings.order,
        chunks: chunks(settings, size),
        algorithms: said(settings, operation, Some(size)).cloned(),
        programs: settings.programs.clone(),
        active_chunks: None,
        endpoint_delay: Time::ZERO,
        parameters: Parameters {
            composition: composition(settings),
            threshold: settings.threshold,
            ..Parameters::default()
        },
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
    finish(&request(settings, operation, size)).map_err(|error| RuntimeError::schedule(&error))
}

/// What the settings say of algorithms. They are named for all-reduces; another operation may not be among what
/// they do, and then nothing is said of it; nor where a program is for another operation, or for other sizes.
fn said(settings: &Settings, operation: Operation, size: Option<Bytes>) -> Option<&Algorithms> {
    let does = |tag: &str| match settings.programs.get(tag) {
        Some(own) => {
            let fits = size.is_none_or(|size| own.check_size(size).is_ok());
            own.operation() == operation && fits
        }
        None => {
            let known = algorithm::named(tag);
            operation == Operation::AllReduce
                || known.is_ok_and(|one| one.operations().contains(&operation))
        }
    };
    settings.algorithms.as_ref().filter(|said| said.named().all(does))
}

/// What another algorithm than the usual has to be, where the settings leave it open.
fn preference(settings: &Settings) -> Preference {
    let few = settings.dimensions.iter().all(|dimension| dimension.size <= FEW);
    Preference { tenths: if few { 10 } else { 9 }, whole: false }
}

/// The algorithms of an operation of a size.
pub(super) fn names(
    settings: &Settings,
    operation: Operation,
    size: Bytes,
) -> Result<Vec<String>, ScheduleError> {
    let said = said(settings, operation, Some(size));
    let request = request(settings, operation, size);
    match said {
        // Whoever carries the data has its own.
        None if !settings.elsewhere => choose(&request, &Algorithms::Auto, preference(settings)),
        _ => request.decided()?.algorithm_names(),
    }
}

/// The plans that the node makes, for every size.
pub(super) fn made(
    settings: &Settings,
    operation: Operation,
) -> Result<Vec<CollectivePlan>, RuntimeError> {
    let grid: Vec<u64> = (10..=32).step_by(2).map(|power| 1 << power).collect();
    let named =
        by_size(settings, operation, &grid).map_err(|error| RuntimeError::schedule(&error))?;
    // From where on it is cut as at a size of the grid.
    let mut cuts: Vec<(u64, u64)> = vec![(1, grid[0])];
    for pair in grid.windows(2) {
        let cut = |size: u64| chunks(settings, Bytes::new(size));
        if cut(pair[0]) != cut(pair[1]) {
            cuts.push((pair[1] / 2, pair[1]));
        }
    }
    let starts: BTreeSet<u64> =
        cuts.iter().map(|(from, _)| *from).chain(named.iter().map(|(from, _)| *from)).collect();
    let ends = starts.iter().skip(1).map(|next| next - 1).chain([u64::MAX]);
    let plan = |(from, to): (u64, u64)| {
        let cut = cuts.iter().rev().find(|(start, _)| *start <= from).map_or(from, |(_, at)| *at);
        let names = named.iter().rev().find(|(start, _)| *start <= from);
        let algorithms = names.map(|(_, names)| names.clone().into());
        let request = Request {
            algorithms,
            chunks: chunks(settings, Bytes::new(cut)),
            ..request(settings, operation, Bytes::new(cut.clamp(from, to)))
        };
        let sizes = Some(SizeRange { from: Bytes::new(from), to: Bytes::new(to) });
        Ok(CollectivePlan { sizes, ..plan(&request)? })
    };
    let plans: Result<Vec<_>, ScheduleError> = starts.iter().copied().zip(ends).map(plan).collect();
    plans.map_err(|error| RuntimeError::schedule(&error))
}

/// The algorithms of all sizes: from each size on those beside it.
fn by_size(
    settings: &Settings,
    operation: Operation,
    grid: &[u64],
) -> Result<Vec<(u64, Vec<String>)>, ScheduleError> {
    let mut tried: BTreeSet<u64> = grid.iter().copied().collect();
    let mut inside = 1;
    for one in &settings.dimensions {
        for point in one.fastest.values().flatten() {
            // What was measured switches there and nowhere near.
            let from = point.from.count().saturating_mul(inside).clamp(2, u64::MAX);
            tried.extend([from - 1, from]);
        }
        inside *= u64::from(one.size);
    }
    let named = settings.algorithms.iter().flat_map(Algorithms::named);
    for range in named.filter_map(|name| settings.programs.get(name)?.sizes()) {
        let (from, to) = (range.from.count().max(2), range.to.count().max(1));
        tried.extend([from - 1, from, to, to.saturating_add(1)]);
    }
    let tenths =
        if said(settings, operation, None).is_some() { 10 } else { preference(settings).tenths };
    let usual = request(settings, operation, Bytes::new(1));
    let usual = Request { algorithms: None, ..usual }.algorithm_names()?;
    let counted = |names: &[String], size: u64| {
        let algorithms = Some(names.to_vec().into());
        let request = Request { algorithms, ..request(settings, operation, Bytes::new(size)) };
        let weight = if names == usual { tenths } else { 10 };
        Ok::<_, ScheduleError>(u128::from(finish(&request)?.as_ps()) * u128::from(weight))
    };
    let mut found: Vec<(u64, Vec<String>)> = Vec::new();
    let mut before = 0;
    for size in tried {
        let names = names(settings, operation, Bytes::new(size))?;
        match found.last() {
            None => found.push((1, names)),
            Some((_, last)) if *last != names => {
                let (mut below, mut from) = (before, size);
                while from - below > 1 {
                    let middle = below + (from - below) / 2;
                    if counted(&names, middle)? < counted(last, middle)? {
                        from = middle;
                    } else {
                        below = middle;
                    }
                }
                found.push((from, names));
            }
            Some(_) => {}
        }
        before = size;
    }
    Ok(found)
}
