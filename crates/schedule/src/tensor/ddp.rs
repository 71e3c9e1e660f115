//! `ddp`: fixed buckets in reverse order of the forward pass (PyTorch `DistributedDataParallel`).
//!
//! Tensors are taken in the order in which the backward pass makes them. A bucket is closed once it
//! holds its bound, so it exceeds it by its last tensor; the first bound is small, that
//! communication may start early. A bucket is launched when all its tensors are ready and all
//! buckets before it have been: the order is the same on every rank.

use allrail_core::{Bytes, Time};

use super::whole::Whole;
use super::{Action, Event, Exchange, Tensor, TensorParameters, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

pub(super) struct Ddp;

impl TensorPolicy for Ddp {
    fn tag(&self) -> &'static str {
        "ddp"
    }

    fn about(&self) -> &'static str {
        "buckets in reverse order of the forward pass, launched in order (PyTorch DDP)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        false
    }

    fn reads(&self) -> &'static [&'static str] {
        &["bucket", "first_bucket"]
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let (first, other) = parameters.bucket_bounds();
        let buckets = buckets(tensors, first, other);
        let mut bucket_of = vec![0; tensors.len()];
        for (index, bucket) in buckets.iter().enumerate() {
            for tensor in &bucket.tensors {
                bucket_of[*tensor as usize] = index;
            }
        }
        let operations = Whole::new(tensors, exchange);
        Ok(Box::new(Scheduler { operations, buckets, bucket_of, next: 0 }))
    }
}

struct Bucket {
    tensors: Vec<u32>,
    /// How many of them are not ready yet.
    missing: usize,
}

fn buckets(tensors: &[Tensor], first: Bytes, other: Bytes) -> Vec<Bucket> {
    let mut order: Vec<u32> = (0..).zip(tensors).map(|(index, _)| index).collect();
    order.sort_by_key(|index| std::cmp::Reverse((tensors[*index as usize].place, *index)));
    let mut closed = Vec::new();
    let (mut open, mut bytes, mut bound) = (Vec::new(), 0u64, first);
    for index in order {
        open.push(index);
        bytes = bytes.saturating_add(tensors[index as usize].bytes.count());
        if bytes >= bound.count() {
            closed.push(std::mem::take(&mut open));
            (bytes, bound) = (0, other);
        }
    }
    if !open.is_empty() {
        closed.push(open);
    }
    closed.into_iter().map(|tensors| Bucket { missing: tensors.len(), tensors }).collect()
}

struct Scheduler {
    operations: Whole,
    buckets: Vec<Bucket>,
    bucket_of: Vec<usize>,
    /// The bucket to launch next; around the end, as iterations follow one another.
    next: usize,
}

impl TensorScheduler for Scheduler {
    fn on(&mut self, _now: Time, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => {
                self.operations.ready(tensor);
                self.buckets[self.bucket_of[tensor as usize]].missing -= 1;
                while self.buckets[self.next].missing == 0 {
                    let bucket = &mut self.buckets[self.next];
                    bucket.missing = bucket.tensors.len();
                    self.operations.launch(&bucket.tensors, actions);
                    self.next = (self.next + 1) % self.buckets.len();
                }
            }
            Event::Finished { operation } => self.operations.finished(operation, actions),
            Event::Timer { .. } => {}
        }
    }
}
