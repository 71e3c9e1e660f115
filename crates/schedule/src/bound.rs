//! What no schedule can beat.
//!
//! The plain bound is the total bytes over the total bandwidth. Two things keep a schedule from it,
//! whatever its order, and the bound here counts both:
//!
//! - A dimension's last stage ends its fixed delay `A` after its last byte, so each dimension must
//!   have served its bytes `A` before the end.
//! - The bytes that a dimension gets follow from the orders of the chunks. A chunk loads a set `K` of
//!   dimensions least if it scatters over all others first (and gathers over them last).
//!
//! So for every set `K`, with `BW` the bandwidths and `least(K)` the bytes that `K` serves if every
//! chunk takes the order that is best for it,
//!
//! ```text
//! T ≥ (least(K) + Σ_{k∈K} BW_k·A_k) / Σ_{k∈K} BW_k
//! ```
//!
//! and the bound is the largest of these. Where stages move `s(P−1)/P` bytes, the loads that mixes of
//! orders reach are the bases of a polymatroid, and no better bound on the mix exists: a test compares
//! with the linear program over all orders. Beside it stands the time of one chunk alone: no schedule
//! ends before its smallest chunk could.
//!
//! That is in the model of `dims`. Where stages are messages ([`lower_of_messages`]), the steps of one chunk fill the
//! pauses between those of another, and a rank that awaits nothing runs ahead. What holds there, and in `dims` too, is
//! that each dimension must have sent its bytes one step's latency before the end, and that a chunk whose stages go
//! step by step takes as long alone.

use allrail_collective::model::DimensionSet;
use allrail_collective::{Operation, StageModel, StageTime};
use allrail_core::{Bytes, DimensionId, Time};

use crate::error::ScheduleError;

/// Beneath every schedule of `operation` over `dimensions` whose stages are reduce-scatters and
/// all-gathers (or the operation itself, for the others), one operation per dimension.
///
/// # Errors
/// If the times do not fit the clock.
pub fn lower(
    model: &StageModel,
    operation: Operation,
    dimensions: &[DimensionId],
    chunks: &[Bytes],
) -> Result<Time, ScheduleError> {
    let parts = parts(operation);
    let smallest = chunks.iter().min().copied().unwrap_or_default();
    let alone = |part: &Operation| {
        let visits = Visits::new(model, *part, dimensions, smallest, |_, stage| {
            (stage.occupancy + stage.latency).as_ps() as f64
        })?;
        Ok(visits.cheapest(visits.everything(), 0, &vec![1.0; dimensions.len()]))
    };
    let alone: f64 = parts.iter().map(alone).sum::<Result<f64, ScheduleError>>()?;
    let served = fluid(
        model,
        operation,
        dimensions,
        chunks,
        |_, stage| stage.occupancy.as_ps() as f64,
        |d| {
            let delays = parts.iter().map(|part| model.fixed_delay(*part, d));
            delays.min().unwrap_or(Time::ZERO)
        },
    )?;
    Ok(below(served.max(alone)))
}

/// Beneath every schedule of `operation` in a network model of messages; `latency` is that of one step, per
/// dimension of the fabric, and `None` where a network's cables may be nearer than its dimensions say.
///
/// # Errors
/// If the times do not fit the clock.
pub fn lower_of_messages(
    model: &StageModel,
    operation: Operation,
    dimensions: &[DimensionId],
    chunks: &[Bytes],
    latency: Option<&[Time]>,
) -> Result<Time, ScheduleError> {
    let sent = |d: DimensionId, stage: StageTime| {
        stage.sent.0 / model.bandwidth(d).bytes_per_second() as f64 * 1e12
    };
    let Some(latency) = latency else {
        return fluid(model, operation, dimensions, chunks, sent, |_| Time::ZERO).map(below);
    };
    let parts = parts(operation);
    let smallest = chunks.iter().min().copied().unwrap_or_default();
    let alone = |part: &Operation| {
        let visits = Visits::new(model, *part, dimensions, smallest, |d, stage| {
            let known = model.in_step(*part, d);
            if known { (stage.occupancy + stage.latency).as_ps() as f64 } else { 0.0 }
        })?;
        Ok(visits.cheapest(visits.everything(), 0, &vec![1.0; dimensions.len()]))
    };
    let alone: f64 = parts.iter().map(alone).sum::<Result<f64, ScheduleError>>()?;
    let served = fluid(model, operation, dimensions, chunks, sent, |d| latency[d.index()])?;
    Ok(below(served.max(alone)))
}

/// A float's last digits must not lift the bound above a schedule.
fn below(picoseconds: f64) -> Time {
    Time::from_ps((picoseconds * (1.0 - 1e-9)) as u64)
}

fn parts(operation: Operation) -> &'static [Operation] {
    match operation {
        Operation::AllReduce => &[Operation::ReduceScatter, Operation::AllGather],
        Operation::ReduceScatter => &[Operation::ReduceScatter],
        Operation::AllGather => &[Operation::AllGather],
        Operation::AllToAll => &[Operation::AllToAll],
        Operation::Broadcast => &[Operation::Broadcast],
    }
}

