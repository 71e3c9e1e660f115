//! Fully connected: one link from every NPU to every other, an equal share of the NPU's links each.
//!
//! Link `source · size + destination`.

use allrail_core::Bandwidth;

use super::{LinkId, Reach, Topology};
use crate::Dimension;

pub(super) struct FullyConnected;

impl Topology for FullyConnected {
    fn reach(&self) -> Reach {
        Reach::Peers
    }

    fn link_count(&self, dimension: &Dimension) -> u32 {
        dimension.size * dimension.size
    }

    fn link_bandwidth(&self, dimension: &Dimension) -> Bandwidth {
        dimension.aggregate().fraction(1, self.links_per_npu(dimension).max(1))
    }

    fn link(
        &self,
        dimension: &Dimension,
        source: u32,
        destination: u32,
        hop: u32,
    ) -> Option<LinkId> {
        (hop == 0 && source != destination).then(|| LinkId(source * dimension.size + destination))
    }

    fn links_per_npu(&self, dimension: &Dimension) -> u64 {
        u64::from(dimension.size - 1)
    }

    fn hops_per_step(&self) -> u32 {
        1
    }
}
