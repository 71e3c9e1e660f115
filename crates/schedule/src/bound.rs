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

use allrail_collective::model::DimensionSet;
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
    let parts: &[Operation] = match operation {
        Operation::AllReduce => &[Operation::ReduceScatter, Operation::AllGather],
        _ => &[operation],
    };
    let whole = Bytes::new(chunks.iter().map(|chunk| chunk.count()).sum());
    let smallest = chunks.iter().min().copied().unwrap_or_default();
    let orders = permutations(dimensions);
    let mut program = LinearProgram::new(OptimizationDirection::Minimize);
    let finish = program.add_var(1.0, (0.0, f64::INFINITY));
    let mut busy = vec![vec![(finish, -1.0)]; dimensions.len()];
    let mut alone = Time::ZERO;
    for part in parts {
        let mut shares = Vec::new();
        let mut shortest = Time::MAX;
        for order in &orders {
            let share = program.add_var(0.0, (0.0, f64::INFINITY));
            shares.push((share, 1.0));
            let mut path = Time::ZERO;
            for (time, alone) in
                visit(model, *part, order, whole)?.iter().zip(visit(model, *part, order, smallest)?)
            {
                path = path + alone.occupancy + alone.latency;
                let row = dimensions.iter().position(|d| *d == time.dimension);
                busy[row.expect("an order of these dimensions")]
                    .push((share, time.occupancy.as_us()));
            }
            shortest = shortest.min(path);
        }
        alone = alone.checked_add(shortest).ok_or(ScheduleError::TooLong)?;
        program.add_constraint(shares, ComparisonOp::Eq, 1.0);
    }
    for (row, dimension) in busy.iter().zip(dimensions) {
        let last = parts.iter().map(|part| model.fixed_delay(*part, *dimension)).min();
        let delay = last.unwrap_or(Time::ZERO).as_us();
        program.add_constraint(row, ComparisonOp::Le, -delay);
    }
    // The program is feasible (any order) and bounded (times are positive); should the solver fail
    // all the same, the chunk alone is still a bound.
    let fluid = program.solve().map_or(0.0, |solution| solution.objective());
    // A float's last digits must not lift the bound above a schedule.
    let fluid = Time::from_ps((fluid * (1.0 - 1e-9) * 1e6) as u64);
    Ok(fluid.max(alone))
}

struct Visit {
    dimension: DimensionId,
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
            Ok(Visit { dimension: *dimension, occupancy: time.occupancy, latency: time.latency })
        })
        .collect()
}