/// The largest over all sets of dimensions, in picoseconds: `load` is how long a stage of the whole
/// buffer makes a dimension busy, `delay` how long before the end it must have served everything.
fn fluid(
    model: &StageModel,
    operation: Operation,
    dimensions: &[DimensionId],
    chunks: &[Bytes],
    load: impl Fn(DimensionId, StageTime) -> f64,
    delay: impl Fn(DimensionId) -> Time,
) -> Result<f64, ScheduleError> {
    let whole = Bytes::new(chunks.iter().map(|chunk| chunk.count()).sum());
    let weight: Vec<f64> =
        dimensions.iter().map(|d| model.bandwidth(*d).bytes_per_second() as f64).collect();
    let late: Vec<f64> =
        dimensions.iter().zip(&weight).map(|(d, w)| w * delay(*d).as_ps() as f64).collect();
    let mut visits = Vec::new();
    for part in parts(operation) {
        visits.push(Visits::new(model, *part, dimensions, whole, &load)?);
    }
    let everything = (1usize << dimensions.len()) - 1;
    let of_set = |set: usize| {
        let sum = |values: &[f64]| -> f64 {
            let members = values.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
            members.map(|(_, value)| value).sum()
        };
        let least: f64 = visits.iter().map(|v| v.cheapest(set, everything & !set, &weight)).sum();
        (least + sum(&late)) / sum(&weight)
    };
    Ok((1..=everything).map(of_set).fold(0.0, f64::max))
}

/// What a stage on each dimension costs, by the set of those over which the buffer is divided
/// already (of an all-gather: still).
struct Visits {
    /// `costs[place][set]`.
    costs: Vec<Vec<f64>>,
}

impl Visits {
    fn new(
        model: &StageModel,
        part: Operation,
        dimensions: &[DimensionId],
        bytes: Bytes,
        cost: impl Fn(DimensionId, StageTime) -> f64,
    ) -> Result<Self, ScheduleError> {
        let sets = 1usize << dimensions.len();
        let set_of = |bits: usize| {
            let members = dimensions.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1);
            members.fold(DimensionSet::default(), |set, (_, d)| set.with(*d))
        };
        let costs = dimensions.iter().map(|dimension| {
            let stage = |bits| model.stage(bytes, part, *dimension, set_of(bits));
            (0..sets).map(|bits| stage(bits).map(|stage| cost(*dimension, stage))).collect()
        });
        let costs = costs.collect::<Option<_>>().ok_or(ScheduleError::TooLong)?;
        Ok(Self { costs })
    }

    fn everything(&self) -> usize {
        (1 << self.costs.len()) - 1
    }

    /// The least weighted sum of the costs of the places in `set`, over all orders, after those in
    /// `before`.
    fn cheapest(&self, set: usize, before: usize, weight: &[f64]) -> f64 {
        // `best[visited]`: the least to come, for the subsets of `set` in falling order.
        let mut best = vec![0.0f64; set + 1];
        let mut visited = set;
        while visited > 0 {
            visited = (visited - 1) & set;
            best[visited] = (0..self.costs.len())
                .filter(|place| (set & !visited) >> place & 1 == 1)
                .map(|place| {
                    weight[place] * self.costs[place][before | visited] + best[visited | 1 << place]
                })
                .fold(f64::INFINITY, f64::min);
        }
        best[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::permutations;
    use allrail_collective::algorithm::named;
    use allrail_fabric::{Dimension, Fabric, Kind};
    use microlp::{ComparisonOp, OptimizationDirection, Problem};
    use proptest::prelude::*;

    fn fabric(sizes: &[(u32, u64)]) -> Fabric {
        let dimensions = sizes.iter().map(|(size, gbps)| {
            Dimension::new(
                Kind::Switch,
                *size,
                1,
                format!("{gbps} Gb/s").parse().expect("a bandwidth"),
                Time::from_ns(500),
            )
        });
        Fabric {
            memory_bandwidth: None,
            window: None,
            name: String::new(),
            dimensions: dimensions.collect(),
        }
    }

    /// The best mix of orders, by linear programming, in picoseconds. Gathers mirror scatters here:
    /// both take the same time, so one mix serves twice.
    fn program(model: &StageModel, dimensions: &[DimensionId], size: Bytes) -> Option<f64> {
        let mut lp = Problem::new(OptimizationDirection::Minimize);
        let finish = lp.add_var(1.0, (0.0, f64::INFINITY));
        let mut busy = vec![vec![(finish, -1.0)]; dimensions.len()];
        let mut shares = Vec::new();
        for order in permutations(dimensions) {
            let share = lp.add_var(0.0, (0.0, f64::INFINITY));
            shares.push((share, 1.0));
            let mut set = DimensionSet::default();
            for d in order {
                let time = model.stage(size, Operation::ReduceScatter, d, set).expect("fits");
                busy[d.index()].push((share, 2.0 * time.occupancy.as_s()));
                set = set.with(d);
            }
        }
        lp.add_constraint(shares, ComparisonOp::Eq, 1.0);
        for (row, d) in busy.iter().zip(dimensions) {
            let delay = model.fixed_delay(Operation::ReduceScatter, *d).as_s();
            lp.add_constraint(row, ComparisonOp::Le, -delay);
        }
        lp.solve().ok().map(|solution| solution.objective() * 1e12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_mix_of_orders_is_better_and_one_is_as_good(
            sizes in prop::collection::vec((2u32..17, 50u64..3000), 1..5)
        ) {
            let fabric = fabric(&sizes);
            let ids: Vec<DimensionId> = fabric.ids().collect();
            let algorithms = vec![named("halving_doubling").expect("known"); ids.len()];
            let parts = [Operation::ReduceScatter, Operation::AllGather];
            let model = StageModel::new(&fabric, &algorithms, &ids, &parts, Time::ZERO)
                .expect("modelled");
            let size = Bytes::new(1_000_000_000);
            // Many chunks: the time of one alone does not count.
            let chunks = vec![Bytes::new(1_000_000); 1000];
            let bound = lower(&model, Operation::AllReduce, &ids, &chunks).expect("fits");
            // The solver gives up on some degenerate programs; the bound does not.
            let best = program(&model, &ids, size);
            prop_assume!(best.is_some());
            let best = best.unwrap_or_default();
            prop_assert!((bound.as_ps() as f64 / best - 1.0).abs() < 1e-6, "{bound} {best}");
        }
    }
}
