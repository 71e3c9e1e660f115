//! What a part of a graph is to planners: one dimension of a product.

use allrail_core::{Bandwidth, Time};

use crate::graph::Wire;
use crate::{Dimension, Kind};

/// A ring whose hops are unlike: `hops` has how many there are of each, and what they are. A step of
/// a ring algorithm takes a hop's latency on average, and the narrowest bounds them all.
pub(super) fn ring(size: u32, links: u32, hops: &[(u64, Wire)]) -> Dimension {
    let used = || hops.iter().filter(|(count, _)| *count > 0);
    let bandwidth = used().map(|(_, wire)| wire.bandwidth).min().expect("a ring has hops");
    let hops: u64 = used().map(|(count, _)| count).sum();
    let latency = used()
        .map(|(count, wire)| u128::from(*count) * u128::from(wire.latency.as_ps()))
        .sum::<u128>();
    let mean = latency / u128::from(hops);
    let latency = Time::from_ps(u64::try_from(mean).expect("no more than the longest"));
    let carried = used()
        .map(|(count, wire)| u128::from(*count) * u128::from(wire.bandwidth.bytes_per_second()))
        .sum::<u128>();
    let mean = u64::try_from(carried / u128::from(hops)).expect("no more than the widest");
    let mean_bandwidth = Bandwidth::from_bytes_per_second(mean).filter(|of| *of > bandwidth);
    let ring = Dimension::new(Kind::Ring, size, links, bandwidth, latency);
    Dimension { mean_bandwidth, ..ring }
}

/// `count` times the latency of a cable, for ways of several.
pub(super) fn cables(count: u64, wire: Wire) -> Time {
    wire.latency.checked_mul(count).unwrap_or(Time::from_ps(u64::MAX))
}
