//! `themis`: the greedy chunk scheduler of Themis (ISCA'22, Algorithm 1).
//!
//! A load tracker holds the time that each dimension has been given so far, starting at the
//! dimension's fixed delay `A_K`. Each chunk in turn: if the loads differ by less than a threshold
//! (the predicted time of a chunk / 16 on the least loaded dimension), the baseline order; else the
//! dimensions sorted by load, ascending for a reduce-scatter (the first stage is the largest),
//! descending for an all-gather (the last stage is the largest). An all-reduce takes the
//! reduce-scatter order and gathers in reverse. Then the predicted `N_K·B_K` of the chunk is added
//! to each load; for an all-reduce both halves are equal, and one is counted.
//!
//! Where an all-reduce is composed of whole all-reduces (`sequential`), these are what is predicted; the
//! authors' implementation looks at reduce-scatters all the same.
//!
//! All-to-all and broadcast move the same bytes in any order: the baseline's.

use allrail_collective::model::DimensionSet;
use allrail_collective::{Operation, Stage};
use allrail_core::{Bytes, DimensionId, Time};

use super::{ChunkScheduler, Composition, Loads, Problem, baseline, composed, stages};
use crate::error::ScheduleError;
use crate::queue::Order;

pub(super) struct Themis;

impl ChunkScheduler for Themis {
    fn tag(&self) -> &'static str {
        "themis"
    }

    fn about(&self) -> &'static str {
        "each chunk first to the dimension with the least load (Themis, ISCA'22, Algorithm 1)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn composes(&self, composition: Composition) -> bool {
        // The dimension that would be merged is the last of an order that every chunk has for itself.
        composition != Composition::Merged
    }

    fn default_order(&self) -> Order {
        Order::SMALLEST_FIRST
    }

    fn schedule(&self, problem: &Problem<'_>) -> Result<Vec<Vec<Stage>>, ScheduleError> {
        let gathers = match problem.operation {
            Operation::AllReduce | Operation::ReduceScatter => false,
            Operation::AllGather => true,
            Operation::AllToAll | Operation::Broadcast => {
                let order =
                    baseline::order(problem.operation, problem.dimensions, Composition::Stages);
                return Ok(vec![order; problem.chunks.len()]);
            }
        };
        if problem.parameters.loads == Loads::Zero {
            return Ok(zero_loads(problem, gathers));
        }
        let composition = problem.parameters.composition;
        let whole =
            problem.operation == Operation::AllReduce && composition == Composition::Sequential;
        let part = match (gathers, whole) {
            (true, _) => Operation::AllGather,
            (false, true) => Operation::AllReduce,
            (false, false) => Operation::ReduceScatter,
        };
        let mut loads: Vec<(Time, DimensionId)> =
            problem.dimensions.iter().map(|d| (problem.model.fixed_delay(part, *d), *d)).collect();
        problem
            .chunks
            .iter()
            .map(|bytes| {
                // Stable: of equal loads, the order of the last chunk.
                loads.sort_by_key(|(load, _)| *load);
                let least = loads[0];
                let spread = loads[loads.len() - 1].0 - least.0;
                if spread < threshold(problem, *bytes, part, least.1)? {
                    loads.sort_by_key(|(_, dimension)| *dimension);
                }
                let scatter: Vec<DimensionId> = loads.iter().map(|(_, d)| *d).collect();
                let gather: Vec<DimensionId> = scatter.iter().rev().copied().collect();
                let mut scattered = DimensionSet::default();
                for (load, dimension) in &mut loads {
                    let time = problem
                        .model
                        .stage(*bytes, part, *dimension, scattered)
                        .ok_or(ScheduleError::TooLong)?;
                    *load = load.checked_add(time.occupancy).ok_or(ScheduleError::TooLong)?;
                    if !whole {
                        scattered = scattered.with(*dimension);
                    }
                }
                Ok(match problem.operation {
                    Operation::AllGather => stages(problem.operation, &gather, &[]),
                    _ => composed(problem.operation, &scatter, &gather, composition),
                })
            })
            .collect()
    }
}

