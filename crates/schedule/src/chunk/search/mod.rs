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
//! (as the world `links` does), and on three whose bandwidths and latencies are off by up to a tenth, while the first of these stays
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

mod fast;

use allrail_collective::model::DimensionSet;
use allrail_collective::{Operation, Stage};
use allrail_core::{Bytes, DimensionId, Time};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::baseline::Baseline;
use super::themis::Themis;
use super::{ChunkScheduler, Problem, stages};
use crate::error::ScheduleError;
use crate::evaluate::{self, Work};
use crate::queue::{self, Order};
use fast::{Condition, Fast};

pub(super) struct Search;

/// Stages evaluated in all, which bounds the time of planning.
const EFFORT: usize = 4_500_000;
/// The same with the plain evaluator.
const PLAIN_EFFORT: usize = 1_500_000;
/// How much of its time, relatively, the second part may give away.
const ROBUSTNESS: f64 = 0.003;
/// How much slower, relatively, the first changes may make the schedule.
const SLACK: f64 = 0.003;

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

/// The tasks of a schedule, as the planner runs it.
fn work(problem: &Problem<'_>, schedule: &[Vec<Stage>]) -> Result<Work, ScheduleError> {
    let stages = schedule.iter().map(Vec::as_slice);
    let work = Work::new(problem.model, problem.chunks.iter().copied().zip(stages))?;
    Ok(work.side_by_side(problem.active_chunks))
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

/// How a schedule is timed: the first clock runs the fabric as described, the others as it may be.
enum Clocks {
    Fast(Vec<(u64, Fast)>),
    Plain(Work),
}

struct Walk<'a> {
    problem: &'a Problem<'a>,
    orders: &'a [Vec<DimensionId>],
    schedule: Vec<Vec<Stage>>,
    clocks: Clocks,
    best: Vec<Vec<Stage>>,
    tries: usize,
}

/// What a schedule is judged by.
#[derive(Clone, Copy)]
struct Score {
    /// Its time on the fabric as described, in picoseconds.
    time: u64,
    /// The weighted sum over the clocks that count.
    cost: u64,
}

impl Score {
    const UNLIMITED: Self = Self { time: u64::MAX, cost: u64::MAX };
}

impl<'a> Walk<'a> {
    /// `clocks` are those of the walk, where smallest-first is searched and they can run the schedule.
    fn new(
        problem: &'a Problem<'a>,
        start: Vec<Vec<Stage>>,
        orders: &'a [Vec<DimensionId>],
        clocks: impl FnOnce(&Work) -> Option<Vec<(u64, Fast)>>,
    ) -> Result<Self, ScheduleError> {
        let work = work(problem, &start)?;
        let stages = work.tasks().len().max(1);
        let smallest_first = problem.order.while_planning().is_smallest_first();
        let fast = smallest_first.then(|| clocks(&work)).flatten();
        let (clocks, effort) = match fast {
            Some(clocks) => (Clocks::Fast(clocks), EFFORT),
            None => (Clocks::Plain(work), PLAIN_EFFORT),
        };
        let tries = (effort / stages).clamp(1, 24_000);
        Ok(Self { problem, orders, best: start.clone(), schedule: start, clocks, tries })
    }

    /// First the fabric as described alone, with slack; then the fabric as it may be, at no more
    /// than [`ROBUSTNESS`] of what was gained.
    fn run(&mut self, rng: &mut Pcg64Mcg) -> Result<(), ScheduleError> {
        let [start, best] = self.accept(rng)?;
        if matches!(self.clocks, Clocks::Plain(_)) {
            return Ok(());
        }
        self.schedule.clone_from(&self.best);
        for chunk in 0..self.schedule.len() {
            self.retime(chunk)?;
        }
        let give = (best.time as f64 * ROBUSTNESS) as u64;
        let time = (best.time + give).min(start.time);
        let mut score =
            self.score(Score::UNLIMITED, true).expect("without a limit there is a score");
        for done in self.tries / 2..self.tries {
            self.tell(done);
            if let Some(new) = self.step(Score { time, cost: score.cost }, true, rng)? {
                score = new;
            }
        }
        self.best.clone_from(&self.schedule);
        Ok(())
    }

    /// Tells whoever watches how many tries are made; not of every one.
    fn tell(&self, done: usize) {
        if done.is_multiple_of(16) {
            (self.problem.watch)(done as u64, self.tries as u64);
        }
    }

    /// Half of the tries by the first clock alone, with slack. The scores of the start and of the best.
    fn accept(&mut self, rng: &mut Pcg64Mcg) -> Result<[Score; 2], ScheduleError> {
        let start = self.score(Score::UNLIMITED, false).expect("without a limit there is a score");
        let mut score = start;
        let mut best = start;
        let first = self.tries / 2;
        for done in 0..first {
            self.tell(done);
            let left = 1.0 - done as f64 / first as f64;
            let slack = 1.0 + SLACK * left * left;
            let limit = Score { time: (score.time as f64 * slack) as u64, cost: u64::MAX };
            if let Some(new) = self.step(limit, false, rng)? {
                score = new;
                if score.time < best.time {
                    best = score;
                    self.best.clone_from(&self.schedule);
                }
            }
        }
        Ok([start, best])
    }

