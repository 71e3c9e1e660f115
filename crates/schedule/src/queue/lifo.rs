//! Last come, first served.

use super::ranked::Ranked;
use super::{DimensionQueue, Waiting};

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
