//! `HyperX` with direct links: minimal, adaptive, a channel more at every hop between routers.
//!
//! A packet takes the link within its row and the one within its column, either first. The first hop
//! between routers is on channel 0, the second on channel 1, so that no link waits for one of its own
//! channel. Next hops are looked up by coordinates.

use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};
use allrail_core::counted;

/// See the module.
#[derive(Clone, Debug)]
pub struct HyperXRouting {
    columns: u32,
    npus: u32,
    /// For each NPU, the links to its router and back.
    ends: Vec<[u32; 2]>,
    /// For each router, the links to every router of its row, then to every one of its column; its own
    /// places are not used.
    links: Vec<u32>,
    channels: u8,
}

impl HyperXRouting {
    /// For `shape` (NPUs in a row and in a column) on [`crate::topologies::hyperx::HyperX::direct`]'s
    /// graph; `None` if `graph` is not a whole one.
    #[must_use]
    pub fn new(graph: &Graph, shape: [u32; 2]) -> Option<Self> {
        let [columns, rows] = shape;
        let npus = columns.checked_mul(rows)?;
        if graph.npus() != npus || graph.nodes() != 2 * npus as usize {
            return None;
        }
        let link = |from: u32, to: u32| {
            let found = graph.neighbours(NodeId(from)).iter().find(|(next, _)| next.0 == to);
            found.map(|&(_, link)| link)
        };
        let (mut ends, mut links) = (Vec::new(), Vec::new());
        for here in 0..npus {
            let router = npus + here;
            ends.push([link(here, router)?, link(router, here)?]);
            let row = (0..columns).map(|column| here / columns * columns + column);
            let column = (0..rows).map(|row| row * columns + here % columns);
            for there in row.chain(column) {
                links.push(if there == here { u32::MAX } else { link(router, npus + there)? });
            }
        }
        Some(Self { columns, npus, ends, links, channels: 2 })
    }

    /// With fewer channels: a packet stays in the last. This can deadlock.
    #[must_use]
    pub fn with_channels(mut self, channels: u8) -> Self {
        self.channels = channels;
        self
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        8 * self.ends.len() + 4 * self.links.len()
    }
}

impl Routing for HyperXRouting {
    fn about(&self) -> String {
        let channels = counted(self.channels, "channel");
        format!("minimal, adaptive, a channel more at every hop ({channels})")
    }

    fn channels(&self) -> u8 {
        self.channels
    }

    fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        _draw: u32,
        out: &mut Vec<Hop>,
    ) {
        let (columns, rows) = (self.columns, self.npus / self.columns);
        let here = if node.0 < self.npus { node.0 } else { node.0 - self.npus };
        let [row, column] = [here / columns, here % columns];
        let [to_row, to_column] = [destination.0 / columns, destination.0 % columns];
        let between = u8::from(row != to_row) + u8::from(column != to_column);
        if node.0 < self.npus {
            let link = self.ends[here as usize][0];
            out.push(Hop { link, channel: 0, weight: between + 2, state });
            return;
        }
        if between == 0 {
            let link = self.ends[here as usize][1];
            out.push(Hop { link, channel: 0, weight: 1, state });
            return;
        }
        let links = &self.links[(here * (columns + rows)) as usize..];
        let channel = (state.0 as u8).min(self.channels - 1);
        let mut push = |place: u32| {
            let link = links[place as usize];
            let state = RouteState(state.0 + 1);
            out.push(Hop { link, channel, weight: between + 1, state });
        };
        if column != to_column {
            push(to_column);
        }
        if row != to_row {
            push(columns + to_row);
        }
    }
}
