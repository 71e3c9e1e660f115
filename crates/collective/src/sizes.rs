//! The sizes that a plan holds for, and the plan cut anew for one of them.
//!
//! What a chunk scheduler decides, the order of each chunk over the dimensions and of the chunks on
//! each dimension, changes slowly with the size of the buffer. A plan may therefore name a range of
//! sizes, as the tables of NCCL's tuner and MSCCL++'s plans do; for another size of the range the same
//! decision is kept and only the bytes of the chunks are cut anew, in the same proportions and at whole
//! granules of 64 bytes. Chunks that get nothing of a small buffer are left out. A plan without a range
//! holds for its own size.
//!
//! Not modelled: what a plan made for the other size would gain. That is for whoever names the range.

use allrail_core::Bytes;

use crate::error::CollectiveError;
use crate::plan::{ChunkPlan, CollectivePlan, StageRef};
use crate::rank::{GRANULE, cut};
use crate::size_range::SizeRange;

impl CollectivePlan {
    /// The sizes that the plan holds for.
    #[must_use]
    pub fn holds_for(&self) -> SizeRange {
        self.sizes.unwrap_or(SizeRange { from: self.size, to: self.size })
    }

    /// Refuses a size that the plan does not hold for.
    ///
    /// # Errors
    /// [`CollectiveError::Size`] with that size and the plan's range.
    pub fn check_size(&self, size: Bytes) -> Result<(), CollectiveError> {
        let range = self.holds_for();
        if range.contains(size) { Ok(()) } else { Err(CollectiveError::Size { size, range }) }
    }

    /// The same decision for `size`: chunks of the same proportions, stages and orders. It holds for
    /// that size only; for its own size the plan itself.
    ///
    /// # Errors
    /// [`CollectiveError::Size`] if the plan does not hold for it.
    pub fn for_size(&self, size: Bytes) -> Result<Self, CollectiveError> {
        self.check_size(size)?;
        let mut plan = Self { sizes: None, ..self.clone() };
        if size == self.size {
            return Ok(plan);
        }
        plan.size = size;
        plan.chunks.clear();
        let whole = self.size.count().max(1);
        let at = |before: u64| cut(size.count(), GRANULE.count(), before.min(whole), whole);
        let mut before = 0u64;
        // The new number of each chunk that has bytes.
        let mut numbers = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            let after = before.saturating_add(chunk.bytes.count());
            let bytes = Bytes::new(at(after) - at(before));
            before = after;
            let number = u32::try_from(plan.chunks.len()).ok();
            numbers.push(number.filter(|_| bytes > Bytes::default()));
            if bytes > Bytes::default() {
                plan.chunks.push(ChunkPlan { bytes, stages: chunk.stages.clone() });
            }
        }
        for order in &mut plan.dimension_order {
            *order = order
                .iter()
                .filter_map(|at| {
                    Some(StageRef { chunk: (*numbers.get(at.chunk as usize)?)?, ..*at })
                })
                .collect();
        }
        Ok(plan)
    }
}
