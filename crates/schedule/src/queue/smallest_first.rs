//! The smallest chunk first (Themis §4.4, SCF): stages of early reduce-scatter and late all-gather
//! phases are large; letting the small ones pass feeds the other dimensions sooner.
//!
//! Of equal buffers, the chunk issued first goes first.

use super::ranked::Ranked;
use super::{DimensionQueue, Waiting};

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
