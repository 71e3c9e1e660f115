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

use allrail_core::{Bytes, DimensionId, Time, counted, either};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Contention, Dimension, Fabric, Kind};

use crate::algorithm::{self, Algorithm, LinkTime};
use crate::unaware::Unaware;
use crate::{CollectiveError, Operation, wired};

/// Beyond this size, a combination without closed form is refused: its messages are too many.
const LARGEST_ENUMERATED: u32 = 512;

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

/// A fraction of a buffer.
type Fraction = (u64, u64);

/// What a dimension charges for one operation, as fractions of the buffer.
#[derive(Clone, Copy, Debug)]
struct Charge {
    sent: Fraction,
    busy: Fraction,
    fill: Fraction,
    steps: u32,
    halving: bool,
    latency: Time,
    below_physical: bool,
    /// Whether messages take as long, at least: see [`StageModel::in_step`].
    in_step: bool,
    /// What the steps that reduce have to, one after the other.
    reduced: Fraction,
    /// In place of all of these but `sent`, without contention.
    unaware: Option<Unaware>,
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

fn charge(
    id: DimensionId,
    fabric: &Fabric,
    algorithm: &dyn Algorithm,
    operation: Operation,
    endpoint_delay: Time,
) -> Result<Charge, CollectiveError> {
    let dimension = fabric.dimension(id);
    let size = dimension.size;
    let cost = algorithm.cost(operation, size);
    let overflow = || CollectiveError::NotModelled {
        dimension: id,
        why: "the latency of its steps is longer than 213 days; lower `latency`".to_owned(),
    };
    let fixed_delay = |steps: u64, latencies: u64| {
        let endpoints = endpoint_delay.checked_mul(steps + 1);
        let step = dimension.latency.checked_add(dimension.message_latency);
        let links = step.and_then(|step| step.checked_mul(latencies));
        links.zip(endpoints).and_then(|(a, b)| a.checked_add(b)).ok_or_else(overflow)
    };
    let known = algorithm.on_links(dimension.kind, operation, size);
    // Block by block, each that the busiest rank sends is a step.
    let (steps, latencies) = if known.block_by_block {
        let messages = cost.sent.0 * u64::from(size) / cost.sent.1;
        (messages, messages)
    } else {
        (u64::from(cost.steps), u64::from(cost.latencies))
    };
    let latency = fixed_delay(steps, latencies)?;
    let mut charge = Charge {
        sent: cost.sent,
        busy: cost.sent,
        fill: cost.fill,
        steps: u32::try_from(steps).unwrap_or(u32::MAX),
        halving: known.halving,
        latency,
        below_physical: false,
        in_step: false,
        reduced: reduced(&cost, operation, u64::from(size)),
        unaware: None,
    };
    if let Some(wiring) = &dimension.wiring {
        let counted = wired::count(id, dimension, wiring, algorithm, operation)?;
        (charge.busy, charge.fill) = (counted.busy, counted.fill);
        let ends = endpoint_delay.checked_mul(steps + 1);
        let messages = dimension.message_latency.checked_mul(latencies);
        let all = ends.and_then(|ends| ends.checked_add(counted.latency)?.checked_add(messages?));
        charge.latency = all.ok_or_else(overflow)?;
        return Ok(charge);
    }
    if dimension.in_network_reduction {
        if let Some((sent, steps)) = in_network(operation, u64::from(size))
            && let busy = through_sums(dimension, sent)
            && less(busy, cost.sent)
        {
            charge.sent = sent;
            charge.busy = busy;
            charge.fill = (0, 1);
            charge.steps = u32::try_from(steps).expect("one or two");
            charge.halving = false;
            charge.latency = fixed_delay(steps, steps)?;
        }
        return Ok(charge);
    }
    let LinkTime { busy, fill } = link_bound(id, dimension, algorithm, operation)?;
    (charge.busy, charge.fill) = (busy, fill);
    let one_by_one = known.time.is_none() && kinds::of(dimension.kind).reach() != Reach::Switch;
    let waits = operation != Operation::Broadcast || steps == 1;
    charge.in_step = waits && fill.0 == 0 && !one_by_one && fabric.memory_bandwidth.is_none();
    if dimension.contention == Contention::None {
        // What ASTRA-sim does not count so is counted on its links.
        if let Some(unaware) = Unaware::new(fabric, id, algorithm, operation, endpoint_delay) {
            charge.below_physical = less(unaware.busy(), add(charge.busy, charge.fill));
            charge.unaware = Some(unaware);
        }
    }
    Ok(charge)
}

/// What a rank has to reduce, as a fraction of the buffer: the messages of one step side by side.
fn reduced(cost: &algorithm::Cost, operation: Operation, size: u64) -> Fraction {
    let at_once = match operation {
        Operation::ReduceScatter => cost.steps == 1,
        Operation::AllReduce => cost.steps == 2,
        Operation::AllGather | Operation::AllToAll | Operation::Broadcast => return (0, 1),
    };
    (if at_once { 1 } else { size - 1 }, size)
}

fn less(a: Fraction, b: Fraction) -> bool {
    u128::from(a.0) * u128::from(b.1) < u128::from(b.0) * u128::from(a.1)
}

fn add(a: Fraction, b: Fraction) -> Fraction {
    if b.0 == 0 { a } else { (a.0 * b.1 + b.0 * a.1, a.1 * b.1) }
}

/// For how long what is sent keeps links, which sums pass more slowly: as a fraction of the buffer.
fn through_sums(dimension: &Dimension, sent: Fraction) -> Fraction {
    const PARTS: u64 = 1_000_000;
    let Some(reduced) = dimension.reduction_bandwidth else { return sent };
    let whole = u128::from(dimension.aggregate().bytes_per_second()) * u128::from(PARTS);
    let times = whole.div_ceil(u128::from(reduced.bytes_per_second()));
    let times = u64::try_from(times).unwrap_or(u64::MAX);
    (sent.0.saturating_mul(times), sent.1.saturating_mul(PARTS))
}

/// Bytes and steps with in-network reduction.
fn in_network(operation: Operation, size: u64) -> Option<(Fraction, u64)> {
    match operation {
        Operation::ReduceScatter | Operation::AllGather => Some(((size + 1, 2 * size), 1)),
        Operation::AllReduce => Some(((1, 1), 2)),
        Operation::Broadcast => Some(((1, 1), 1)),
        Operation::AllToAll => None,
    }
}

/// What the most loaded links make of an algorithm: its closed form; where it has none, on the one link
/// to a switch what is sent, elsewhere what is counted.
fn link_bound(
    id: DimensionId,
    dimension: &Dimension,
    algorithm: &dyn Algorithm,
    operation: Operation,
) -> Result<LinkTime, CollectiveError> {
    match algorithm.on_links(dimension.kind, operation, dimension.size).time {
        Some(time) => Ok(time),
        None if kinds::of(dimension.kind).reach() == Reach::Switch => {
            Ok(LinkTime::as_sent(&algorithm.cost(operation, dimension.size)))
        }
        None => {
            Ok(LinkTime { busy: enumerate(id, dimension, algorithm, operation)?, fill: (0, 1) })
        }
    }
}

fn too_large(id: DimensionId, dimension: &Dimension, algorithm: &dyn Algorithm) -> CollectiveError {
    CollectiveError::NotModelled {
        dimension: id,
        why: format!(
            "the time of `{}` on a {:?} dimension has no closed form, and {} {are} more than \
             the {LARGEST_ENUMERATED} whose messages are counted; use its topology-aware \
             algorithm",
            algorithm.tag(),
            dimension.kind,
            counted(dimension.size, "NPU"),
            are = either(&dimension.size, "is", "are")
        ),
    }
}

/// The sum over the steps of the most loaded link's share of the buffer, in units of the
/// aggregate bandwidth.
fn enumerate(
    id: DimensionId,
    dimension: &Dimension,
    algorithm: &dyn Algorithm,
    operation: Operation,
) -> Result<Fraction, CollectiveError> {
    if dimension.size > LARGEST_ENUMERATED {
        return Err(too_large(id, dimension, algorithm));
    }
    let links = kinds::of(dimension.kind);
    let program = algorithm.program(operation, dimension.size);
    let mut load = vec![0u64; links.link_count(dimension) as usize];
    let mut path = Vec::new();
    let mut blocks = 0u64;
    for step in 0..program.step_count() {
        load.fill(0);
        for (source, steps) in (0u32..).zip(&program.steps) {
            for send in &steps[step].sends {
                kinds::path(dimension, source, send.to, &mut path);
                for link in &path {
                    load[link.0 as usize] += u64::from(send.blocks.len());
                }
            }
        }
        blocks += load.iter().max().copied().unwrap_or(0);
    }
    Ok((blocks * links.links_per_npu(dimension), u64::from(program.blocks)))
}
