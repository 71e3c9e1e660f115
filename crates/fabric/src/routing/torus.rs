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

    /// The steps from place `at` to place `to` of a ring of `size` by the shorter way, and whether it
    /// leads forwards, backwards, or either. A ring of 2 is one cable: forwards from 0.
    fn way(size: u32, at: u32, to: u32) -> (u32, [bool; 2]) {
        let forwards = if to >= at { to - at } else { to + size - at };
        let steps = forwards.min(size - forwards);
        let directions = match steps {
            0 => [false; 2],
            _ if size == 2 => [at == 0, at == 1],
            _ => [steps == forwards, steps + forwards == size],
        };
        (steps, directions)
    }
}

impl Routing for TorusRouting {
    fn about(&self) -> String {
        format!("minimal, adaptive, {} channels by direction and rings closed", self.channels)
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
        let dimensions = self.shape.len();
        let (here, there) = (self.places(node), self.places(destination));
        // What leads nearer, whatever the network: dimension, direction, and whether it closes a ring.
        let mut moves = [(0, 0, false); 6];
        let (mut count, mut weight) = (0, 0);
        // For each dimension but the first, a bit: whether its packets may go forwards, backwards.
        let mut open = [u32::MAX; 2];
        for (d, &size) in self.shape.iter().enumerate() {
            let (steps, directions) = Self::way(size, here[d], there[d]);
            if steps == 0 {
                continue;
            }
            weight += steps;
            for (direction, end) in [(0, size - 1), (1, 0)] {
                if directions[direction] {
                    moves[count] = (d, direction, size > 2 && here[d] == end);
                    count += 1;
                } else {
                    open[direction] &= !(1 << d);
                }
            }
        }
        let all = (1 << (dimensions - 1)) - 1;
        let networks = if state.0 & CHOSEN == 0 {
            0..all + 1
        } else {
            let network = state.0 >> NETWORK & 3;
            network..network + 1
        };
        let level = state.0 >> LEVEL;
        let weight = weight.min(u32::from(u8::MAX)) as u8;
        for network in networks {
            // Bit `d - 1` of a network: dimension `d` goes backwards. Both ways are open to the first.
            if network & !(open[1] >> 1) != 0 || !network & all & !(open[0] >> 1) != 0 {
                continue;
            }
            for &(d, direction, closes) in &moves[..count] {
                if d > 0 && (network >> (d - 1) & 1) as usize != direction {
                    continue;
                }
                let level = level + u32::from(closes);
                let mut channel = network * self.levels + level;
                if channel >= self.channels {
                    channel %= self.channels;
                }
                out.push(Hop {
                    link: self.links[(node.index() * dimensions + d) * 2 + direction],
                    channel: channel as u8,
                    weight,
                    state: RouteState(CHOSEN | network << NETWORK | level << LEVEL),
                });
            }
        }
    }
}
