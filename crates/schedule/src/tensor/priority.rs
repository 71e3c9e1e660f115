//! `priority`: small partitions, the most urgent first, one after the other (P3, MLSys 2019).
//!
//! A partition starts when the one before has finished: stop and wait, so an urgent tensor waits for
//! one partition at most, and the network is idle for a round trip after each. With servers one push
//! and one pull run side by side.

use allrail_core::Bytes;

use super::window::Window;
use super::{CommTask, Exchange, Tensor, TensorParameters, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

/// P3's slices of 50,000 parameters of four bytes.
const PARTITION: Bytes = Bytes::new(200_000);

/// A credit that one partition exceeds, which then goes alone.
const ONE_AT_A_TIME: Bytes = Bytes::new(1);

pub(super) struct Priority;

impl TensorPolicy for Priority {
    fn tag(&self) -> &'static str {
        "priority"
    }

    fn about(&self) -> &'static str {
        "small partitions, what the next forward pass needs first goes first, one at a time (P3)"
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

    fn credit(&self, _: &TensorParameters) -> Option<Bytes> {
        Some(ONE_AT_A_TIME)
    }

    fn reads(&self) -> &'static [&'static str] {
        &["partition"]
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let partition = parameters.partition.unwrap_or(PARTITION);
        let tasks = CommTask::all(tensors, partition)?;
        Ok(Box::new(Window::new(tasks, exchange, ONE_AT_A_TIME)))
    }
}
