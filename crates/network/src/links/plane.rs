//! A dimension as the links have it: how its ranks find their links, and how fast these are.

use std::collections::HashMap;
use std::sync::Arc;

use allrail_core::{Bandwidth, Bytes, Rank, Time};
use allrail_fabric::Dimension;
use allrail_fabric::kinds::{self, Reach, Topology};
use allrail_fabric::wiring::{Hop, Wiring};

pub(super) struct Plane {
    pub(super) dimension: Dimension,
    pub(super) topology: &'static dyn Topology,
    /// Product of the sizes of the inner dimensions: the distance of two neighbours' ranks.
    stride: u32,
    pub(super) links_per_instance: u32,
    pub(super) first_link: usize,
    /// Of the first link of a message, with what dividing the step latency leaves over.
    pub(super) first_latency: Time,
    /// Of the others.
    pub(super) link_latency: Time,
    pub(super) pace: Pace,
    /// Which links are slow, and how fast these are; none where all are alike.
    pub(super) slow: Option<(Vec<bool>, Pace)>,
    /// Links that any message can cross.
    pub(super) used_links: u64,
    /// Where it counts over cables: these, and the links of messages so far.
    pub(super) wired: Option<Wired>,
}

impl Plane {
    pub(super) fn new(dimension: &Dimension, npus: u64, stride: u32, first_link: usize) -> Self {
        let topology = kinds::of(dimension.kind);
        let wired = dimension.wiring.as_ref().map(Wired::new);
        let cables = wired.as_ref().map(|wired| wired.hops.iter().flatten().count() as u64);
        let hops = u64::from(topology.hops_per_step());
        let per_link = dimension.latency.as_ps() / hops;
        Self {
            topology,
            stride,
            links_per_instance: topology.link_count(dimension),
            first_link,
            first_latency: Time::from_ps(dimension.latency.as_ps() - per_link * (hops - 1))
                + dimension.message_latency,
            link_latency: Time::from_ps(per_link),
            pace: Pace::of(topology.link_bandwidth(dimension)),
            slow: None,
            used_links: cables.unwrap_or(npus * topology.links_per_npu(dimension) * hops),
            wired,
            dimension: dimension.clone(),
        }
    }

    /// A rank's coordinate on the dimension, and which of its instances it is in.
    pub(super) fn locate(&self, rank: Rank) -> (u32, u32) {
        let coordinate = rank.0 / self.stride % self.dimension.size;
        let below = rank.0 % self.stride;
        let above = rank.0 / (self.stride * self.dimension.size);
        (coordinate, above * self.stride + below)
    }

    /// How long a message takes that shares nothing.
    pub(super) fn alone(&self, from: u32, to: u32, bytes: Bytes) -> Time {
        let mut path = Vec::new();
        kinds::path(&self.dimension, from, to, &mut path);
        let steps = path.len() as u64 / u64::from(self.topology.hops_per_step());
        let (whole, size) = (self.dimension.aggregate(), u64::from(self.dimension.size));
        let share = if self.topology.reach() == Reach::Peers { size - 1 } else { 1 };
        let rate = u128::from(whole.fraction(1, share).bytes_per_second());
        let nanoseconds = u128::from(bytes.count()) * 1_000_000_000 / rate;
        let nanoseconds = u64::try_from(nanoseconds).expect("the driver bounds a message's time");
        let latency = self.dimension.latency.checked_mul(steps).expect("few steps");
        latency + self.dimension.message_latency + Time::from_ns(nanoseconds)
    }
}

/// Cables that all instances of a dimension share.
pub(super) struct Wired {
    wiring: Wiring,
    pub(super) hops: Vec<Option<Hop>>,
    /// By line and the two places.
    routes: HashMap<[u32; 3], Arc<[u32]>>,
}

impl Wired {
    fn new(wiring: &Wiring) -> Self {
        let hops = (0..wiring.hops()).map(|hop| wiring.hop(hop)).collect();
        Self { wiring: wiring.clone(), hops, routes: HashMap::new() }
    }

    pub(super) fn route(&mut self, line: u32, from: u32, to: u32) -> Arc<[u32]> {
        let Self { wiring, routes, .. } = self;
        let found = || wiring.route(line, from, to).into();
        Arc::clone(routes.entry([line, from, to]).or_insert_with(found))
    }
}

/// How fast a link is.
pub(super) struct Pace {
    pub(super) bandwidth: Bandwidth,
    /// The last message's size and its serialisation: most are alike.
    last: (Bytes, Time),
}

impl Pace {
    pub(super) const fn of(bandwidth: Bandwidth) -> Self {
        Self { bandwidth, last: (Bytes::new(0), Time::ZERO) }
    }

    pub(super) fn serialisation(&mut self, bytes: Bytes) -> Time {
        if self.last.0 != bytes {
            let time = self.bandwidth.time_for(bytes);
            self.last = (bytes, time.expect("the driver bounds the time of a message"));
        }
        self.last.1
    }
}
