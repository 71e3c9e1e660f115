//! How long one stage takes on one dimension.
//!
//! A stage that handles a buffer of `s` bytes (before a reduce-scatter, after an all-gather) on a
//! dimension of `P` NPUs with bandwidth `BW` and step latency `α` keeps the dimension busy for
//! `N·B = s · f / BW` and ends `A = latencies · α + (steps + 1) · endpoint delay + fill` after its last byte
//! (Themis §4.3); `latencies` is [`algorithm::Cost::latencies`], `steps` but for pipelined chains. `f` is the algorithm's closed form where its messages fit the links: `(P−1)/P`
//! for ring on rings, direct on fully connected dimensions and switches, halving-doubling on
//! switches. Elsewhere `f` is computed from the algorithm's messages and the links they cross, as
//! the sum over its steps of the most loaded link.
//!
//! A dimension that stands for a network without dimensions counts messages over its cables (`wired.rs`).
//!
//! A switch with in-network reduction (SHARP) takes each contribution once and hands out the
//! result: a reduce-scatter sends `s` up and `s/P` down, an all-gather `s/P` up and `s` down.
//! The two directions of a link work at once, so each of the two stages is charged their mean,
//! `s(P+1)/2P`, and one step; an all-reduce in one stage is charged `s` and two steps, a broadcast
//! `s` and one. With a `reduction_bandwidth` the bytes pass at that rate, and not at the links'. Where that is not less than without, the switch does not reduce (a stage of 2 or 3 NPUs).
//!
//! With a `memory_bandwidth` a stage that reduces ends later by three times the bytes that its steps
//! reduce over it.
//!
//! Not modelled: computing the reduction, other memory traffic, congestion between dimensions that share
//! wires, incast at the receivers of a tree on a switch.

use allrail_core::{Bytes, DimensionId, Time};
use allrail_fabric::{Dimension, Fabric, Kind, kinds};

use crate::algorithm::{self, Algorithm};
use crate::charge::{Charge, Fraction, charge};
use crate::error::CollectiveError;
use crate::kind::Operation;

/// What a stage costs the dimension that runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageTime {
    /// `N`: bytes that the busiest NPU sends.
    pub sent: Sent,
    /// `N·B`: how long the dimension serves it.
    pub occupancy: Time,
    /// `A`: how long after its last byte it ends.
    pub latency: Time,
    /// `s`: the buffer that it handles, rounded down.
    pub buffer: Bytes,
    /// How many steps its messages take.
    pub steps: u32,
    /// Whether messages halve from step to step (in an all-gather: double), or are alike.
    pub halving: bool,
    /// Without contention: whether other stages take no longer for running meanwhile.
    pub alone: bool,
}

/// Bytes that an NPU sends in a stage; a shard of an odd buffer is not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Sent(pub f64);

impl std::ops::Add for Sent {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// A set of dimensions, as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DimensionSet(u32);

impl DimensionSet {
    /// With `dimension` added.
    #[must_use]
    pub const fn with(self, dimension: DimensionId) -> Self {
        Self(self.0 | 1 << dimension.0)
    }
    /// With `dimension` taken out.
    #[must_use]
    pub const fn without(self, dimension: DimensionId) -> Self {
        Self(self.0 & !(1 << dimension.0))
    }
    /// Whether `dimension` is in it.
    #[must_use]
    pub const fn contains(self, dimension: DimensionId) -> bool {
        self.0 >> dimension.0 & 1 == 1
    }
    /// The mask.
    #[must_use]
    pub const fn bits(self) -> usize {
        self.0 as usize
    }
}

/// The time model of a fabric with an algorithm on each of its dimensions.
#[derive(Clone)]
pub struct StageModel {
    sizes: Vec<u64>,
    relays: Vec<u64>,
    bandwidths: Vec<allrail_core::Bandwidth>,
    memory: Option<allrail_core::Bandwidth>,
    /// `charges[dimension][operation]`; `None` where the algorithm does not do it.
    charges: Vec<[Option<Charge>; Operation::ALL.len()]>,
}

fn index(operation: Operation) -> usize {
    Operation::ALL.iter().position(|other| *other == operation).expect("`ALL` has them all")
}

/// The topology-aware algorithm of a kind of dimension: the one that calls itself usual there. Ring on
/// rings, direct on fully connected dimensions, halving-doubling on switches; where that does not do
/// the operation, direct.
///
/// # Panics
/// If no algorithm does the operation; a test asks for all of them.
#[must_use]
pub fn topology_aware(kind: Kind, operation: Operation) -> &'static str {
    let doing = || algorithm::ALL.iter().filter(|one| one.operations().contains(&operation));
    let usual = doing().find(|one| one.on_links(kind, operation, 2).usual);
    usual.or_else(|| doing().next()).expect("an algorithm for every operation").tag()
}

