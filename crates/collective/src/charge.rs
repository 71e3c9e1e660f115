//! What one dimension charges for one operation of an algorithm: the closed form where there is one, else what its
//! messages add up to on the dimension's links or cables.

use allrail_core::{DimensionId, Time, counted, either};
use allrail_fabric::kinds::{self, Reach};
use allrail_fabric::{Contention, Dimension, Fabric};

use crate::algorithm::{self, Algorithm, LinkTime};
use crate::error::CollectiveError;
use crate::kind::Operation;
use crate::unaware::Unaware;
use crate::wired;

/// Beyond this size, a combination without closed form is refused: its messages are too many.
const LARGEST_ENUMERATED: u32 = 512;

/// A fraction of a buffer.
pub(crate) type Fraction = (u64, u64);

/// What a dimension charges for one operation, as fractions of the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    pub(crate) sent: Fraction,
    pub(crate) busy: Fraction,
    pub(crate) fill: Fraction,
    pub(crate) steps: u32,
    pub(crate) halving: bool,
    pub(crate) latency: Time,
    pub(crate) below_physical: bool,
    /// Whether messages take as long, at least: see [`crate::StageModel::in_step`].
    pub(crate) in_step: bool,
    /// What the steps that reduce have to, one after the other.
    pub(crate) reduced: Fraction,
    /// In place of all of these but `sent`, without contention.
    pub(crate) unaware: Option<Unaware>,
}

/// What a dimension charges for an operation of the algorithm that it runs.
///
/// # Errors
/// A combination whose time is not modelled.
pub(crate) fn charge(
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
