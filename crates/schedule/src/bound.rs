//! What no schedule can beat.
//!
//! The plain bound is the total bytes over the total bandwidth. Two things keep a schedule from it,
//! whatever its order, and the bound here adds both:
//!
//! - A dimension's last stage ends its fixed delay `A` after its last byte, so each dimension must
//!   have served its bytes `A` before the end.
//! - The bytes that a dimension gets follow from the orders of the chunks, and not every division
//!   over the dimensions is some mix of orders: a small inner dimension cannot take more than all
//!   chunks would give it by visiting it first. With `x_o` the share of the buffer that scatters in
//!   order `o` and `y_p` the share that gathers in order `p`, the least `T` with
//!   `Σ_o x_o·RS_o(k) + Σ_p y_p·AG_p(k) + A_k ≤ T` for every dimension `k` is a linear program.
//!
//! Beside it stands the time of one chunk alone: no schedule ends before its smallest chunk could.
//!
//! Where stages are messages ([`lower_of_messages`]), the steps of one chunk fill the pauses between
//! those of another, and a rank that awaits nothing runs ahead. What holds there is that each
//! dimension must have sent its bytes one step's latency before the end.

use allrail_collective::model::{DimensionSet, Sent};
use allrail_collective::{Operation, StageModel};
use allrail_core::{Bytes, DimensionId, Time};
use microlp::{ComparisonOp, OptimizationDirection, Problem as LinearProgram};

use crate::chunk::permutations;
use crate::error::ScheduleError;

/// Beneath every schedule of `operation` over `dimensions` whose stages are reduce-scatters and all-gathers (or the
/// operation itself, for the others), one operation per dimension.
///
/// # Errors
/// If the times do not fit the clock.
pub fn lower(
    model: &StageModel,
    operation: Operation,
    dimensions: &[DimensionId],
    chunks: &[Bytes],
) -> Result<Time, ScheduleError> {
    let problem = Problem { model, operation, dimensions, chunks };
    let parts = problem.parts();
    let fluid = problem.fluid(
        |visit| visit.occupancy.as_us(),
        |d| parts.iter().map(|part| model.fixed_delay(*part, d)).min().unwrap_or(Time::ZERO),
    )?;
    Ok(fluid.max(problem.alone()?))
}

/// Beneath every schedule of `operation` in a world of messages; `latency` is that of one step, per
/// dimension of the fabric.
///
/// # Errors
/// If the times do not fit the clock.
pub fn lower_of_messages(
    model: &StageModel,
    operation: Operation,
    dimensions: &[DimensionId],
    chunks: &[Bytes],
    latency: &[Time],
) -> Result<Time, ScheduleError> {
    let rate = |visit: &Visit| model.bandwidth(visit.dimension).bytes_per_second() as f64;
    Problem { model, operation, dimensions, chunks }
        .fluid(|visit| visit.sent.0 / rate(visit) * 1e6, |d| latency[d.index()])
}

struct Problem<'a> {
    model: &'a StageModel,
    operation: Operation,
    dimensions: &'a [DimensionId],
    chunks: &'a [Bytes],
}

impl Problem<'_> {
    fn parts(&self) -> &'static [Operation] {
        match self.operation {
            Operation::AllReduce => &[Operation::ReduceScatter, Operation::AllGather],
            Operation::ReduceScatter => &[Operation::ReduceScatter],
            Operation::AllGather => &[Operation::AllGather],
            Operation::AllToAll => &[Operation::AllToAll],
            Operation::Broadcast => &[Operation::Broadcast],
        }
    }

    /// The linear program: `load` is what a stage of the whole buffer makes a dimension busy for, in
    /// microseconds, `delay` how long before the end a dimension must have served it all.
    fn fluid(
        &self,
        load: impl Fn(&Visit) -> f64,
        delay: impl Fn(DimensionId) -> Time,
    ) -> Result<Time, ScheduleError> {
        let whole = Bytes::new(self.chunks.iter().map(|chunk| chunk.count()).sum());
        let mut program = LinearProgram::new(OptimizationDirection::Minimize);
        let finish = program.add_var(1.0, (0.0, f64::INFINITY));
        let mut busy = vec![vec![(finish, -1.0)]; self.dimensions.len()];
        for part in self.parts() {
            let mut shares = Vec::new();
            for order in permutations(self.dimensions) {
                let share = program.add_var(0.0, (0.0, f64::INFINITY));
                shares.push((share, 1.0));
                for stage in visit(self.model, *part, &order, whole)? {
                    let row = self.dimensions.iter().position(|d| *d == stage.dimension);
                    busy[row.expect("an order of these dimensions")].push((share, load(&stage)));
                }
            }
            program.add_constraint(shares, ComparisonOp::Eq, 1.0);
        }
        for (row, dimension) in busy.iter().zip(self.dimensions) {
            program.add_constraint(row, ComparisonOp::Le, -delay(*dimension).as_us());
        }
        // The program is feasible (any order) and bounded (times are positive); should the solver
        // fail all the same, zero is still a bound.
        let fluid = program.solve().map_or(0.0, |solution| solution.objective());
        // A float's last digits must not lift the bound above a schedule.
        Ok(Time::from_ps((fluid * (1.0 - 1e-9) * 1e6) as u64))
    }

    /// The time of the smallest chunk alone, in its shortest orders.
    fn alone(&self) -> Result<Time, ScheduleError> {
        let smallest = self.chunks.iter().min().copied().unwrap_or_default();
        let mut alone = Time::ZERO;
        for part in self.parts() {
            let mut shortest = Time::MAX;
            for order in permutations(self.dimensions) {
                let stages = visit(self.model, *part, &order, smallest)?;
                shortest = shortest.min(stages.iter().map(|s| s.occupancy + s.latency).sum());
            }
            alone = alone.checked_add(shortest).ok_or(ScheduleError::TooLong)?;
        }
        Ok(alone)
    }
}

struct Visit {
    dimension: DimensionId,
    sent: Sent,
    occupancy: Time,
    latency: Time,
}

/// One part of a collective of `bytes` in one order.
fn visit(
    model: &StageModel,
    part: Operation,
    order: &[DimensionId],
    bytes: Bytes,
) -> Result<Vec<Visit>, ScheduleError> {
    let mut scattered = DimensionSet::default();
    if part == Operation::AllGather {
        scattered = order.iter().fold(scattered, |set, d| set.with(*d));
    }
    order
        .iter()
        .map(|dimension| {
            let time =
                model.stage(bytes, part, *dimension, scattered).ok_or(ScheduleError::TooLong)?;
            scattered = match part {
                Operation::ReduceScatter => scattered.with(*dimension),
                Operation::AllGather => scattered.without(*dimension),
                _ => scattered,
            };
            Ok(Visit {
                dimension: *dimension,
                sent: time.sent,
                occupancy: time.occupancy,
                latency: time.latency,
            })
        })
        .collect()
}
