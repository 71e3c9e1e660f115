//! The walk from schedule to schedule: one chunk gets another order, which is kept or taken back.

use allrail_collective::{Operation, Stage};
use allrail_core::DimensionId;
use rand::Rng;
use rand_pcg::Pcg64Mcg;

use super::fast::Fast;
use crate::chunk::{Problem, stages};
use crate::error::ScheduleError;
use crate::evaluate::{self, Work};
use crate::queue;

/// Stages evaluated in all, which bounds the time of planning.
const EFFORT: usize = 4_500_000;
/// The same with the plain evaluator.
const PLAIN_EFFORT: usize = 1_500_000;
/// How much of its time, relatively, the second part may give away.
const ROBUSTNESS: f64 = 0.003;
/// How much slower, relatively, the first changes may make the schedule.
const SLACK: f64 = 0.003;

/// How a schedule is timed: the first clock runs the fabric as described, the others as it may be.
pub(super) enum Clocks {
    Fast(Vec<(u64, Fast)>),
    Plain(Work),
}

pub(super) struct Walk<'a> {
    problem: &'a Problem<'a>,
    orders: &'a [Vec<DimensionId>],
    schedule: Vec<Vec<Stage>>,
    pub(super) clocks: Clocks,
    pub(super) best: Vec<Vec<Stage>>,
    tries: usize,
}

/// What a schedule is judged by.
#[derive(Clone, Copy)]
pub(super) struct Score {
    /// Its time on the fabric as described, in picoseconds.
    pub(super) time: u64,
    /// The weighted sum over the clocks that count.
    cost: u64,
}

impl Score {
    pub(super) const UNLIMITED: Self = Self { time: u64::MAX, cost: u64::MAX };
}

impl<'a> Walk<'a> {
    /// `clocks` are those of the walk, where smallest-first is searched and they can run the schedule.
    pub(super) fn new(
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
    pub(super) fn run(&mut self, rng: &mut Pcg64Mcg) -> Result<(), ScheduleError> {
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
    pub(super) fn accept(&mut self, rng: &mut Pcg64Mcg) -> Result<[Score; 2], ScheduleError> {
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
    pub(super) fn score(&mut self, limit: Score, all: bool) -> Option<Score> {
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

/// The tasks of a schedule, as the planner runs it.
pub(super) fn work(problem: &Problem<'_>, schedule: &[Vec<Stage>]) -> Result<Work, ScheduleError> {
    let stages = schedule.iter().map(Vec::as_slice);
    let work = Work::new(problem.model, problem.chunks.iter().copied().zip(stages))?;
    Ok(work.side_by_side(problem.active_chunks))
}
