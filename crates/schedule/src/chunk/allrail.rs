//! `allrail`: local search over the order of every chunk.
//!
//! Themis fixes each chunk's order by the bytes that the dimensions have been given, one chunk after
//! the other, and gathers in reverse. What it does not see is *when* a dimension idles: at the
//! start, at the end, and where a chunk arrives late. This scheduler starts from Themis' answer and
//! runs it ([`crate::evaluate`]); then, again and again, it gives one chunk another order for its
//! reduce-scatters and another for its all-gathers (they need not mirror each other) and keeps the
//! change unless the schedule becomes slower. So it is never slower than Themis in the model that
//! it searches in. Equal times are kept too: the search walks along plateaus.
//!
//! The number of tries is fixed by the number of stages, not by a clock, and the draws come from
//! the scenario's seed: the same input gives the same plan everywhere. A schedule within 0.05 % of
//! the proven bound ([`crate::bound`]) ends the search early.

use allrail_collective::{Operation, Stage};
use allrail_core::{DimensionId, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::themis::Themis;
use super::{ChunkScheduler, Problem, stages};
use crate::bound;
use crate::error::ScheduleError;
use crate::evaluate::{self, Work};
use crate::queue::{self, Order};

pub(super) struct Allrail;

/// Tries for a small problem; a large one gets fewer, so that planning stays below a second.
const TRIES: usize = 4_000;
/// Stages evaluated in all.
const EFFORT: usize = 2_000_000;
/// A schedule this close to the bound is not worth improving.
const CLOSE_ENOUGH: f64 = 1.000_5;

impl ChunkScheduler for Allrail {
    fn tag(&self) -> &'static str {
        "allrail"
    }

    fn about(&self) -> &'static str {
        "local search from Themis' schedule: both halves of every chunk get their own order"
    }

    fn version(&self) -> u32 {
        1
    }

    fn is_expensive(&self) -> bool {
        true
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        let mut schedule = Themis.schedule(problem)?;
        let orders = permutations(problem.dimensions);
        if orders.len() == 1 {
            return Ok(schedule);
        }
        let mut work = Work::new(
            problem.model,
            problem.chunks.iter().copied().zip(schedule.iter().map(Vec::as_slice)),
        )?;
        let good_enough =
            bound::lower(problem.model, problem.operation, problem.dimensions, problem.chunks)?
                .as_us()
                * CLOSE_ENOUGH;
        let mut time = finish(problem, &work);
        let mut rng = Pcg64Mcg::seed_from_u64(problem.seed);
        let tries = TRIES.min(EFFORT / work.tasks().len().max(1)).max(1);
        for _ in 0..tries {
            if time.as_us() <= good_enough {
                break;
            }
            let chunk = rng.random_range(0..schedule.len());
            let scatter = &orders[rng.random_range(0..orders.len())];
            let gather = if problem.operation == Operation::AllReduce {
                orders[rng.random_range(0..orders.len())].as_slice()
            } else {
                &[]
            };
            let candidate = stages(problem.operation, scatter, gather);
            if candidate == schedule[chunk] {
                continue;
            }
            let tasks = Work::new(
                problem.model,
                std::iter::once((problem.chunks[chunk], candidate.as_slice())),
            )?;
            let before = work.chunk(chunk).to_vec();
            work.replace(chunk, tasks.chunk(0));
            let new_time = finish(problem, &work);
            if new_time <= time {
                time = new_time;
                schedule[chunk] = candidate;
            } else {
                work.replace(chunk, &before);
            }
        }
        Ok(schedule)
    }
}

/// How long a schedule takes in the model.
fn finish(problem: &Problem<'_>, work: &Work) -> Time {
    // A planned order is the one that smallest-first gives: it is fixed after the search.
    let order = match problem.order {
        Order::Planned => Order::SmallestFirst,
        order => order,
    };
    let mut queues = queue::queues(order, problem.model.dimensions(), &[]);
    evaluate::finish(work, &mut queues, problem.active_chunks)
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
