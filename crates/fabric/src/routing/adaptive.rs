//! Adaptive minimal routing: every next link on a shortest path, on one virtual channel.
//!
//! In a tree of switches shortest paths go up and then down, which cannot deadlock. Elsewhere one
//! channel may not be enough: the channel dependency graph tells.

use super::{Hop, NextHops, RouteState, Routing};
use crate::graph::{Graph, NodeId};

/// See the module.
#[derive(Clone, Debug)]
pub struct Adaptive {
    next: NextHops,
}

impl Adaptive {
    /// Tables for `graph`.
    #[must_use]
    pub fn new(graph: &Graph) -> Self {
        Self { next: NextHops::new(graph) }
    }
}

impl Routing for Adaptive {
    fn about(&self) -> String {
        "minimal, adaptive".to_owned()
    }

    fn channels(&self) -> u8 {
        1
    }

    fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        _draw: u32,
        out: &mut Vec<Hop>,
    ) {
        let weight = self.next.distance(node, destination) as u8;
        let links = self.next.links(node, destination);
        out.extend(links.iter().map(|&link| Hop { link, channel: 0, weight, state }));
    }
}
