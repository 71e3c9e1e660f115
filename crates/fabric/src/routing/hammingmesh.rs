//! `HammingMesh`: minimal, adaptive, north last on boards, a channel more for every tree (SC'22,
//! Section IV).
//!
//! A packet may take every link that begins a shortest path, with two exceptions. On a board it does
//! not move east or west after it has moved north (to a lower row): this breaks the circles of the
//! mesh. And it moves north only where a path that keeps the first rule lies ahead, else it gets
//! stuck. Its channel rises when it leaves a board for a tree; the link to the tree is in the new
//! channel already. There it is free to turn again.
//!
//! Minimal paths use two trees at most, so there are three channels. Around failed boards they may
//! use more: then there are as many channels as the pair in need of most takes.
//!
//! Within a channel packets go from trees to boards only, up and down in trees, and north last on
//! boards: no circle. [`Variant`] weakens this, for tests and studies.

use super::layered::{Layered, Turn};
use super::{Hop, RouteState, Routing};
use crate::graph::{Graph, NodeId};
use allrail_core::{FieldError, counted};

/// What to leave out of the rules; the default leaves out nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Virtual channels; a packet that would need more stays in the last. `None`: three, or as many
    /// as it takes.
    pub channels: Option<u8>,
    /// Whether north comes last on boards.
    pub north_last: bool,
    /// Whether north is taken only where a path lies ahead.
    pub look_ahead: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Self { channels: None, north_last: true, look_ahead: true }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct HammingMeshRouting {
    tables: Layered,
    north_last: bool,
}

impl HammingMeshRouting {
    /// Tables for `graph`, whose NPUs stand at `places` (row and column in the whole mesh). `None` if
    /// the rules leave a pair without a path: not on whole boards.
    ///
    /// # Errors
    /// Its paths are too long.
    pub fn new(
        graph: &Graph,
        places: &[[u32; 2]],
        variant: Variant,
    ) -> Result<Option<Self>, FieldError> {
        let mut tables = Layered::new(graph, variant.look_ahead, |link, moved_north| {
            let link = graph.link(link);
            let place = |node: NodeId| places.get(node.index());
            let flag = match (place(link.from), place(link.to)) {
                (Some([row, _]), Some([to, _])) if to < row => variant.north_last,
                (Some([row, _]), Some([to, _])) if to > row => moved_north,
                (Some(_), Some(_)) if moved_north => return None,
                _ => false,
            };
            let rises = link.from.0 < graph.npus() && link.to.0 >= graph.npus();
            Some(Turn { rises, flag })
        })?;
        let Some(needed) = tables.needed() else { return Ok(None) };
        tables.set_channels(variant.channels.unwrap_or(needed.max(3)));
        Ok(Some(Self { tables, north_last: variant.north_last }))
    }

    /// Bytes of its tables.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tables.bytes()
    }
}

impl Routing for HammingMeshRouting {
    fn about(&self) -> String {
        let north = if self.north_last { ", north last" } else { "" };
        let channels = counted(self.channels(), "channel");
        format!("minimal, adaptive{north}, a channel more for every tree ({channels})")
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
