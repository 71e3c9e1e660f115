//! How busy the directed links of a network are: by classes of alike ones, and the busiest by name.
//!
//! ```text
//! utilisation of a link = the seconds that its bytes take it / the seconds of the window
//! ```
//!
//! Of a fabric of dimensions a class is a dimension; of a graph it is what the ends of links are, and
//! their bandwidth. Bytes count when a message starts, so a message that a window cuts counts whole
//! where it starts: over several windows that is made good, and one alone may be off by as much as
//! was under way at its ends.

use std::collections::BTreeMap;

use allrail_core::{Bandwidth, DimensionId, Time};
use allrail_fabric::Fabric;
use allrail_fabric::graph::{Graph, NodeId};
use allrail_fabric::kinds;
use allrail_fabric::wiring::{Hop, Wiring};
use allrail_network::Links;
use allrail_workload::SlowLinks;

use crate::traffic::result::LinkUse;
use crate::training::outcome::result::{BusyLink, LinkClass};

/// So many links are named.
const NAMED: usize = 10;

/// Whose links they are, in the order of [`allrail_network::NetworkModel::link_seconds`].
pub(crate) enum Wires<'a> {
    /// Those of the network model `links`.
    Dimensions(&'a Fabric, Option<&'a SlowLinks>),
    /// One plane of a graph.
    Graph(&'a Graph),
}

/// What tells classes apart: the dimension, or the ends; and the bandwidth.
type Key = (u32, Bandwidth);

#[derive(Default)]
struct Sum {
    links: u64,
    seconds: f64,
    most: f64,
    busiest: usize,
}

/// The classes, and the busiest links; `seconds` are what each link's bytes take it.
pub(super) fn busy(
    wires: &Wires<'_>,
    seconds: &[f64],
    span: Time,
) -> (Vec<LinkClass>, Vec<BusyLink>) {
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    for (link, seconds) in seconds.iter().enumerate() {
        let sum = sums.entry(wires.key(link)).or_default();
        sum.links += 1;
        sum.seconds += seconds;
        if *seconds > sum.most {
            (sum.most, sum.busiest) = (*seconds, link);
        }
    }
    let share = |seconds: f64| if span > Time::ZERO { seconds / span.as_s() } else { 0.0 };
    let class = |(key, sum): (&Key, &Sum)| {
        let links = wires.used(*key).unwrap_or(sum.links);
        let busiest = if sum.most > 0.0 { wires.name(sum.busiest) } else { String::new() };
        let mean = share(sum.seconds / links as f64);
        LinkClass {
            name: wires.class(*key),
            links,
            bandwidth_gbps: key.1.gbps(),
            used: LinkUse { mean, max: share(sum.most), busiest },
        }
    };
    let mut order: Vec<usize> = (0..seconds.len()).filter(|link| seconds[*link] > 0.0).collect();
    order.sort_by(|a, b| seconds[*b].total_cmp(&seconds[*a]).then(a.cmp(b)));
    order.truncate(NAMED);
    let named = order.into_iter().map(|link| BusyLink {
        name: wires.name(link),
        bandwidth_gbps: wires.bandwidth(link).gbps(),
        utilisation: share(seconds[link]),
    });
    (sums.iter().map(class).collect(), named.collect())
}

impl Wires<'_> {
    fn key(&self, link: usize) -> Key {
        match self {
            Self::Dimensions(fabric, _) => {
                let (id, within) = place(fabric, link);
                let dimension = fabric.dimension(id);
                let cable = dimension.wiring.as_ref().and_then(|cables| hop(cables, within));
                let alike = || kinds::of(dimension.kind).link_bandwidth(dimension);
                (id.0, cable.map_or_else(alike, |cable| cable.bandwidth))
            }
            Self::Graph(graph) => {
                let link = graph.link(u32::try_from(link).expect("fewer than 2^32 links"));
                let switch = |node: NodeId| u32::from(node.0 >= graph.npus());
                (2 * switch(link.from) + switch(link.to), link.wire.bandwidth)
            }
        }
    }

    fn bandwidth(&self, link: usize) -> Bandwidth {
        let (_, whole) = self.key(link);
        let Self::Dimensions(fabric, Some(slow)) = self else { return whole };
        let (id, within) = place(fabric, link);
        if slow.link(id, within as u64) { slow.bandwidth(whole) } else { whole }
    }

    /// How many links of a class messages can take, where not all of them.
    fn used(&self, (number, _): Key) -> Option<u64> {
        let Self::Dimensions(fabric, _) = self else { return None };
        let dimension = fabric.dimension(DimensionId(number));
        if dimension.wiring.is_some() {
            return None;
        }
        let topology = kinds::of(dimension.kind);
        let each = topology.links_per_npu(dimension) * u64::from(topology.hops_per_step());
        Some(fabric.npus() * each)
    }

    fn class(&self, (number, _): Key) -> String {
        match self {
            Self::Dimensions(..) => DimensionId(number).name(),
            Self::Graph(_) => {
                let what = |switch: bool| if switch { "switch" } else { "NPU" };
                format!("{} to {}", what(number >= 2), what(number % 2 == 1))
            }
        }
    }

    fn name(&self, link: usize) -> String {
        match self {
            Self::Dimensions(fabric, _) => {
                let (id, within) = place(fabric, link);
                let dimension = fabric.dimension(id);
                if let Some(cables) = &dimension.wiring {
                    let name = |node: u32| match node.checked_sub(cables.npus()) {
                        None => format!("port {node}"),
                        Some(switch) => format!("switch {switch}"),
                    };
                    let [from, to] = hop(cables, within).map_or([0, 0], |cable| cable.ends);
                    return format!("{} to {} ({})", name(from), name(to), id.name());
                }
                let links = kinds::of(dimension.kind).link_count(dimension) as usize;
                let inner = fabric.dimensions[..id.index()].iter().map(|d| u64::from(d.size));
                let stride: u64 = inner.product();
                let process_group = (within / links) as u64;
                let first = process_group / stride * stride * u64::from(dimension.size)
                    + process_group % stride;
                let ends = kinds::ends(dimension)[within % links];
                let [from, to] = ends.unwrap_or_default().map(|end| match end {
                    Some(place) => format!("NPU {}", first + u64::from(place) * stride),
                    None => "switch".to_owned(),
                });
                format!("{from} to {to} ({})", id.name())
            }
            Self::Graph(graph) => {
                let link = graph.link(u32::try_from(link).expect("fewer than 2^32 links"));
                let name = |node: NodeId| match node.0.checked_sub(graph.npus()) {
                    None => format!("NPU {}", node.0),
                    Some(switch) => format!("switch {switch}"),
                };
                format!("{} to {}", name(link.from), name(link.to))
            }
        }
    }
}

fn hop(cables: &Wiring, number: usize) -> Option<Hop> {
    cables.hop(u32::try_from(number).ok()?)
}

/// The dimension of a link of the network model `links`, and its number there.
fn place(fabric: &Fabric, link: usize) -> (DimensionId, usize) {
    let mut within = link;
    for id in fabric.ids() {
        let dimension = fabric.dimension(id);
        let all = Links::links_on(fabric, dimension) as usize;
        if within < all {
            return (id, within);
        }
        within -= all;
    }
    unreachable!("a link is on one of the dimensions")
}
