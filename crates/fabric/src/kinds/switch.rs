//! A switch: each NPU has its bonded links up to one non-blocking switch, and as many down.
//!
//! Links `0..size` go up from the NPU, `size..2·size` down to it.

use allrail_core::Bandwidth;

use super::{LinkId, Reach, Topology};
use crate::Dimension;

pub(super) struct Switch;

impl Topology for Switch {
    fn reach(&self) -> Reach {
        Reach::Switch
    }

    fn link_count(&self, dimension: &Dimension) -> u32 {
        2 * dimension.size
    }

    fn link_bandwidth(&self, dimension: &Dimension) -> Bandwidth {
        dimension.aggregate()
    }

    fn link(
        &self,
        dimension: &Dimension,
        source: u32,
        destination: u32,
        hop: u32,
    ) -> Option<LinkId> {
        match hop {
            _ if source == destination => None,
            0 => Some(LinkId(source)),
            1 => Some(LinkId(dimension.size + destination)),
            _ => None,
        }
    }

    fn links_per_npu(&self, _dimension: &Dimension) -> u64 {
        1
    }

    fn hops_per_step(&self) -> u32 {
        2
    }
}
