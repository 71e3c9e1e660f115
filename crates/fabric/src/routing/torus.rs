//! Torus: every minimal path, free of deadlock (after Linder and Harden, IEEE Trans. Computers 1991).
//!
//! In every dimension but the first a packet goes in one direction all its way. These directions
//! choose one of `2^(n−1)` *networks*. Within a network each of these dimensions is used in one
//! direction only, so that packets cannot come round except by a cable that closes a ring. Whenever a
//! packet takes such a cable it rises to a new *level*, which starts with that cable; it does so once
//! in a dimension at most. Without these cables no circle is left, and levels only rise.
//!
//! ```text
//! channels = 2^(n−1) · (1 + dimensions of more than 2)      6 for two dimensions, 16 for three
//! channel  = network · levels + level
//! ```
//!
//! Where both directions are as short, or a dimension needs no move, the packet may choose its network
//! at its source. Next hops are computed from coordinates.

use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};
use allrail_core::counted;

/// See the module.
#[derive(Clone, Debug)]
pub struct TorusRouting {
    shape: Vec<u32>,
    /// For each node, its place in every dimension.
    places: Vec<u32>,
    /// For each node and dimension, the links forwards and backwards.
    links: Vec<u32>,
    levels: u32,
    channels: u32,
}

/// The packet has chosen its network.
const CHOSEN: u32 = 1;
/// Where the network stands in the state; the level stands above it.
const NETWORK: u32 = 1;
const LEVEL: u32 = 3;

impl TorusRouting {
    /// For the torus `shape`, its NPUs numbered with the last dimension innermost; `None` if `graph`
    /// is not a whole one.
    #[must_use]
    pub fn new(graph: &Graph, shape: &[u32]) -> Option<Self> {
        let npus = shape.iter().try_fold(1u32, |npus, &size| npus.checked_mul(size))?;
        if graph.npus() != npus || graph.nodes() != npus as usize {
            return None;
        }
        let levels = 1 + shape.iter().filter(|&&size| size > 2).count() as u32;
        let channels = levels << (shape.len() - 1);
        let (mut places, mut links) = (Vec::new(), Vec::new());
        for node in (0..npus).map(NodeId) {
            let mut stride = npus;
            for &size in shape {
                stride /= size;
                let place = node.0 / stride % size;
                places.push(place);
                for next in [(place + 1) % size, (place + size - 1) % size] {
                    let next = NodeId(node.0 - place * stride + next * stride);
                    let found = graph.neighbours(node).iter().find(|&&(to, _)| to == next)?;
                    links.push(found.1);
                }
            }
        }
        Some(Self { shape: shape.to_vec(), places, links, levels, channels })
    }

    /// With fewer channels: a packet takes the rest of its channel's number by `channels`. This can
    /// deadlock.
    #[must_use]
    pub fn with_channels(mut self, channels: u8) -> Self {
        self.channels = u32::from(channels);
        self
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        4 * (self.places.len() + self.links.len())
    }

    fn places(&self, node: NodeId) -> &[u32] {
        let dimensions = self.shape.len();
        &self.places[node.index() * dimensions..][..dimensions]
    }

    /// Appends the hops of a packet in `network`, each on a shortest path.
    fn onward(
        &self,
        node: NodeId,
        network: u32,
        level: u32,
        destination: NodeId,
        out: &mut Vec<Hop>,
    ) {
        let from = out.len();
        let first_link = node.index() * self.shape.len() * 2;
        let mut left = 0;
        let places = self.places(node).iter().zip(self.places(destination));
        for (d, ((&at, &to), &size)) in places.zip(&self.shape).enumerate() {
            if at == to {
                continue;
            }
            let (steps, shortest) = way(size, at, to);
            left += steps;
            let directions = match d {
                0 => shortest,
                _ => [backwards(network, d) == 0, backwards(network, d) == 1],
            };
            for (direction, end) in [(0, size - 1), (1, 0)] {
                if !directions[direction] {
                    continue;
                }
                let level = level + u32::from(at == end && size > 2);
                let mut channel = network * self.levels + level;
                if channel >= self.channels {
                    channel %= self.channels;
                }
                out.push(Hop {
                    link: self.links[first_link + 2 * d + direction],
                    channel: channel as u8,
                    weight: 0,
                    state: RouteState(CHOSEN | network << NETWORK | level << LEVEL),
                });
            }
        }
        for hop in &mut out[from..] {
            hop.weight = left.min(u32::from(u8::MAX)) as u8;
        }
    }
}

/// The steps from place `at` to another place `to` of a ring of `size` by the shorter way, and whether
/// it leads forwards, backwards, or either. A ring of 2 is one cable: forwards from 0.
fn way(size: u32, at: u32, to: u32) -> (u32, [bool; 2]) {
    let forwards = if to >= at { to - at } else { to + size - at };
    let back = size - forwards;
    if size == 2 {
        return (1, [at == 0, at == 1]);
    }
    (forwards.min(back), [forwards <= back, back <= forwards])
}

/// 1 if packets of a network go backwards in dimension `d`, which is not the first.
fn backwards(network: u32, d: usize) -> u32 {
    network >> (d - 1) & 1
}

impl Routing for TorusRouting {
    fn about(&self) -> String {
        let channels = counted(self.channels, "channel");
        format!("minimal, adaptive, {channels} by direction and rings closed")
    }

    fn channels(&self) -> u8 {
        self.channels as u8
    }

    fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        _draw: u32,
        out: &mut Vec<Hop>,
    ) {
        if state.0 & CHOSEN != 0 {
            let network = state.0 >> NETWORK & 3;
            self.onward(node, network, state.0 >> LEVEL, destination, out);
            return;
        }
        let (here, there) = (self.places(node), self.places(destination));
        let shortest = |network: u32, d: usize| {
            let (at, to) = (here[d], there[d]);
            at == to || way(self.shape[d], at, to).1[backwards(network, d) as usize]
        };
        for network in 0..1 << (self.shape.len() - 1) {
            if (1..self.shape.len()).all(|d| shortest(network, d)) {
                self.onward(node, network, 0, destination, out);
            }
        }
    }
}
