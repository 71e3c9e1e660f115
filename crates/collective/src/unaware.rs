//! The time of a stage as ASTRA-sim's congestion-unaware backend counts it (`contention: none`).
//!
//! Each step takes as long as one of its messages, however many leave an NPU at once:
//! `hops · latency + ⌊m / bandwidth⌋` in whole nanoseconds, where a message has all of a ring's or a
//! switch's links to itself and one peer's share of a fully connected dimension's. The endpoint's
//! delay comes before every step and once after the last. A step that reduces what has arrived reads
//! twice and writes once at the fabric's `memory_bandwidth`, each in whole nanoseconds; at 500 TB/s, the
//! default of its memory, if that is left out.
//!
//! With a `window`, messages to everyone are followed one by one ([`Pace`]): each takes its own hops.
//!
//! Read from its behaviour: the published tutorial cases come out to the nanosecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
use allrail_fabric::Fabric;
use allrail_fabric::kinds::{self, Reach};

use crate::algorithm::{Algorithm, Pattern};
use crate::{Operation, Pace};

/// How one operation of one algorithm is counted on one dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unaware {
    pattern: Pattern,
    operation: Operation,
    size: u64,
    /// Bytes per second of one message.
    rate: u64,
    latency: Time,
    /// Of a message, beside its links'.
    message: Time,
    endpoint_delay: Time,
    reach: Reach,
    /// Aggregate bandwidth over that of one message.
    share: u64,
    /// Bytes per second of an NPU's memory.
    memory: u64,
    /// Of messages to everyone, how many are under way.
    window: Option<u32>,
}

/// Bytes per second of an NPU's memory where nobody says otherwise.
const MEMORY: u64 = 500_000_000_000_000;

impl Unaware {
    /// `None` for an algorithm or operation that ASTRA-sim does not count so.
    pub(crate) fn new(
        fabric: &Fabric,
        dimension: DimensionId,
        algorithm: &dyn Algorithm,
        operation: Operation,
        endpoint_delay: Time,
    ) -> Option<Self> {
        let dimension = fabric.dimension(dimension);
        let pattern = algorithm.on_links(dimension.kind, operation, dimension.size).unaware?;
        if operation == Operation::Broadcast {
            return None;
        }
        let reach = kinds::of(dimension.kind).reach();
        let size = u64::from(dimension.size);
        let share = if reach == Reach::Peers { size - 1 } else { 1 };
        Some(Self {
            pattern,
            operation,
            size,
            rate: dimension.aggregate().fraction(1, share).bytes_per_second(),
            latency: dimension.latency,
            message: dimension.message_latency,
            endpoint_delay,
            reach,
            share,
            memory: fabric.memory_bandwidth.map_or(MEMORY, Bandwidth::bytes_per_second),
            window: fabric.window.filter(|_| pattern == Pattern::Direct),
        })
    }

    /// Its serialisations as a fraction of the buffer, in units of the aggregate bandwidth.
    pub(crate) fn busy(&self) -> (u64, u64) {
        let halves = if self.operation == Operation::AllReduce { 2 } else { 1 };
        match (self.pattern, self.operation) {
            (Pattern::Direct, _) => (halves * self.share, self.size),
            (Pattern::Ring, Operation::AllToAll) => ((self.size - 1) * self.share, 2),
            _ => (halves * (self.size - 1) * self.share, self.size),
        }
    }

    /// Its steps with a buffer of `buffer` bytes: message, hops, whether it is reduced on arrival
    /// (with the bytes that count for that), and how many times.
    fn steps(&self, buffer: u64) -> Vec<Step> {
        let part = buffer / self.size;
        let halfway = if self.reach == Reach::Neighbours { self.size / 2 } else { 1 };
        let reduces = matches!(self.operation, Operation::AllReduce | Operation::ReduceScatter);
        let both = self.operation == Operation::AllReduce;
        let step = |message, hops, reduced, times| Step { message, hops, reduced, times };
        match self.pattern {
            Pattern::Ring if self.operation == Operation::AllToAll => {
                vec![step(part, 1, 0, self.size * (self.size - 1) / 2)]
            }
            Pattern::Ring => {
                let first = step(part, 1, if reduces { part } else { 0 }, self.size - 1);
                let second = step(part, 1, 0, self.size - 1);
                if both { vec![first, second] } else { vec![first] }
            }
            Pattern::Direct => {
                let first = step(part, halfway, if reduces { part } else { 0 }, 1);
                let second = step(part, halfway, 0, 1);
                if both { vec![first, second] } else { vec![first] }
            }
            Pattern::HalvingDoubling => {
                let rounds = u64::from(self.size.next_power_of_two().ilog2());
                let hops = |distance: u64| match self.reach {
                    Reach::Neighbours => distance.min(self.size.saturating_sub(distance)).max(1),
                    Reach::Peers | Reach::Switch => 1,
                };
                let mut steps = Vec::new();
                if reduces {
                    for round in 0..rounds {
                        let message = buffer >> (round + 1);
                        let reduced = if round + 1 < rounds { message / 2 } else { 0 };
                        steps.push(step(message, hops(1 << round), reduced, 1));
                    }
                }
                if both || !reduces {
                    for round in 0..rounds {
                        steps.push(step(part << round, hops(1 << (rounds - 1 - round)), 0, 1));
                    }
                }
                steps
            }
        }
    }

