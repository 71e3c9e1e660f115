//! `search`: local search over the order of every chunk.
//!
//! Themis fixes each chunk's order by the bytes that the dimensions have been given, one chunk after
//! the other, and gathers in reverse. What it does not see is *when* a dimension idles: at the
//! start, at the end, and where a chunk arrives late. This scheduler starts from the better of Themis'
//! answer and the baseline's and runs it; then, again and again, it gives one chunk another order for its reduce-scatters, its
//! all-gathers or both (they need not mirror each other).
//!
//! The first half of the tries keeps a change unless it makes the schedule slower by more than
//! a slack that shrinks to nothing (threshold accepting, Dueck and Scheuer 1990). What comes out fits
//! the model that it was searched in, and may suffer elsewhere. So the rest of the tries start from
//! the best schedule and keep a change only if it lowers the weighted sum of the times on the fabric
//! as described, on one that sends message by message through switches that store what they pass on
//! (as the network model `links` does), and on three whose bandwidths and latencies are off by up to a tenth, while the first of these stays
//! within 0.3 % of the best and is never slower than what it started from.
//!
//! So it never ends after Themis or the baseline under the order that it searches. A planned order may
//! be fixed first come, first served as well, and with few chunks of one route that is often better
//! than anything searched by smallest-first: where theirs is, it is taken. A test holds that, whatever
//! the fabric, a planned schedule never ends after either of theirs under any of these orders.
//!
//! In a network model that carries messages none of that is known to hold: what ends first in the model of `dims`
//! may end later there. So for such a model the search gives *finalists*, which are run in it: its own
//! schedule, one that was searched message by message from the best of all that are known, Themis' and the
//! baseline's.
//!
//! The number of tries is fixed by the number of stages, not by a clock, and the draws come from
//! the scenario's seed: the same input gives the same plan everywhere. Orders other than
//! smallest-first and planned are searched with the plain evaluator and without the second part.

mod conditions;
mod fast;
mod walk;

use allrail_collective::Stage;
use allrail_core::{DimensionId, Time};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::baseline::Baseline;
use super::themis::Themis;
use super::{ChunkScheduler, Problem};
use crate::error::ScheduleError;
use crate::evaluate::{self, Work};
use crate::queue::{self, Order};

pub use conditions::expected_in_links;

use conditions::{buffers, by_message, clocks};
use fast::Fast;
use walk::{Clocks, Score, Walk, work};

pub(super) struct Search;

impl ChunkScheduler for Search {
    fn tag(&self) -> &'static str {
        "search"
    }

    fn formerly(&self) -> Option<&str> {
        Some("allrail")
    }

    fn about(&self) -> &'static str {
        "local search from Themis' schedule or the baseline's: both halves of every chunk get their own order"
    }

    fn version(&self) -> u32 {
        5
    }

    fn is_expensive(&self) -> bool {
        true
    }

    fn default_order(&self) -> Order {
        Order::PLANNED
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        let rivals = rivals(problem)?;
        let orders = permutations(problem.dimensions);
        if orders.len() == 1 {
            return Ok(rivals.into_iter().next().unwrap_or_default());
        }
        searched(problem, rivals, &orders)
    }

    fn rivals(&self) -> &'static [&'static str] {
        &["baseline", "themis"]
    }

    fn finalists(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Vec<Stage>>>, ScheduleError> {
        let mut finalists = rivals(problem)?;
        let orders = permutations(problem.dimensions);
        if orders.len() > 1 {
            finalists.insert(0, searched(problem, finalists.clone(), &orders)?);
            finalists.extend(by_messages(problem, &finalists, &orders)?);
        }
        let mut different: Vec<Vec<Vec<Stage>>> = Vec::new();
        for schedule in finalists {
            if !different.contains(&schedule) {
                different.push(schedule);
            }
        }
        Ok(different)
    }
}

/// Themis' schedule and the baseline's.
fn rivals(problem: &Problem<'_>) -> Result<Vec<Vec<Vec<Stage>>>, ScheduleError> {
    Ok(vec![Themis.schedule(problem)?, Baseline.schedule(problem)?])
}

/// What is found in the model of `dims`.
fn searched(
    problem: &Problem<'_>,
    mut rivals: Vec<Vec<Vec<Stage>>>,
    orders: &[Vec<DimensionId>],
) -> Result<Vec<Vec<Stage>>, ScheduleError> {
    let start = best_of(problem, rivals.clone(), &[problem.order.while_planning()])?;
    let mut rng = Pcg64Mcg::seed_from_u64(problem.seed);
    let mut search = Walk::new(problem, start, orders, |work| clocks(problem, work, &mut rng))?;
    search.run(&mut rng)?;
    rivals.insert(0, search.best);
    best_of(problem, rivals, &problem.order.fixed_by())
}

/// What is found message by message, from the best of `known`; nothing where schedules have no fast clock.
fn by_messages(
    problem: &Problem<'_>,
    known: &[Vec<Vec<Stage>>],
    orders: &[Vec<DimensionId>],
) -> Result<Option<Vec<Vec<Stage>>>, ScheduleError> {
    let clock = |work: &Work| {
        let clock = Fast::new(work, buffers(problem), by_message(problem), problem.active_chunks)?;
        Some(vec![(1, clock)])
    };
    let mut best: Option<(u64, Walk<'_>)> = None;
    for schedule in known {
        let mut walk = Walk::new(problem, schedule.clone(), orders, clock)?;
        if matches!(walk.clocks, Clocks::Plain(_)) {
            return Ok(None);
        }
        let time = walk.score(Score::UNLIMITED, false).map_or(u64::MAX, |score| score.time);
        if best.as_ref().is_none_or(|(least, _)| time < *least) {
            best = Some((time, walk));
        }
    }
    let Some((_, mut walk)) = best else { return Ok(None) };
    let mut rng = Pcg64Mcg::seed_from_u64(problem.seed);
    walk.accept(&mut rng)?;
    Ok(Some(walk.best))
}

/// The schedule that ends first, each under the best of `orders`; of equal ones, the first.
fn best_of(
    problem: &Problem<'_>,
    schedules: Vec<Vec<Vec<Stage>>>,
    orders: &[Order],
) -> Result<Vec<Vec<Stage>>, ScheduleError> {
    let mut best: Option<(Time, Vec<Vec<Stage>>)> = None;
    for schedule in schedules {
        let work = work(problem, &schedule)?;
        let ends = orders.iter().map(|order| {
            let mut queues = queue::queues(*order, problem.model.dimensions(), &[]);
            evaluate::finish(&work, &mut queues, problem.active_chunks)
        });
        let Some(end) = ends.min() else { continue };
        if best.as_ref().is_none_or(|(time, _)| end < *time) {
            best = Some((end, schedule));
        }
    }
    Ok(best.map(|(_, schedule)| schedule).unwrap_or_default())
}

/// Every order of the dimensions, lexicographically.
pub(crate) fn permutations(items: &[DimensionId]) -> Vec<Vec<DimensionId>> {
    if items.len() <= 1 {
        return vec![items.to_vec()];
    }
    let mut all = Vec::new();
    for (i, first) in items.iter().enumerate() {
        let rest: Vec<DimensionId> = [&items[..i], &items[i + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|tail| {
            let mut order = vec![*first];
            order.extend(tail);
            order
        }));
    }
    all
}