/// The predicted time of a part of a chunk on the least loaded dimension.
fn threshold(
    problem: &Problem<'_>,
    chunk: Bytes,
    part: Operation,
    least: DimensionId,
) -> Result<Time, ScheduleError> {
    let bytes = Bytes::new(chunk.count() / u64::from(problem.parameters.threshold.max(1)));
    problem
        .model
        .stage(bytes, part, least, DimensionSet::default())
        .map(|time| time.occupancy)
        .ok_or(ScheduleError::TooLong)
}

/// The same as ASTRA-sim's authors implemented it, to the rounding: loads start at zero and count
/// MiB relative to the first dimension's bandwidth; chunks shrink by whole bytes; the spread is
/// turned back into bytes of the least loaded dimension (of an all-gather: the most loaded one, at
/// the size of the first stage) before it is compared. The list of loads has all dimensions, those that the
/// collective does not span, too. Where the spread is small, an all-gather visits the dimensions in
/// ascending order, unlike the baseline's, and its loads are noted from the list's other end: so it is there.
fn zero_loads(problem: &Problem<'_>, gathers: bool) -> Vec<Vec<Stage>> {
    const MIB: f64 = 1_048_576.0;
    let size = |d: DimensionId| problem.model.size(d);
    let spanned = |d: &DimensionId| problem.dimensions.contains(d);
    let rate = |d: DimensionId| problem.model.bandwidth(d).bytes_per_second() as f64;
    let first = rate(DimensionId(0));
    let share = |d: DimensionId| {
        let size = size(d) as f64;
        if gathers { size - 1.0 } else { (size - 1.0) / size }
    };
    let npus: u64 = problem.dimensions.iter().map(|d| size(*d)).product();
    let count = u32::try_from(problem.model.dimensions()).expect("few dimensions");
    let mut loads: Vec<(f64, DimensionId)> = (0..count).map(|d| (0.0, DimensionId(d))).collect();
    let schedule = |bytes: &Bytes| {
        // Of an all-gather, the chunk is what each NPU holds before it.
        let chunk = if gathers { bytes.count() / npus } else { bytes.count() };
        loads.sort_by(|a, b| a.0.total_cmp(&b.0));
        if gathers {
            loads.reverse();
        }
        let mut order: Vec<DimensionId> =
            loads.iter().map(|(_, d)| *d).filter(|d| spanned(d)).collect();
        let load_of = |d: DimensionId| loads.iter().find(|(_, other)| *other == d).map(|l| l.0);
        let (near, far) = (order[0], order[order.len() - 1]);
        let most = if gathers { load_of(far) } else { loads.last().map(|load| load.0) };
        let spread = most.zip(load_of(near)).map_or(0.0, |(most, least)| (most - least).abs());
        let reference = if gathers { far } else { near };
        let mut spread = (spread * (rate(reference) / first) / share(reference) * MIB) as u64;
        if gathers {
            spread = order[..order.len() - 1].iter().fold(spread, |s, d| s / size(*d));
        }
        // Where each dimension of the order is in the list.
        let mut places: Vec<usize> = (0..loads.len()).filter(|i| spanned(&loads[*i].1)).collect();
        if spread < chunk / u64::from(problem.parameters.threshold) {
            loads.sort_by_key(|(_, dimension)| *dimension);
            order.sort_unstable();
            places = order.iter().map(|d| d.index()).collect();
            if gathers {
                loads.reverse();
            }
        }
        let mut left = chunk;
        for (place, d) in places.into_iter().zip(&order) {
            loads[place].0 += left as f64 / MIB * share(*d) / (rate(*d) / first);
            left = if gathers { left.saturating_mul(size(*d)) } else { left / size(*d) };
        }
        let back: Vec<DimensionId> = order.iter().rev().copied().collect();
        composed(problem.operation, &order, &back, problem.parameters.composition)
    };
    problem.chunks.iter().map(schedule).collect()
}
