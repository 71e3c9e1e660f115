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
//! A tied table whose two ends are on different stages: each end sends its gradient to the other
//! first. Chimera's two copies of a stage do the same for every layer.

use std::collections::BTreeMap;

use allrail_collective::Operation::{AllGather, AllReduce, ReduceScatter};

use super::emit::{Emitter, Span};
use super::passes::Done;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::Cut;
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
        let (own, experts) = plan.parameters(layer);
        let own = own + tied.div_ceil(plan.degree(Axis::Tp));
        let replicas = self.replicas(layer);
        // Without expert parallelism both travel together.
        let apart = self.ranks(Span::Experts) > 1;
        let together = if apart { [own, experts] } else { [own + experts, 0] };
        for (parameters, span) in together.into_iter().zip([replicas, Span::OfExpert]) {
            if parameters == 0 {
                continue;
            }
            let stays = matches!(layer.cut, Cut::Tables { .. });
            let travels = (!stays && self.ranks(span) > 1).then_some(span);
            let of = if span == Span::OfExpert { " of experts" } else { "" };
            let last = travels.and_then(|span| {
                let zero = plan.workload.parallelism.zero;
                let operation = if zero == 0 { AllReduce } else { ReduceScatter };
                let name = format!("{} gradient{of}", layer.name);
                let what = (operation, parameters * plan.gradient_precision.bytes(), span);
                let kind = (Purpose::Data, Some(place(i)), Pass::Backward);
                self.collective(position, &name, what, kind, ready)
            });
            let after = last.map_or_else(|| ready.to_vec(), |id| vec![id]);
            let span = travels;
            pending.updates.push(Update { position, layer: i, parameters, after, span });
        }
    }

    /// The updates, and what the next iteration waits for.
    pub(crate) fn updates(&mut self, mut pending: Pending) {
        for (position, i, ready) in std::mem::take(&mut pending.copies) {
            let mut waits = vec![ready];
            waits.extend(pending.arriving.remove(&(position, i)));
            self.gradient(position, i, 0, &waits, &mut pending);
        }
        let zero = self.plan.workload.parallelism.zero;
        for Update { position, layer: i, parameters, after, span } in pending.updates {
            let layer = &self.plan.model.layers[i];
            let name = format!("{} update", layer.name);
            let replicas = span.map_or(1, |span| self.ranks(span));
            let own = if zero > 0 { parameters.div_ceil(replicas) } else { parameters };
            let time = self.plan.update(self.plan.updated(layer, own));
            let mut last = self.update(position, (&name, time), place(i), &after);
            if let (1 | 2, Some(span)) = (zero, span) {
                let what = (AllGather, parameters * self.plan.width(), span);
                let kind = (Purpose::Data, Some(place(i)), Pass::Update);
                let gather = format!("{} parameters", layer.name);
                if let Some(gathered) = self.collective(position, &gather, what, kind, &[last]) {
                    let name = format!("{} updated", layer.name);
                    let none = allrail_core::Time::ZERO;
                    last = self.update(position, (&name, none), place(i), &[gathered]);
                }
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
