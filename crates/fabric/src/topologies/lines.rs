//! Lines of NPUs across boards: along each axis of a mesh of boards, every line of NPUs has two ends at
//! each of its boards, and a network of switches (`global/`) joins them.
//!
//! Along an axis of one board there is nothing to switch: a copper cable leads around the board, from
//! each line's last NPU to its first, and makes a ring of it. A line of one NPU then has no cable at all.

use allrail_core::FieldError;

use super::dimension::{cables, ring};
use super::global::{Inner, Network};
use super::topology::Counts;
use crate::Dimension;
use crate::graph::{Builder, CableKind, NodeId, Wire};

/// Why networks that are no trees have no dimensions.
pub(super) const NO_RINGS: &str =
    "its boards are no rings: neighbours may be far apart in what joins them";

/// One axis.
pub(super) struct Axis {
    /// How many lines of NPUs run along it.
    pub(super) lines: u64,
    /// NPUs of a board along it.
    pub(super) along: u32,
    /// Boards along it.
    pub(super) boards: u32,
    /// How many lines one network joins, one after the other.
    pub(super) shared: u64,
    /// One of the networks; `None` where there is one board.
    pub(super) network: Option<Box<dyn Network>>,
    /// The cables between boards and switches.
    pub(super) kind: CableKind,
}

impl Axis {
    /// How many networks there are, all alike.
    pub(super) fn networks(&self) -> u64 {
        if self.network.is_some() { self.lines / self.shared } else { 0 }
    }

    /// Whether cables lead around boards.
    pub(super) fn wraps(&self) -> bool {
        self.network.is_none() && self.along > 1
    }

    /// Whether only trees, or cables around boards, join its lines.
    pub(super) fn is_ruled_by_trees(&self) -> bool {
        self.network.as_ref().is_none_or(|one| one.as_tree().is_some())
    }

    /// What it is to planners: a ring of all its NPUs, from board to board by two cables. Nothing if it has
    /// one place only.
    pub(super) fn ring(&self, planes: u32, link: Wire, board_link: Wire) -> Option<Dimension> {
        let traces = u64::from(self.boards) * u64::from(self.along - 1);
        let between = if self.network.is_some() { 2 } else { 1 };
        let through = Wire { latency: cables(between, link), ..link };
        let hops = [(traces, board_link), (u64::from(self.boards), through)];
        let size = self.along * self.boards;
        (size > 1).then(|| ring(size, 2 * planes, &hops))
    }

    /// Whether there are uplinks to leave out.
    pub(super) fn tapers(&self) -> bool {
        self.network.as_ref().and_then(|one| one.as_tree()).is_some_and(|tree| tree.levels > 1)
    }

    /// Ports of an NPU along it.
    fn ports(&self) -> u64 {
        if self.network.is_some() || self.along > 1 { 2 } else { 0 }
    }

    /// Adds what is bought for it.
    pub(super) fn count(&self, to: &mut Counts) {
        let Inner { aoc, dac } = self.network.as_ref().map(|one| one.inner()).unwrap_or_default();
        to.aoc += self.networks() * aoc;
        to.dac += self.networks() * dac;
        to.switches += self.networks() * self.network.as_ref().map_or(0, |one| one.switches());
        let ends = self.lines * 2 * u64::from(self.boards);
        match (&self.network, self.kind) {
            (None, _) => to.dac += if self.wraps() { self.lines } else { 0 },
            (Some(_), CableKind::Dac) => to.dac += ends,
            (Some(_), _) => to.aoc += ends,
        }
        to.pcb += self.lines * u64::from(self.boards) * u64::from(self.along - 1);
        to.ports += self.ports();
    }

    /// Cables between the two places of it that are farthest apart, at most.
    pub(super) fn span(&self) -> u32 {
        match &self.network {
            Some(network) => 2 * ((self.along - 1) / 2) + network.span(),
            None => self.along / 2,
        }
    }

    /// The largest flow between its first boards and as many last ones, in cables; `None` where that is
    /// not known in closed form.
    pub(super) fn half_cut(&self) -> Option<u64> {
        let tree = self.network.as_ref()?.as_tree()?;
        let in_line = self.shared == 1 || tree.levels == 1;
        (in_line && self.boards.is_multiple_of(2)).then(|| self.networks() * tree.half_cut())
    }

    /// Lays its cables but the traces. `npu` is who stands at a place of a line; nobody on a failed board.
    pub(super) fn build(
        &self,
        to: &mut Builder,
        wire: Wire,
        npu: impl Fn(u64, u32) -> Option<NodeId>,
    ) -> Result<(), FieldError> {
        let Some(network) = &self.network else {
            for line in (0..self.lines).filter(|_| self.wraps()) {
                if let (Some(first), Some(last)) = (npu(line, 0), npu(line, self.along - 1)) {
                    to.parallel(last, first, CableKind::Dac, wire)?;
                }
            }
            return Ok(());
        };
        for first in (0..self.lines).step_by(self.shared as usize) {
            let leaves = network.build(to, wire)?;
            let mut number = 0;
            for line in first..first + self.shared {
                let ends = (0..self.boards)
                    .flat_map(|board| [board * self.along, board * self.along + self.along - 1]);
                for place in ends {
                    let leaf = leaves[network.leaf_of(number)];
                    number += 1;
                    if let Some(npu) = npu(line, place) {
                        to.parallel(npu, leaf, self.kind, wire)?;
                    }
                }
            }
        }
        Ok(())
    }
}
