//! `fusion`: what is ready within a cycle is packed together, up to a threshold (Horovod's tensor
//! fusion).
//!
//! Cycles are at the multiples of `cycle`; those at which nothing is ready are not visited, which
//! changes nothing. At a cycle, what is ready is packed in the order in which it became so: a buffer
//! is closed when the next does not fit. The tensors of a group become ready together, with the last
//! of them, and stay together; what exceeds the threshold goes alone.
//!
//! What a coordinator has packed is launched as it is, at once: it had its cycle, its threshold and its
//! groups there. Such tensors belong to no group here from then on.
//!
//! Left out: Horovod's look-ahead over tensors of another data type.

use allrail_core::{Bytes, Time};

use super::whole::Whole;
use super::{Action, Event, Exchange, Tensor, TensorParameters, TensorPolicy, TensorScheduler};
use crate::error::ScheduleError;

pub(super) struct Fusion;

impl TensorPolicy for Fusion {
    fn tag(&self) -> &'static str {
        "fusion"
    }

    fn about(&self) -> &'static str {
        "what is ready within a cycle, packed up to a threshold; groups whole (Horovod)"
    }

    fn version(&self) -> u32 {
        1
    }

    fn crosses_barrier(&self) -> bool {
        false
    }

    fn packs_by_time(&self) -> bool {
        true
    }

    fn reads(&self) -> &'static [&'static str] {
        &["threshold", "cycle", "groups"]
    }

    fn scheduler(
        &self,
        parameters: &TensorParameters,
        exchange: Exchange,
        tensors: &[Tensor],
    ) -> Result<Box<dyn TensorScheduler>, ScheduleError> {
        let group_of = group_of(tensors, parameters.groups.unwrap_or(0));
        let mut missing = vec![0; group_of.iter().map(|group| group + 1).max().unwrap_or(0)];
        for group in &group_of {
            missing[*group] += 1;
        }
        Ok(Box::new(Scheduler {
            operations: Whole::new(tensors, exchange),
            threshold: parameters.fusion_threshold(),
            cycle: parameters.fusion_cycle(),
            incomplete: missing.iter().map(|_| Vec::new()).collect(),
            group_of: group_of.into_iter().map(Some).collect(),
            sizes: missing,
            complete: Vec::new(),
            waits: false,
        }))
    }
}

/// The group of every tensor: the workload's; of the others, in the order of the forward pass, one
/// of `count` that differ by one in number; or its own.
fn group_of(tensors: &[Tensor], count: u32) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..tensors.len()).filter(|i| tensors[*i].group.is_none()).collect();
    order.sort_by_key(|index| (tensors[*index].place, *index));
    let others = order.len();
    let count = if count == 0 { others } else { others.min(count as usize) };
    let mut group_of = vec![0; tensors.len()];
    for (position, index) in order.into_iter().enumerate() {
        group_of[index] = position * count / others;
    }
    let mut named: Vec<u32> = tensors.iter().filter_map(|tensor| tensor.group).collect();
    named.sort_unstable();
    named.dedup();
    for (index, tensor) in tensors.iter().enumerate() {
        if let Some(group) = tensor.group {
            group_of[index] = count + named.partition_point(|other| *other < group);
        }
    }
    group_of
}

struct Scheduler {
    operations: Whole,
    threshold: Bytes,
    cycle: Time,
    /// `None` of what a coordinator packs.
    group_of: Vec<Option<usize>>,
    /// How many tensors each group has.
    sizes: Vec<usize>,
    /// Of each group, the tensors that are ready while others are not.
    incomplete: Vec<Vec<u32>>,
    /// Groups that are ready, in the order in which they became so.
    complete: Vec<Vec<u32>>,
    /// Whether a timer is set.
    waits: bool,
}

impl Scheduler {
    /// The next cycle, now at the earliest.
    fn next_cycle(&self, now: Time) -> Time {
        match self.cycle.as_ps() {
            0 => now,
            cycle => Time::from_ps(now.as_ps().div_ceil(cycle).saturating_mul(cycle)),
        }
    }

    /// Notes that a group is ready if it is, for the next cycle.
    fn complete(&mut self, now: Time, group: usize, actions: &mut Vec<Action>) {
        if self.incomplete[group].is_empty() || self.incomplete[group].len() < self.sizes[group] {
            return;
        }
        let group = std::mem::take(&mut self.incomplete[group]);
        self.wait(now, group, actions);
    }

    fn wait(&mut self, now: Time, group: Vec<u32>, actions: &mut Vec<Action>) {
        self.complete.push(group);
        if !self.waits {
            self.waits = true;
            actions.push(Action::SetTimer { id: 0, at: self.next_cycle(now) });
        }
    }

    fn pack(&mut self, actions: &mut Vec<Action>) {
        let (mut buffer, mut bytes) = (Vec::new(), 0u64);
        for group in std::mem::take(&mut self.complete) {
            let size = group.iter().map(|tensor| self.operations.size(*tensor)).sum::<u64>();
            if !buffer.is_empty() && bytes.saturating_add(size) > self.threshold.count() {
                self.operations.launch(&buffer, actions);
                buffer.clear();
                bytes = 0;
            }
            buffer.extend(group);
            bytes += size;
        }
        if !buffer.is_empty() {
            self.operations.launch(&buffer, actions);
        }
    }
}

impl TensorScheduler for Scheduler {
    fn on(&mut self, now: Time, event: Event<'_>, actions: &mut Vec<Action>) {
        match event {
            Event::Ready { tensor } => {
                self.operations.ready(tensor);
                let Some(group) = self.group_of[tensor as usize] else {
                    self.wait(now, vec![tensor], actions);
                    return;
                };
                self.incomplete[group].push(tensor);
                self.complete(now, group, actions);
            }
            Event::Together { tensors } => {
                self.operations.together(tensors, actions);
                for tensor in tensors {
                    let Some(group) = self.group_of[*tensor as usize].take() else { continue };
                    self.sizes[group] -= 1;
                    // What waited for this one in its group waits no more.
                    self.complete(now, group, actions);
                }
            }
            Event::Finished { operation } => self.operations.finished(operation, actions),
            Event::Arrived { .. } => {}
            Event::Timer { .. } => {
                self.waits = false;
                self.pack(actions);
            }
        }
    }
}
