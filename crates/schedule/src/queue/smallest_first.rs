//! The smallest chunk first (Themis §4.4, SCF): stages of early reduce-scatter and late all-gather
//! phases are large; letting the small ones pass feeds the other dimensions sooner.
//!
//! Of equal buffers, the chunk issued first goes first.

use allrail_collective::StageRef;

use super::ranked::Ranked;
use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// The smallest chunk first (Themis §4.4, SCF).
    pub const SMALLEST_FIRST: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "smallest_first"
    }

    fn about(&self) -> &'static str {
        "the stage with the smallest buffer (Themis' SCF)"
    }

    fn queue(&self, _orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(SmallestFirst::default())
    }

    fn is_smallest_first(&self) -> bool {
        true
    }
}

/// See the module.
#[derive(Default)]
pub struct SmallestFirst(Ranked);

impl DimensionQueue for SmallestFirst {
    fn push(&mut self, stage: Waiting) {
        self.0.push(stage, |_| (stage.buffer.count(), u64::from(stage.at.chunk)));
    }

    fn pop(&mut self) -> Option<Waiting> {
        self.0.pop()
    }

    fn withdraw(&mut self, collective: u32) -> u32 {
        self.0.withdraw(collective)
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.0.waiting()
    }
}