    /// Changes one chunk's order; takes the change back and returns `None` if that is beyond the
    /// limit.
    fn step(
        &mut self,
        limit: Score,
        all: bool,
        rng: &mut Pcg64Mcg,
    ) -> Result<Option<Score>, ScheduleError> {
        let chunk = rng.random_range(0..self.schedule.len());
        let candidate = self.neighbour(chunk, rng);
        if candidate == self.schedule[chunk] {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.schedule[chunk], candidate);
        self.retime(chunk)?;
        let score = self.score(limit, all);
        if score.is_none() {
            self.schedule[chunk] = before;
            self.retime(chunk)?;
        }
        Ok(score)
    }

    /// Another order for the chunk's first half, its second half or both.
    fn neighbour(&self, chunk: usize, rng: &mut Pcg64Mcg) -> Vec<Stage> {
        let mut draw = || self.orders[rng.random_range(0..self.orders.len())].clone();
        if self.problem.operation != Operation::AllReduce {
            return stages(self.problem.operation, &draw(), &[]);
        }
        let order: Vec<DimensionId> =
            self.schedule[chunk].iter().map(|stage| stage.dimension).collect();
        let (scatter, gather) = order.split_at(order.len() / 2);
        let (other_scatter, other_gather) = (draw(), draw());
        match rng.random_range(0..4) {
            0 => stages(self.problem.operation, scatter, &other_gather),
            1 => stages(self.problem.operation, &other_scatter, gather),
            _ => stages(self.problem.operation, &other_scatter, &other_gather),
        }
    }

    /// Tells the clock that a chunk has another order.
    fn retime(&mut self, chunk: usize) -> Result<(), ScheduleError> {
        let bytes = self.problem.chunks[chunk];
        let one = std::iter::once((bytes, self.schedule[chunk].as_slice()));
        let tasks = Work::new(self.problem.model, one)?.side_by_side(self.problem.active_chunks);
        match &mut self.clocks {
            Clocks::Fast(clocks) => {
                for (_, clock) in clocks {
                    clock.replace(chunk, tasks.chunk(0));
                }
            }
            Clocks::Plain(work) => work.replace(chunk, tasks.chunk(0)),
        }
        Ok(())
    }

    /// `None` where the schedule is beyond the limit. Only the first clock counts unless `all` do.
    fn score(&mut self, limit: Score, all: bool) -> Option<Score> {
        let (mut time, mut cost) = (0, 0u64);
        match &mut self.clocks {
            Clocks::Fast(clocks) => {
                for (place, (weight, clock)) in clocks.iter_mut().enumerate() {
                    let finish = clock.finish().as_ps();
                    if place == 0 {
                        time = finish;
                    }
                    cost = cost.saturating_add(finish.saturating_mul(*weight));
                    if time > limit.time || cost > limit.cost {
                        return None;
                    }
                    if !all {
                        break;
                    }
                }
            }
            Clocks::Plain(work) => {
                let order = self.problem.order.while_planning();
                let mut queues = queue::queues(order, self.problem.model.dimensions(), &[]);
                time = evaluate::finish(work, &mut queues, self.problem.active_chunks).as_ps();
                cost = time;
                if time > limit.time {
                    return None;
                }
            }
        }
        Some(Score { time, cost })
    }
}

/// The fabric as described; message by message, with switches that store what they pass on; and with
/// each bandwidth and latency off by up to a tenth. `None` if the schedule is not one for [`Fast`].
fn clocks(problem: &Problem<'_>, work: &Work, rng: &mut Pcg64Mcg) -> Option<Vec<(u64, Fast)>> {
    let dimensions = problem.model.dimensions();
    let mut conditions =
        vec![(1, vec![Condition::AS_DESCRIBED; dimensions]), (4, by_message(problem))];
    for _ in 0..3 {
        let drawn = (0..dimensions).map(|_| Condition {
            occupancy: rng.random_range(922..=1126),
            latency: rng.random_range(922..=1126),
            ..Condition::AS_DESCRIBED
        });
        conditions.push((1, drawn.collect()));
    }
    let clock = |(weight, conditions)| {
        let clock = Fast::new(work, buffers(problem), conditions, problem.active_chunks)?;
        Some((weight, clock))
    };
    conditions.into_iter().map(clock).collect()
}

/// Every dimension as the world `links` has it.
fn by_message(problem: &Problem<'_>) -> Vec<Condition> {
    let ids =
        (0..u32::try_from(problem.model.dimensions()).expect("few dimensions")).map(DimensionId);
    ids.map(|id| Condition {
        relay: problem.model.relays(id) > 0,
        by_message: true,
        ..Condition::AS_DESCRIBED
    })
    .collect()
}

/// When the search expects a schedule to end in the world `links`: a test compares it with that.
#[doc(hidden)]
#[must_use]
pub fn expected_in_links(problem: &Problem<'_>, work: &Work) -> Option<Time> {
    let clock = Fast::new(work, buffers(problem), by_message(problem), problem.active_chunks);
    clock.map(|mut clock| clock.finish())
}

/// Every buffer that a stage can handle, ascending.
fn buffers(problem: &Problem<'_>) -> Vec<Bytes> {
    let mut sizes: Vec<u64> = problem.chunks.iter().map(|chunk| chunk.count()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut buffers: Vec<Bytes> = (0..1u32 << problem.dimensions.len())
        .flat_map(|subset| {
            let set = problem
                .dimensions
                .iter()
                .enumerate()
                .filter(|(place, _)| subset >> place & 1 == 1)
                .fold(DimensionSet::default(), |set, (_, dimension)| set.with(*dimension));
            let product = problem.model.product(set);
            sizes.iter().map(move |size| Bytes::new(size / product))
        })
        .collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers
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
