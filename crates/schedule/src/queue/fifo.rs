//! First come, first served.

use allrail_collective::StageRef;

use super::ranked::Ranked;
use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// First come, first served.
    pub const FIFO: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "fifo"
    }

    fn about(&self) -> &'static str {
        "the stage that has waited longest"
    }

    fn queue(&self, _orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(Fifo::default())
    }
}

/// See the module.
#[derive(Default)]
pub struct Fifo(Ranked);

impl DimensionQueue for Fifo {
    fn push(&mut self, stage: Waiting) {
        self.0.push(stage, |sequence| (0, sequence));
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
