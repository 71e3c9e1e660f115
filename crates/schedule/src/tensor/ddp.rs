//! `ddp`: fixed buckets in reverse order of the forward pass (PyTorch `DistributedDataParallel`).
//!
//! Tensors are taken in the order in which the backward pass makes them. A bucket is closed once it
//! holds its bound, so it exceeds it by its last tensor; the first bound is small, that
//! communication may start early. A bucket is launched when all its tensors are ready and all
//! buckets before it have been: the order is the same on every rank.
//!
//! What a coordinator has packed is launched as it is, at once. Such tensors belong to no bucket from then
//! on, so nobody waits in one for them.

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
        let mut bucket_of = vec![None; tensors.len()];
        for (index, bucket) in buckets.iter().enumerate() {
            for tensor in &bucket.tensors {
                bucket_of[*tensor as usize] = Some(index);
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
    /// `None` of what a coordinator packs.
    bucket_of: Vec<Option<usize>>,
    /// The bucket to launch next; around the end, as iterations follow one another.
    next: usize,
}

impl Scheduler {
    /// Takes a tensor that is not ready out of its bucket, for good.
    fn leave(&mut self, tensor: u32) {
        if let Some(bucket) = self.bucket_of[tensor as usize].take() {
            let bucket = &mut self.buckets[bucket];
            bucket.tensors.retain(|other| *other != tensor);
            bucket.missing -= 1;
        }
    }

    /// Launches the buckets that are complete, in order.
    fn launch(&mut self, actions: &mut Vec<Action>) {
        let mut empty = 0;
        while self.buckets[self.next].missing == 0 && empty < self.buckets.len() {
            let bucket = &mut self.buckets[self.next];
            bucket.missing = bucket.tensors.len();
            if bucket.tensors.is_empty() {
                empty += 1;
            } else {
                self.operations.launch(&bucket.tensors, actions);
            }
            self.next = (self.next + 1) % self.buckets.len();
        }
    }
}

impl TensorScheduler for Scheduler {
    fn on(&mut self, _now: Time, event: Event<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => {
                let Some(bucket) = self.bucket_of[tensor as usize] else {
                    self.operations.together(&[tensor], actions);
                    return;
                };
                self.operations.ready(tensor);
                self.buckets[bucket].missing -= 1;
                self.launch(actions);
            }
            Event::Together { tensors } => {
                self.operations.together(tensors, actions);
                for tensor in tensors {
                    self.leave(*tensor);
                }
                // What waited for these in its bucket waits no more.
                self.launch(actions);
            }
            Event::Finished { operation } => self.operations.finished(operation, actions),
            Event::Arrived { .. } | Event::Timer { .. } => {}
        }
    }
}
