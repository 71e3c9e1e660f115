//! Gradients over replicas, updates, and what the next iteration waits for.
//!
//! What ZeRO makes of either is in `shards.rs`. A layer's gradient travels when its last microbatch is
//! through, backward order; with `reduce: microbatch` after every one, and the update waits for all. Parameters
//! of experts are reduced over the replicas of each expert alone. Gradients of tables stay where they are.
//!
//! An update waits for its own gradient with `updates: each`, and with `updates: together` for every gradient of
//! its NPU and for the end of the backward pass. The second is what `optimizer.step()` does: PyTorch's DDP returns
//! from the backward pass when all buckets are reduced (Li et al., VLDB 2020, section 4.2), Horovod's `step()`
//! first synchronizes every handle (`horovod/torch/optimizer.py`). The first is ByteScheduler's (it steps a
//! tensor when its last partition has finished, `bytescheduler/pytorch/horovod.py`), P3's and that of graphs of
//! operations, where an update depends on its gradient alone (MXNet, TensorFlow).
//!
//! Replicas that train apart (`every` above 1) exchange no gradient: after an update the parameters
//! are all-reduced, which the driver does in every so many iterations alone; the next one begins when
//! all are.
//!
//! A tied table whose two ends are on different stages: each end sends its gradient to the other
//! first. The two copies of a stage of `chimera` and `dual_pipe` do the same for every layer.
//!
//! Pipelines that are never flushed: `unflushed.rs`.

use std::collections::BTreeMap;

use allrail_collective::Operation::{AllGather, AllReduce};
use allrail_core::Time;

use super::emit::{Emitter, Span};
use super::passes::Done;
use super::shards::unit_name;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::{Axis, Updates};

/// An update to come.
#[derive(Debug)]
struct Update {
    position: usize,
    layer: usize,
    /// On one NPU.
    parameters: u64,
    /// What it waits for.
    after: Vec<NodeId>,
    /// Over whom the gradient travelled.
    span: Option<Span>,
    /// How long it takes to make the gradient of what has travelled.
    decoding: Time,
}

/// What is still to do when all passes are there.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    updates: Vec<Update>,
    /// The head's gradient, until the tied table's other end has sent its own.
    head: Option<(usize, usize, NodeId)>,
    /// The receive of the head's part at the table's first end.
    table: Option<NodeId>,
    /// The first end's gradient, if it was there before the head's.
    first: Option<NodeId>,
    /// Of copies of a stage: gradients at their positions, and what arrives from the other copy.
    copies: Vec<(usize, usize, NodeId)>,
    arriving: BTreeMap<(usize, usize), NodeId>,
    /// What earlier microbatches have exchanged, by position, first layer and span.
    earlier: BTreeMap<(usize, usize, Span), Vec<NodeId>>,
    /// Gradients that wait for the end of the backward pass.
    late: Vec<(usize, Vec<usize>, u64, Vec<NodeId>)>,
}

