//! Last come, first served.

use allrail_collective::StageRef;

use super::ranked::Ranked;
use super::{DimensionQueue, Order, QueuePolicy, Waiting};

pub(super) struct Policy;

impl Order {
    /// Last come, first served.
    pub const LIFO: Self = Self(&Policy);
}

impl QueuePolicy for Policy {
    fn tag(&self) -> &'static str {
        "lifo"
    }

    fn about(&self) -> &'static str {
        "the stage that came last"
    }

    fn queue(&self, _orders: Vec<Vec<StageRef>>) -> Box<dyn DimensionQueue> {
        Box::new(Lifo::default())
    }
}

/// See the module.
#[derive(Default)]
pub struct Lifo(Ranked);

impl DimensionQueue for Lifo {
    fn push(&mut self, stage: Waiting) {
        self.0.push(stage, |sequence| (0, u64::MAX - sequence));
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
