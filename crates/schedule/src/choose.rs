//! The algorithm of each dimension, chosen for each collective by its size.
//!
//! `auto` leaves it to be chosen. On a dimension that says which algorithm was measured to be the fastest
//! (`fastest` of a fabric file) that one is taken, by the bytes of the collective that reach the dimension:
//! those of its buffer, which a reduce-scatter on each dimension before it has divided. Elsewhere the
//! schedule is made with each algorithm in turn, first with one and the same on all dimensions that are
//! open, then with another on one of them for as long as that ends earlier, and run as the planner runs it
//! ([`crate::evaluate`]); what ends first is taken, of equals the usual one, then the one of fewest steps, then the first of the
//! list. So a collective alone is never later in `dims` than with any one name on all of these dimensions. Under a policy
//! whose planning is expensive, the choice is made under `baseline`.
//!
//! What is chosen is part of the plan, so every network model and the runtime carry out the same.
//!
//! Not modelled: what it costs to talk with many at once (see `allrail_collective::model`), for which the model
//! may prefer `direct` on a large switch to what is measured there; a caller may ask for more than a better time
//! ([`Preference`]). A measured algorithm that does not do the stages of a schedule (a tree, where several
//! dimensions share an all-reduce) leaves the dimension to the model.

use std::borrow::Cow;

use allrail_collective::model::topology_aware;
use allrail_collective::{Algorithm, Operation, algorithm};
use allrail_core::{Bytes, DimensionId};

use crate::algorithms::{Algorithms, Choice};
use crate::error::ScheduleError;
use crate::made;
use crate::request::Request;
use crate::scheduled;

impl Request {
    /// The name of the algorithm on each dimension; chosen where that is left open.
    ///
    /// # Errors
    /// If the list is not as long as the fabric's; if nothing fits what is open.
    pub fn algorithm_names(&self) -> Result<Vec<String>, ScheduleError> {
        let said = self.said();
        if said.is_open() {
            return choose(self, &said, Preference::default());
        }
        self.names()
    }

    /// The same with every algorithm named, and merged where that is the only way.
    ///
    /// # Errors
    /// As [`Self::algorithm_names`].
    pub fn decided(&self) -> Result<Cow<'_, Self>, ScheduleError> {
        let merged = made::with_made(self.merged())?;
        if !merged.said().is_open() {
            return Ok(made::in_free_chunks(merged));
        }
        merged.validate()?;
        let algorithms = Some(merged.algorithm_names()?.into());
        let named = Self { algorithms, ..merged.into_owned() };
        let named = made::in_free_chunks(Cow::Owned(named));
        Ok(Cow::Owned(named.merged().into_owned()))
    }
}

/// What is asked of an algorithm beside a better time than the usual one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// It is taken below so many tenths of the usual one's time.
    pub tenths: u32,
    /// Whether it may do an all-reduce without being able to do its halves.
    pub whole: bool,
}

impl Default for Preference {
    /// Nothing more.
    fn default() -> Self {
        Self { tenths: 10, whole: true }
    }
}

/// The algorithm of every dimension of a request: as `said`, and chosen where that is `auto`.
///
/// # Errors
/// A name that is wrong; nothing fits: says why the usual ones do not.
pub fn choose(
    request: &Request,
    said: &Algorithms,
    preference: Preference,
) -> Result<Vec<String>, ScheduleError> {
    let said = said.each(request.fabric.dimensions.len())?;
    let spanned = request.spanned();
    let parts = request.stage_operations();
    let mut open = Vec::new();
    let mut usual = Vec::with_capacity(said.len());
    for (id, choice) in request.fabric.ids().zip(said) {
        let dimension = request.fabric.dimension(id);
        let otherwise = topology_aware(dimension.kind, request.operation);
        usual.push(match choice {
            Choice::Named(name) => name,
            Choice::Auto if !spanned.contains(&id) => otherwise.to_owned(),
            Choice::Auto => match measured(request, id, &spanned, parts) {
                Some(name) => name.to_owned(),
                None => {
                    open.push(id);
                    otherwise.to_owned()
                }
            },
        });
    }
    if open.is_empty() {
        return Ok(usual);
    }
    let mut search = Search::new(request, usual, preference)?;
    let mut candidates: Vec<&dyn Algorithm> = algorithm::ALL
        .iter()
        .copied()
        .filter(|one| {
            let does = |part| one.operations().contains(part);
            parts.iter().all(does) || preference.whole && does(&request.operation)
        })
        .collect();
    candidates.sort_by_key(|one| {
        let sizes = open.iter().map(|id| request.fabric.dimension(*id).size);
        sizes.map(|size| steps(*one, parts, request.operation, size)).sum::<u64>()
    });
    let mut candidates: Vec<&str> = candidates.into_iter().map(Algorithm::tag).collect();
    candidates.extend(request.programs.get(made::TREES).map(|_| made::TREES));
    for tag in &candidates {
        search.attempt(&open, tag);
    }
    while open.len() > 1 {
        let before = search.best.clone();
        for id in &open {
            for tag in &candidates {
                search.attempt(&[*id], tag);
            }
        }
        if search.best == before {
            break;
        }
    }
    search.best.map(|(_, names)| names)
}

