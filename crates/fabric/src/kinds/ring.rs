//! A ring: NPU `i` has half of its links towards `i + 1` and half towards `i − 1` (mod size).
//!
//! Links `0..size` go up, `size..2·size` go down; each bonds half of the NPU's links. A message
//! takes the shorter way round, up where both are equal. Of two NPUs both neighbours are one: all
//! links between them are bonded.

use allrail_core::Bandwidth;

use super::{LinkId, Reach, Topology};
use crate::Dimension;

pub(super) struct Ring;

impl Topology for Ring {
    fn reach(&self) -> Reach {
        Reach::Neighbours
    }

    fn link_count(&self, dimension: &Dimension) -> u32 {
        2 * dimension.size
    }

    fn link_bandwidth(&self, dimension: &Dimension) -> Bandwidth {
        dimension.aggregate().fraction(1, self.links_per_npu(dimension))
    }

    fn link(
        &self,
        dimension: &Dimension,
        source: u32,
        destination: u32,
        hop: u32,
    ) -> Option<LinkId> {
        let size = dimension.size;
        let up = (destination + size - source) % size;
        let down = size - up;
        if up <= down {
            (hop < up).then(|| LinkId((source + hop) % size))
        } else {
            (hop < down).then(|| LinkId(size + (source + size - hop) % size))
        }
    }

    fn links_per_npu(&self, dimension: &Dimension) -> u64 {
        if dimension.size == 2 { 1 } else { 2 }
    }

    fn hops_per_step(&self) -> u32 {
        1
    }
}
