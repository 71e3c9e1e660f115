//! What an NPU has to send.

use allrail_fabric::graph::{Graph, NodeId};

use super::line::{Cables, Line};
use super::state::NONE;

/// An NPU's messages that are not all in packets, and its cables.
pub(super) struct Source {
    pub(super) line: Line,
    /// How many of its cables no packet of its own waits for or is being sent on.
    pub(super) open: u32,
    /// Which; all if they are too many for a bit each.
    pub(super) which: Cables,
}

impl Source {
    pub(super) fn new(cables: u32) -> Self {
        Self { line: Line::new(), open: cables, which: Cables::ALL }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty()
    }
}

/// An NPU's own packet for one of its cables.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// Whose packet it is; `NONE` while the slot is open.
    pub(super) message: u32,
    /// This one, among those of its NPU.
    pub(super) cable: Cables,
}

/// The slots of all links; only those from NPUs are used.
pub(super) fn slots(graph: &Graph) -> Vec<Slot> {
    let none = Slot { message: NONE, cable: Cables(0) };
    let mut slots = vec![none; graph.links() as usize];
    for npu in (0..graph.npus()).map(NodeId) {
        let cables = graph.neighbours(npu);
        for (number, &(_, link)) in cables.iter().enumerate() {
            slots[link as usize].cable = Cables::one(number, cables.len());
        }
    }
    slots
}