    /// How long the dimension is occupied, and for how long after that the stage goes on.
    pub(crate) fn time(&self, buffer: Bytes) -> Option<(Time, Time)> {
        let (mut occupancy, mut latency, mut steps) = (0u64, 0u64, 0u64);
        for step in self.steps(buffer.count()) {
            let serialisation = u128::from(step.message) * 1_000_000_000 / u128::from(self.rate);
            let serialisation = u64::try_from(serialisation).ok()?.checked_mul(1_000)?;
            occupancy = occupancy.checked_add(serialisation.checked_mul(step.times)?)?;
            let access = u128::from(step.reduced) * 1_000_000_000 / u128::from(self.memory);
            let memory = u64::try_from(access).ok()?.checked_mul(3_000)?;
            let links = self.latency.as_ps().checked_mul(step.hops)?;
            let fixed = links.checked_add(self.message.as_ps())?.checked_add(memory)?;
            latency = latency.checked_add(fixed.checked_mul(step.times)?)?;
            steps += step.times;
        }
        let occupancy = Time::from_ps(occupancy);
        if let Some(window) = self.window {
            return Some((occupancy, self.followed(window, buffer.count())? - occupancy));
        }
        let endpoints = self.endpoint_delay.checked_mul(steps + 1)?;
        Some((occupancy, Time::from_ps(latency).checked_add(endpoints)?))
    }

    /// How long messages to everyone take from an NPU under a window: all NPUs are alike, so one hears of the
    /// others what it does itself.
    fn followed(&self, window: u32, buffer: u64) -> Option<Time> {
        let others = self.size - 1;
        let steps = self.steps(buffer);
        let half = u32::try_from(others).ok()?;
        let mut pace = Pace::new(window, half, half.checked_mul(u32::try_from(steps.len()).ok()?)?);
        // Of every message the time on its links, and of those of a step how long they are reduced.
        let taken = |message: u64| -> Option<Time> {
            let away = message % others + 1;
            let hops = if self.reach == Reach::Neighbours { away.min(self.size - away) } else { 1 };
            let bytes = u128::from(steps[0].message);
            let serialisation =
                u64::try_from(bytes * 1_000_000_000 / u128::from(self.rate)).ok()?;
            let links = self.latency.checked_mul(hops)?.checked_add(self.message)?;
            links.checked_add(Time::from_ps(serialisation.checked_mul(1_000)?))
        };
        let reduced = |message: u64| -> Option<Time> {
            let bytes = u128::from(steps[usize::from(message >= others)].reduced);
            let access = u64::try_from(bytes * 1_000_000_000 / u128::from(self.memory)).ok()?;
            self.endpoint_delay.checked_add(Time::from_ps(access.checked_mul(3_000)?))
        };
        // What has come is taken in before what is reduced then.
        let mut events = BinaryHeap::new();
        let leave = |now: Time, messages: std::ops::Range<u64>, events: &mut BinaryHeap<_>| {
            for message in messages {
                events.push(Reverse((now.checked_add(taken(message)?)?, false, message)));
            }
            Some(())
        };
        leave(self.endpoint_delay, 0..u64::from(pace.begin()), &mut events)?;
        while let Some(Reverse((now, is_reduced, message))) = events.pop() {
            if !is_reduced {
                pace.arrived();
                events.push(Reverse((now.checked_add(reduced(message)?)?, true, message)));
                continue;
            }
            let left = u64::from(pace.sent());
            let more = u64::from(pace.reduced());
            leave(now, left..left + more, &mut events)?;
            if pace.is_over() {
                return Some(now);
            }
        }
        None
    }
}

struct Step {
    message: u64,
    hops: u64,
    reduced: u64,
    times: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::named;
    use allrail_fabric::{Contention, Dimension, Kind};

    /// Published: tutorial 3-2, 633.217 us for four chunks after 1 ns of compute; and the sample
    /// inputs `switch`, `ring` at 16 MiB.
    #[test]
    fn published_cases_to_the_nanosecond() {
        let dimension = |kind, size, links, latency| Dimension {
            contention: Contention::None,
            ..Dimension::new(
                kind,
                size,
                links,
                "50 GiB/s".parse().expect("a bandwidth"),
                Time::from_ns(latency),
            )
        };
        let total = |dimension: &Dimension, name: &str, chunk: u64, window: Option<u32>| {
            let algorithm = named(name).expect("known");
            let delay = Time::from_ns(10);
            let fabric = Fabric {
                memory_bandwidth: None,
                window,
                name: String::new(),
                dimensions: vec![dimension.clone()],
            };
            let first = DimensionId(0);
            let unaware = Unaware::new(&fabric, first, algorithm, Operation::AllReduce, delay);
            let (a, b) = unaware.and_then(|u| u.time(Bytes::new(chunk))).expect("counted");
            (a + b).as_ps() * 4 / 1_000 + 1
        };
        assert_eq!(total(&dimension(Kind::Switch, 64, 1, 1000), "direct", 1 << 28, None), 633_217);
        assert_eq!(
            total(&dimension(Kind::Switch, 8, 1, 1000), "halving_doubling", 1 << 18, None),
            58_449
        );
        assert_eq!(
            total(&dimension(Kind::FullyConnected, 8, 7, 500), "direct", 1 << 18, None),
            9_001
        );
        // A window as wide as there are others is none where all messages take as long.
        let everyone = total(&dimension(Kind::Switch, 64, 1, 1000), "direct", 1 << 28, Some(63));
        assert_eq!(everyone, 633_217);
        assert_eq!(total(&dimension(Kind::Ring, 8, 2, 500), "ring", 1 << 22, None), 302_077);
        assert_eq!(total(&dimension(Kind::Ring, 8, 2, 500), "ring", 1 << 28, None), 17_534_229);
    }
}
