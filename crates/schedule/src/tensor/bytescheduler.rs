//! `bytescheduler`: partitions by urgency under a credit, across the barrier (ByteScheduler,
//! SOSP'19).
//!
//! A tensor is cut into partitions; the most urgent one that is ready starts while no more than the
//! credit is in flight, a sliding window of bytes. A larger credit keeps the network busy, a smaller
//! one lets an urgent tensor overtake sooner. With partitions and credit as small as can be and
//! nothing lost at a start, no order ends an iteration earlier (the paper's theorem, tested).
//!
//! The next iteration's layer waits for its own tensor only: that is the driver's doing, which asks
//! [`TensorPolicy::crosses_barrier`]. Left out: the search for partition and credit.

use allrail_core::Bytes;

use super::window::Window;
use super::{CommTask, Exchange, Tensor, TensorParameters, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

/// A million parameters of four bytes, about.
pub(super) const PARTITION: Bytes = Bytes::new(4 << 20);

pub(super) struct ByteScheduler;

impl TensorPolicy for ByteScheduler {
    fn tag(&self) -> &'static str {
        "bytescheduler"
    }

    fn about(&self) -> &'static str {
        "partitions, what the next forward pass needs first goes first, up to a credit in flight"
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        true
    }

    fn ranks_in_the_network(&self) -> bool {
        true
    }

    fn partition(&self, parameters: &TensorParameters) -> Option<Bytes> {
        Some(parameters.partition.unwrap_or(PARTITION))
    }

    fn credit(&self, parameters: &TensorParameters) -> Option<Bytes> {
        Some(parameters.credit_or_default())
    }

    fn reads(&self) -> &'static [&'static str] {
        &["partition", "credit"]
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let partition = parameters.partition.unwrap_or(PARTITION);
        let tasks = CommTask::all(tensors, partition)?;
        let credit = parameters.credit_or_default();
        Ok(Box::new(Window::new(tasks, exchange, credit)))
    }
}
