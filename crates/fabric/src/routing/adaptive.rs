//! Adaptive minimal routing on any graph: up and down, on as few virtual channels as that takes.
//!
//! Nodes are in an order, and a link leads *up* if it leads to a later node. A packet may take every
//! link that begins a shortest path; its channel rises whenever it goes up after having gone down.
//! Within one channel packets go up, then down, and cannot wait for each other in a circle; channels
//! only rise. So it is free of deadlock on any graph.
//!
//! There are as many channels as the pair in need of most takes on its best shortest path; a path that
//! would need more is left out. Two orders are tried, and that which takes fewer channels is used:
//! by the distance from the nearest NPU, as in fat trees, then the nearer to NPU 0 the later; or by
//! the latter alone. Fat trees, all trees and meshes take one channel, rings and tori two.

use std::cmp::Reverse;

use allrail_core::{FieldError, counted};

use super::layered::{Layered, Turn, distances};
use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};

/// See the module.
#[derive(Clone, Debug)]
pub struct Adaptive {
    tables: Layered,
}

impl Adaptive {
    /// Tables for `graph`.
    ///
    /// # Errors
    /// Its paths are too long.
    pub fn new(graph: &Graph) -> Result<Self, FieldError> {
        let depths = distances(graph, 1);
        let by_height = Self::in_order(graph, &distances(graph, graph.npus()), &depths)?;
        if by_height.channels() == 1 {
            return Ok(by_height);
        }
        let by_depth = Self::in_order(graph, &vec![0; graph.nodes()], &depths)?;
        Ok(if by_depth.channels() < by_height.channels() { by_depth } else { by_height })
    }

    fn in_order(graph: &Graph, heights: &[u32], depths: &[u32]) -> Result<Self, FieldError> {
        let rank = |node: NodeId| (heights[node.index()], Reverse(depths[node.index()]), node.0);
        let tables = Layered::new(graph, true, |link, went_down| {
            let link = graph.link(link);
            let up = rank(link.to) > rank(link.from);
            Some(Turn { rises: up && went_down, flag: !up })
        })?;
        Ok(Self { tables })
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tables.bytes()
    }
}

impl Routing for Adaptive {
    fn about(&self) -> String {
        match self.channels() {
            1 => "minimal, adaptive, up and down".to_owned(),
            many => {
                format!("minimal, adaptive, up and down on {many}", many = counted(many, "channel"))
            }
        }
    }

    fn channels(&self) -> u8 {
        self.tables.channels()
    }

    fn hops(
        &self,
        node: NodeId,
        state: RouteState,
        destination: NodeId,
        _draw: u32,
        out: &mut Vec<Hop>,
    ) {
        self.tables.hops(node, state, destination, out);
    }
}
