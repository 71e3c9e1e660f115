//! Gradients over replicas, updates, and what the next iteration waits for.
//!
//! | ZeRO | a layer's gradient | after the update |
//! |---|---|---|
//! | 0 | all-reduce | – |
//! | 1, 2 | reduce-scatter | all-gather of the parameters |
//! | 3 | reduce-scatter | – (gathered before each pass) |
//!
//! (Rajbhandari et al., SC'20; 1 and 2 differ in memory alone.) A layer's gradient travels when its
//! last microbatch is through, backward order. Parameters of experts are reduced over the replicas
//! of each expert alone. Gradients of tables stay where they are.
//!
//! Replicas that train apart (`every` above 1) exchange no gradient: after an update the parameters
//! are all-reduced, which the driver does in every so many iterations alone; the next one begins when
//! all are.
//!
//! A tied table whose two ends are on different stages: each end sends its gradient to the other
//! first. Chimera's two copies of a stage do the same for every layer.

use std::collections::BTreeMap;

use allrail_collective::Operation::{AllGather, AllReduce};
use allrail_core::Time;

use super::emit::{Emitter, Span};
use super::passes::Done;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::{Axis, PipelineSchedule};

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
    /// Chimera: gradients at their positions, and what arrives from the other copy.
    copies: Vec<(usize, usize, NodeId)>,
    arriving: BTreeMap<(usize, usize), NodeId>,
}

impl Emitter<'_> {
    /// The gradients of a piece whose last microbatch is through.
    pub(crate) fn gradients(&mut self, position: usize, done: &Done, pending: &mut Pending) {
        let plan = self.plan;
        let stages = self.stages.len();
        let chimera = stages > 1 && plan.pipeline.schedule == PipelineSchedule::Chimera;
        let tied = if stages > 1 && !chimera { plan.model.tied } else { 0 };
        let table = tied.div_ceil(plan.degree(Axis::Tp)) * plan.gradient_precision.bytes();
        let head = plan.model.layers.len() - 1;
        for &(i, ready) in done {
            let layer = &plan.model.layers[i];
            if chimera {
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
            } else if tied > 0 && i == 0 {
                let name = format!("{} tied gradient", layer.name);
                let what = (table, Purpose::Data, Pass::Backward);
                let waits: Vec<NodeId> = [ready].into_iter().chain(pending.table).collect();
                if let Some((last, i, own)) = pending.head.take() {
                    let (_, receive) = self.message((position, last), &name, what, &[ready]);
                    self.gradient(last, i, plan.model.tied, &[own, receive], pending);
                }
                self.gradient(position, i, 0, &waits, pending);
            } else {
                self.gradient(position, i, 0, &[ready], pending);
            }
        }
    }

    /// One layer's gradient over its replicas.
    fn gradient(
        &mut self,
        position: usize,
        i: usize,
        tied: u64,
        ready: &[NodeId],
        pending: &mut Pending,
    ) {
        let plan = self.plan;
        let layer = &plan.model.layers[i];
        let tied = tied.div_ceil(plan.degree(Axis::Tp));
        for (parameters, span) in self.parameters_by_span(layer, tied) {
            if parameters == 0 {
                continue;
            }
            let span = self.travels(layer, span).then_some(span);
            let of = if span == Some(Span::OfExpert) { " of experts" } else { "" };
            let name = format!("{} gradient{of}", layer.name);
            let apart = plan.workload.every > 1;
            let (last, decoding) = span.filter(|_| !apart).map_or((None, Time::ZERO), |span| {
                self.exchange(position, (layer, place(i)), &name, (parameters, span), ready)
            });
            let after = last.map_or_else(|| ready.to_vec(), |id| vec![id]);
            pending.updates.push(Update { position, layer: i, parameters, after, span, decoding });
        }
    }

    /// The parameters of a layer, `tied` more of its own, by those who share them.
    fn parameters_by_span(&self, layer: &Layer, tied: u64) -> [(u64, Span); 2] {
        let (own, experts) = self.plan.parameters(layer);
        let replicas = self.replicas(layer);
        // Without expert parallelism both travel together.
        if self.ranks(Span::Experts) > 1 {
            [(own + tied, replicas), (experts, Span::OfExpert)]
        } else {
            [(own + tied + experts, replicas), (0, Span::OfExpert)]
        }
    }

    fn travels(&self, layer: &Layer, span: Span) -> bool {
        !matches!(layer.cut, Cut::Tables { .. }) && self.ranks(span) > 1
    }

    /// The parts of a layer's gradient that travel.
    pub(super) fn spans(&self, layer: &Layer) -> Vec<(u64, Span)> {
        let parts = self.parameters_by_span(layer, 0).into_iter();
        parts.filter(|(count, span)| *count > 0 && self.travels(layer, *span)).collect()
    }

    /// The updates, and what the next iteration waits for.
    pub(crate) fn updates(&mut self, mut pending: Pending) {
        for (position, i, ready) in std::mem::take(&mut pending.copies) {
            let mut waits = vec![ready];
            waits.extend(pending.arriving.remove(&(position, i)));
            self.gradient(position, i, 0, &waits, &mut pending);
        }
        let zero = self.plan.workload.parallelism.zero;
        let apart = self.plan.workload.every > 1;
        let over: Vec<Option<NodeId>> = self.stages.iter().map(|stage| stage.chain[1]).collect();
        for Update { position, layer: i, parameters, after, span, decoding } in pending.updates {
            let layer = &self.plan.model.layers[i];
            let name = format!("{} update", layer.name);
            let replicas = span.map_or(1, |span| self.ranks(span));
            let own = if zero > 0 { parameters.div_ceil(replicas) } else { parameters };
            let time = self.plan.update(self.plan.updated(layer, own));
            let time = time.checked_add(decoding).unwrap_or(time);
            // Without an exchange a script asks for its step once the backward pass is over.
            let after = over[position].filter(|_| apart).map_or(after, |id| vec![id]);
            let mut last = self.update(position, (&name, time), place(i), &after);
            if let Some(span) = span.filter(|_| apart || matches!(zero, 1 | 2)) {
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
            if let Some(first) = self.stages[position].first.filter(|_| apart) {
                // The step that averages returns when all parameters are there.
                self.builder.carry(first, last);
            }
            for user in self.stages[position].users.get(&i).cloned().unwrap_or_default() {
                self.builder.carry(user, last);
            }
        }
    }
}

fn place(layer: usize) -> u32 {
    u32::try_from(layer).expect("few layers")
}