impl StageModel {
    /// The model for the stages of `operations` on the dimensions `spanned` of `fabric`.
    ///
    /// # Errors
    /// An algorithm that does not do one of the operations, or a combination without a model.
    pub fn new(
        fabric: &Fabric,
        algorithms: &[&dyn Algorithm],
        spanned: &[DimensionId],
        operations: &[Operation],
        endpoint_delay: Time,
    ) -> Result<Self, CollectiveError> {
        let mut charges = vec![[None; Operation::ALL.len()]; fabric.dimensions.len()];
        for id in spanned.iter().copied() {
            let (algorithm, size) = (algorithms[id.index()], fabric.dimension(id).size);
            // Where stages scatter, gather and all-reduce, the last dimension does the last.
            let merged = operations.contains(&Operation::AllReduce)
                && operations.contains(&Operation::ReduceScatter)
                && spanned.last() == Some(&id);
            for operation in operations {
                if merged && !algorithm.operations().contains(operation) {
                    algorithm::check(algorithm, Operation::AllReduce, size)?;
                    continue;
                }
                algorithm::check(algorithm, *operation, size)?;
                charges[id.index()][index(*operation)] =
                    Some(charge(id, fabric, algorithm, *operation, endpoint_delay)?);
            }
        }
        Ok(Self {
            sizes: fabric.dimensions.iter().map(|d| u64::from(d.size)).collect(),
            relays: fabric
                .dimensions
                .iter()
                .map(|d| u64::from(kinds::of(d.kind).hops_per_step()) - 1)
                .collect(),
            bandwidths: fabric.dimensions.iter().map(Dimension::aggregate).collect(),
            memory: fabric.memory_bandwidth,
            charges,
        })
    }

    /// How many dimensions the fabric has.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.sizes.len()
    }

    /// The size of a dimension.
    #[must_use]
    pub fn size(&self, dimension: DimensionId) -> u64 {
        self.sizes[dimension.index()]
    }

    /// How many nodes pass a message on between two neighbours: where they store it first, each adds
    /// a serialisation to a step.
    #[must_use]
    pub fn relays(&self, dimension: DimensionId) -> u64 {
        self.relays[dimension.index()]
    }

    /// The aggregate bandwidth of a dimension.
    #[must_use]
    pub fn bandwidth(&self, dimension: DimensionId) -> allrail_core::Bandwidth {
        self.bandwidths[dimension.index()]
    }

    /// The product of the sizes of the dimensions in `set`.
    #[must_use]
    pub fn product(&self, set: DimensionSet) -> u64 {
        (0..self.sizes.len()).filter(|d| set.bits() >> d & 1 == 1).map(|d| self.sizes[d]).product()
    }

    /// Whether a stage of `operation` on `dimension` is counted below what the links can carry.
    #[must_use]
    pub fn below_physical(&self, operation: Operation, dimension: DimensionId) -> bool {
        self.charges[dimension.index()][index(operation)]
            .is_some_and(|charge| charge.below_physical)
    }

    /// Whether a chunk's stage of `operation` on `dimension` takes no less alone where it is messages: its steps wait
    /// for each other, and what they take is known in closed form.
    #[must_use]
    pub fn in_step(&self, operation: Operation, dimension: DimensionId) -> bool {
        self.charges[dimension.index()][index(operation)].is_some_and(|charge| charge.in_step)
    }

    /// The fixed delay `A` of a stage on `dimension`, or zero where it is not modelled.
    #[must_use]
    pub fn fixed_delay(&self, operation: Operation, dimension: DimensionId) -> Time {
        self.charges[dimension.index()][index(operation)]
            .map_or(Time::ZERO, |charge| charge.latency)
    }

    /// The time of a stage of a chunk of `chunk` bytes whose buffer was divided by the dimensions
    /// in `scattered` (without the stage's own); `None` beyond 2^64 ps.
    ///
    /// # Panics
    /// If the model was not made for `operation`.
    #[must_use]
    pub fn stage(
        &self,
        chunk: Bytes,
        operation: Operation,
        dimension: DimensionId,
        scattered: DimensionSet,
    ) -> Option<StageTime> {
        let charge = self.charges[dimension.index()][index(operation)]
            .expect("the model was made for the plan's operations");
        let divisor = u128::from(self.product(scattered.without(dimension)));
        let bandwidth = self.bandwidths[dimension.index()];
        let time = |(numerator, denominator): Fraction| {
            bandwidth.time_for_fraction(
                u128::from(chunk.count()).checked_mul(u128::from(numerator))?,
                divisor.checked_mul(u128::from(denominator))?,
            )
        };
        let buffer = u64::try_from(u128::from(chunk.count()) / divisor).ok().map(Bytes::new)?;
        let (occupancy, latency) = match charge.unaware {
            Some(unaware) => unaware.time(buffer)?,
            None => {
                let fixed = charge.latency.checked_add(time(charge.fill)?)?;
                let (numerator, denominator) = charge.reduced;
                let reducing = match self.memory {
                    Some(memory) => memory.time_for_fraction(
                        u128::from(chunk.count()).checked_mul(3 * u128::from(numerator))?,
                        divisor.checked_mul(u128::from(denominator))?,
                    )?,
                    None => Time::ZERO,
                };
                (time(charge.busy)?, fixed.checked_add(reducing)?)
            }
        };
        let sent =
            chunk.count() as f64 * (charge.sent.0 as f64 / charge.sent.1 as f64) / divisor as f64;
        Some(StageTime {
            sent: Sent(sent),
            occupancy,
            latency,
            buffer,
            steps: charge.steps,
            halving: charge.halving,
            alone: charge.unaware.is_some(),
        })
    }
}