impl Emitter<'_> {
    /// The gradients of a piece: of its last microbatch, or of an earlier one where all travel.
    pub(crate) fn gradients(
        &mut self,
        position: usize,
        done: &Done,
        microbatch: Option<u32>,
        pending: &mut Pending,
    ) {
        let plan = self.plan;
        let stages = self.stages.len();
        let copies = stages > 1 && plan.pipeline.schedule.goes_both_ways();
        let tied = if stages > 1 && !copies { plan.model.tied } else { 0 };
        let table = tied.div_ceil(plan.degree(Axis::Tp)) * plan.gradient_precision.bytes();
        let head = plan.model.layers.len() - 1;
        let [first, last] = [done.last(), done.first()].map(|d| d.map_or(0, |(i, _)| *i));
        let units = plan.workload.parallelism.zero == 3 && !copies;
        let together = |a: &(usize, NodeId), b: &(usize, NodeId)| {
            units && plan.unit(&(first..last + 1), a.0).contains(&b.0)
        };
        for unit in done.chunk_by(together) {
            // The layers of a unit compute one after the other.
            let &(i, ready) = unit.last().expect("no chunk is empty");
            let layer = &plan.model.layers[i];
            if copies {
                let (own, experts) = plan.parameters(layer);
                let bytes = (own + experts) * plan.gradient_precision.bytes();
                let other = stages - 1 - position;
                pending.copies.push((position, i, ready));
                if bytes > 0 {
                    let what = (bytes, Purpose::Data, Pass::Backward);
                    let name = format!("{} gradient to its copy", layer.name);
                    let (_, receive) = self.message((position, other), &name, what, &[ready]);
                    pending.arriving.insert((other, i), receive);
                }
            } else if tied > 0 && i == head {
                let name = format!("{} tied gradient", layer.name);
                let what = (table, Purpose::Data, Pass::Backward);
                let (_, receive) = self.message((position, 0), &name, what, &[ready]);
                pending.head = Some((position, i, ready));
                pending.table = Some(receive);
                if let Some(ready) = pending.first.take() {
                    self.tied_ends((0, 0, ready), pending);
                }
            } else if tied > 0 && i == 0 {
                if pending.head.is_some() {
                    self.tied_ends((position, i, ready), pending);
                } else {
                    pending.first = Some(ready);
                }
            } else {
                let unit: Vec<usize> = unit.iter().rev().map(|(i, _)| *i).collect();
                self.leave(position, unit, (0, microbatch), vec![ready], pending);
            }
        }
    }

    /// Both ends of a tied table have their part of its gradient: the first one's goes to the last.
    fn tied_ends(&mut self, (position, i, ready): (usize, usize, NodeId), pending: &mut Pending) {
        let plan = self.plan;
        let table = plan.model.tied.div_ceil(plan.degree(Axis::Tp));
        let bytes = table * plan.gradient_precision.bytes();
        let name = format!("{} tied gradient", plan.model.layers[i].name);
        let waits: Vec<NodeId> = match plan.pipeline.flushes() {
            true => [ready].into_iter().chain(pending.table).collect(),
            false => vec![self.with_carried(position, ready, pending.table)],
        };
        if let Some((last, head, own)) = pending.head.take() {
            let what = (bytes, Purpose::Data, Pass::Backward);
            let (_, receive) = self.message((position, last), &name, what, &[ready]);
            // Without a flush the last stage has sent its part in the iteration before.
            let own = plan.pipeline.flushes().then_some(own);
            let both = own.into_iter().chain([receive]).collect();
            self.leave(last, vec![head], (plan.model.tied, None), both, pending);
        }
        self.leave(position, vec![i], (0, None), waits, pending);
    }

    /// A unit's gradient travels now, or when the backward pass is over.
    fn leave(
        &mut self,
        position: usize,
        unit: Vec<usize>,
        (tied, microbatch): (u64, Option<u32>),
        ready: Vec<NodeId>,
        pending: &mut Pending,
    ) {
        if self.plan.workload.parallelism.overlap_gradients {
            self.gradient(position, &unit, (tied, microbatch), &ready, pending);
        } else {
            pending.late.push((position, unit, tied, ready));
        }
    }

    /// A unit's gradient over its replicas.
    fn gradient(
        &mut self,
        position: usize,
        unit: &[usize],
        (tied, microbatch): (u64, Option<u32>),
        ready: &[NodeId],
        pending: &mut Pending,
    ) {
        let plan = self.plan;
        let first = unit[0];
        let layers = &plan.model.layers[first..=unit[unit.len() - 1]];
        let tied = tied.div_ceil(plan.degree(Axis::Tp));
        for (parameters, span) in self.unit_spans(layers, tied) {
            let travels = self.travels(&layers[0], span).then_some(span);
            let of = if travels == Some(Span::OfExpert) { " of experts" } else { "" };
            let turn = microbatch.map_or_else(String::new, |at| format!(" of microbatch {at}"));
            let name = format!("{} gradient{of}{turn}", unit_name(layers));
            let apart = plan.workload.every > 1;
            let what = (&layers[0], place(first));
            let (last, decoding) = travels.filter(|_| !apart).map_or((None, Time::ZERO), |span| {
                self.exchange(position, what, &name, (parameters, span), ready)
            });
            let mut after = last.map_or_else(|| ready.to_vec(), |id| vec![id]);
            if microbatch.is_some() {
                pending.earlier.entry((position, first, span)).or_default().extend(after);
                continue;
            }
            after.extend(pending.earlier.remove(&(position, first, span)).unwrap_or_default());
            for i in unit {
                let tied = if *i == first { tied } else { 0 };
                let own = self.parameters_by_span(&plan.model.layers[*i], tied).into_iter();
                let own: u64 = own.filter(|(_, of)| *of == span).map(|(count, _)| count).sum();
                if own > 0 {
                    let after = after.clone();
                    let update = Update {
                        position,
                        layer: *i,
                        parameters: own,
                        after,
                        span: travels,
                        decoding,
                    };
                    pending.updates.push(update);
                }
            }
        }
    }

    /// The parameters of a layer, `tied` more of its own, by those who share them.
    pub(super) fn parameters_by_span(&self, layer: &Layer, tied: u64) -> [(u64, Span); 2] {
        let (own, experts) = self.plan.parameters(layer);
        let replicas = self.replicas(layer);
        // Without expert parallelism both travel together.
        if self.ranks(Span::Experts) > 1 {
            [(own + tied, replicas), (experts, Span::OfExpert)]
        } else {
            [(own + tied + experts, replicas), (0, Span::OfExpert)]
        }
    }

    pub(super) fn travels(&self, layer: &Layer, span: Span) -> bool {
        !matches!(layer.cut, Cut::Tables { .. }) && self.ranks(span) > 1
    }

    /// The parts of a layer's gradient that travel.
    pub(super) fn spans(&self, layer: &Layer) -> Vec<(u64, Span)> {
        let parts = self.parameters_by_span(layer, 0).into_iter();
        parts.filter(|(count, span)| *count > 0 && self.travels(layer, *span)).collect()
    }

    /// With `updates: together`, by position: what stands for all its gradients and the end of its passes.
    fn steps(&mut self, updates: &[Update], over: &[Option<NodeId>]) -> Vec<Option<NodeId>> {
        let each = self.plan.workload.updates == Some(Updates::Each);
        let mut steps = vec![None; over.len()];
        if each || self.plan.workload.every > 1 {
            return steps;
        }
        for (position, step) in steps.iter_mut().enumerate() {
            let own = updates.iter().filter(|update| update.position == position);
            let mut after: Vec<NodeId> = own.flat_map(|update| update.after.clone()).collect();
            if after.is_empty() {
                continue;
            }
            after.extend(over[position]);
            after.sort_unstable();
            after.dedup();
            *step = Some(self.instant(position, "optimizer step", Pass::Update, &after));
        }
        steps
    }

    /// The updates, and what the next iteration waits for.
    pub(crate) fn updates(&mut self, mut pending: Pending) {
        for (position, i, ready) in std::mem::take(&mut pending.copies) {
            let mut waits = vec![ready];
            waits.extend(pending.arriving.remove(&(position, i)));
            self.leave(position, vec![i], (0, None), waits, &mut pending);
        }
        let zero = self.plan.workload.parallelism.zero;
        let apart = self.plan.workload.every > 1;
        let over: Vec<Option<NodeId>> = self.stages.iter().map(|stage| stage.chain).collect();
        for (position, unit, tied, mut ready) in std::mem::take(&mut pending.late) {
            ready.extend(over[position]);
            self.gradient(position, &unit, (tied, None), &ready, &mut pending);
        }
        let begins = self.steps(&pending.updates, &over);
        for Update { position, layer: i, parameters, after, span, decoding } in pending.updates {
            let layer = &self.plan.model.layers[i];
            let name = format!("{} update", layer.name);
            let shard = span.map(|span| if zero > 0 { self.sharded(span).0 } else { span });
            let replicas = shard.map_or(1, |shard| self.ranks(shard));
            let own = if zero > 0 { parameters.div_ceil(replicas) } else { parameters };
            let time = self.plan.update(self.plan.updated(i, own));
            let time = time.checked_add(decoding).unwrap_or(time);
            // Without an exchange a script asks for its step once the backward pass is over.
            let begin = if apart { over[position] } else { begins[position] };
            let after = begin.map_or(after, |id| vec![id]);
            let mut last = self.update(position, (&name, time), place(i), &after);
            if let Some(span) = shard.filter(|_| apart || matches!(zero, 1 | 2)) {
                let operation = if apart { AllReduce } else { AllGather };
                let what = (operation, parameters * self.plan.width(), span);
                let kind = (Purpose::Data, Some(place(i)), Pass::Update);
                let gather = format!("{} parameters", layer.name);
                if let Some(gathered) = self.collective(position, &gather, what, kind, &[last]) {
                    let name = format!("{} updated", layer.name);
                    let none = Time::ZERO;
                    last = self.update(position, (&name, none), place(i), &[gathered]);
                }
            }
            if self.is_waited_for_later(position, i) {
                self.carry_further(position, last);
                continue;
            }
            let together = apart || !self.plan.workload.parallelism.overlap_parameters;
            if let Some(first) = self.stages[position].first.filter(|_| together) {
                // A step that averages, or gathers at once, returns when all parameters are there.
                self.builder.carry(first, last);
            }
            for user in self.stages[position].users.get(&i).cloned().unwrap_or_default() {
                self.builder.carry(user, last);
            }
        }
    }
}

pub(super) fn place(layer: usize) -> u32 {
    u32::try_from(layer).expect("few layers")
}