/// The steps of the parts that an algorithm does, or of the whole.
fn steps(one: &dyn Algorithm, parts: &[Operation], whole: Operation, ranks: u32) -> u64 {
    let does = |part: &Operation| algorithm::check(one, *part, ranks).is_ok();
    let cost = |part: &Operation| u64::from(one.cost(*part, ranks).steps);
    match parts.iter().filter(|part| does(part)).map(cost).sum() {
        0 if does(&whole) => cost(&whole),
        sum => sum,
    }
}

/// What was measured to be the fastest for the bytes of a collective that reach a dimension, if it does what
/// the schedule asks of it.
fn measured<'a>(
    request: &'a Request,
    id: DimensionId,
    spanned: &[DimensionId],
    parts: &[Operation],
) -> Option<&'a str> {
    let size = |id: &DimensionId| u64::from(request.fabric.dimension(*id).size);
    let halves = [Operation::ReduceScatter, Operation::AllGather];
    let divided = parts.iter().any(|part| halves.contains(part));
    let before: u64 = spanned.iter().take_while(|other| **other != id).map(size).product();
    let bytes = Bytes::new(request.size.count() / if divided { before } else { 1 });
    let name = request.fabric.dimension(id).fastest(request.operation.tag(), bytes)?;
    let algorithm = algorithm::named(name).ok()?;
    let does = |part| algorithm.operations().contains(part);
    (parts.iter().all(does) || spanned.len() == 1 && does(&request.operation)).then_some(name)
}

/// The best so far.
struct Search {
    request: Request,
    tenths: u32,
    usual: Vec<String>,
    /// When it ends, in tenths, and its names; why the usual ones do not go, until others do.
    best: Result<(u128, Vec<String>), ScheduleError>,
}

impl Search {
    fn new(
        request: &Request,
        usual: Vec<String>,
        preference: Preference,
    ) -> Result<Self, ScheduleError> {
        let mut request = request.clone();
        if request.plugins.named(&request.policy)?.is_expensive() {
            "baseline".clone_into(&mut request.policy);
        }
        name(&mut request, &usual);
        let time = time(&request);
        let best = time.map(|time| (time * u128::from(preference.tenths), usual.clone()));
        Ok(Self { request, tenths: preference.tenths, usual, best })
    }

    /// The best with `tag` on some dimensions, if that is better.
    fn attempt(&mut self, on: &[DimensionId], tag: &str) {
        let mut names = self.best.as_ref().map_or(&self.usual, |(_, names)| names).clone();
        for id in on {
            tag.clone_into(&mut names[id.index()]);
        }
        // An all-reduce that ends in a whole one is for who names its algorithm.
        name(&mut self.request, &names);
        let last = self.request.spanned().last().copied();
        if self.request.ends_whole() && last.is_some_and(|id| on.contains(&id)) {
            return;
        }
        // One that does not go there is none.
        let Ok(time) = time(&self.request) else { return };
        let counted = time * u128::from(if names == self.usual { self.tenths } else { 10 });
        if self.best.as_ref().is_ok_and(|(least, _)| *least <= counted) {
            return;
        }
        self.best = Ok((counted, names));
    }
}

fn name(request: &mut Request, names: &[String]) {
    request.algorithms = Some(names.to_vec().into());
}

/// When the schedule ends, in picoseconds.
fn time(request: &Request) -> Result<u128, ScheduleError> {
    request.validate()?;
    scheduled::finish(&made::in_free_chunks(request.merged())).map(|time| u128::from(time.as_ps()))
}
