//! How a layer's gradient travels: as it is, by the workload's compression, or a table's as rows (`rows.rs`).
//!
//! | when | what |
//! |---|---|
//! | before the first collective | its cost is a node of the backward pass: the layer before waits for it |
//! | between two | its cost passes beside the backward pass, on a thread or stream of its own |
//! | after the last | its cost is part of the update |
//!
//! A layer is several tensors: each matrix and the rest, or one square where its shapes are not
//! known. They are compressed each for itself and travel together, in the n-th collective what each
//! has for it. The second collective of a gradient is the business of a tensor scheduler of its own,
//! as a bucket of firsts must not wait for a second that waits for them.

use allrail_collective::Operation;
use allrail_core::{FieldError, Time, counted};

use super::emit::{Emitter, Span};
use super::plan::Plan;
use crate::compression::{Compression, Exchange, Gradient, Travel};
use crate::device::{self, Cost};
use crate::error::wrong;
use crate::graph::{Node, NodeId, Pass, Purpose, Work};
use crate::models::Layer;
use crate::spec::Workload;

impl Emitter<'_> {
    /// The gradient of `parameters` numbers of a layer, over a span.
    fn travel(&self, layer: &Layer, parameters: u64, span: Span) -> Option<Travel> {
        let compression = self.plan.compression.as_ref()?;
        let (width, ranks) = (self.plan.gradient_precision.bytes(), self.ranks(span));
        let mut sum = Travel { exchanges: Vec::new(), after: Cost::default() };
        let mut as_it_is = 0;
        for shape in shapes(layer, parameters, self.plan.shares(layer).outputs) {
            let gradient = Gradient { shape: &shape, width, ranks };
            match compression.travel(&gradient) {
                Some(travel) => add(&mut sum, travel),
                None => as_it_is += gradient.bytes(),
            }
        }
        sum.exchanges.first_mut()?.bytes += as_it_is;
        Some(sum)
    }

    /// What a layer's backward pass computes before its gradients leave.
    pub(super) fn before_leaving(&self, layer: &Layer) -> Time {
        let mut cost = Cost::default();
        for (parameters, span) in self.spans(layer) {
            if let Some(travel) = self.travel(layer, parameters, span) {
                plus(&mut cost, travel.exchanges[0].before);
            }
        }
        self.time(cost)
    }

    /// Adds the collectives of a layer's gradient: the last, and the time that its update takes
    /// longer.
    pub(super) fn exchange(
        &mut self,
        position: usize,
        (layer, place): (&Layer, u32),
        name: &str,
        (parameters, span): (u64, Span),
        ready: &[NodeId],
    ) -> (Option<NodeId>, Time) {
        let i = place as usize;
        if let Some(done) = self.exchange_rows(position, i, name, (parameters, span), ready) {
            return done;
        }
        let kind = (Purpose::Data, Some(place), Pass::Backward);
        let Some(travel) = self.travel(layer, parameters, span) else {
            let zero = self.plan.workload.parallelism.zero;
            let operation = if zero == 0 { Operation::AllReduce } else { Operation::ReduceScatter };
            let what = (operation, parameters * self.plan.gradient_precision.bytes(), span);
            let (shard, copies) = if zero == 0 { (span, None) } else { self.sharded(span) };
            let what = (what.0, what.1, shard);
            let mut last = self.collective(position, name, what, kind, ready);
            if let Some(copies) = copies {
                let what = (Operation::AllReduce, what.1.div_ceil(self.ranks(shard)), copies);
                let after = last.map_or_else(|| ready.to_vec(), |id| vec![id]);
                let name = format!("{name} over copies");
                let again = self.collective(position, &name, what, kind, &after);
                if last.is_some() {
                    again.into_iter().for_each(|id| self.builder.second(id));
                }
                last = again.or(last);
            }
            return (last, Time::ZERO);
        };
        let mut last = None;
        for (turn, exchange) in travel.exchanges.iter().enumerate() {
            let what = (exchange.operation, exchange.bytes, span);
            let Some(before) = last else {
                last = self.collective(position, name, what, kind, ready);
                continue;
            };
            let (name, time) =
                (format!("{name}, exchange {}", turn + 1), self.time(exchange.before));
            let work = Work::Compute { time };
            let actor = self.stages[position].actor;
            let node = Node { actor, work, tensor: None, pass: Pass::Backward };
            let between = self.builder.node(&format!("{name} made"), node, &[before]);
            self.builder.delay(between);
            last = self.collective(position, &name, what, kind, &[between]);
            last.into_iter().for_each(|id| self.builder.second(id));
        }
        (last, self.time(travel.after))
    }

    fn time(&self, cost: Cost) -> Time {
        device::time(self.plan.device.picoseconds(cost))
    }
}

/// Whether replicas may train apart.
pub(super) fn check_apart(workload: &Workload) -> Result<(), FieldError> {
    let every = workload.every;
    if every == 0 {
        return Err(wrong("every", 0, "it is zero", "1 exchanges gradients in each iteration"));
    }
    if every > 1 && workload.parallelism.zero > 0 {
        let why = "with ZeRO no replica has an optimizer's whole state to train apart with";
        return Err(wrong("every", every, why, "leave `every` or `zero` out"));
    }
    if every > 1 && workload.compression.is_some() {
        let why = "replicas that train apart exchange parameters, and gradients are compressed";
        return Err(wrong("every", every, why, "leave `every` or `compression` out"));
    }
    if every > 1 && !(workload.iterations - 1).is_multiple_of(every) {
        let why = format!(
            "{} after the first hold no whole number of averages of parameters",
            counted(workload.iterations - 1, "iteration")
        );
        let hint = format!("`iterations: {}`", 2 * every + 1);
        return Err(wrong("every", every, &why, &hint));
    }
    Ok(())
}

/// What makes gradients smaller.
pub(super) fn compression(workload: &Workload) -> Result<Option<Box<dyn Compression>>, FieldError> {
    let Some(spec) = &workload.compression else { return Ok(None) };
    if workload.parallelism.zero > 0 {
        let why = "with ZeRO gradients are scattered, and what is compressed is summed whole";
        let hint = "leave `zero` out, or give a `gradient_precision`";
        return Err(wrong("compression.kind", &spec.kind, why, hint));
    }
    spec.compression().map(Some)
}

impl Plan<'_> {
    /// What a compression takes for granted.
    pub(super) fn compression_notes(&self) -> Vec<String> {
        let Some(spec) = &self.workload.compression else { return Vec::new() };
        let kind = &spec.kind;
        let mut notes = Vec::new();
        if !self.device.moves_bytes() {
            notes.push(format!(
                "`{kind}` takes no time to compute: `workload.compute` names no `memory_bandwidth`"
            ));
        }
        let layers = self.model.layers.iter();
        let unknown =
            layers.filter(|layer| layer.matrices.is_empty() && layer.all_parameters() > 0);
        let count = unknown.count();
        if count > 0 {
            notes.push(format!(
                "`{kind}` takes {} as one square each",
                counted(count, "layer of unknown shape")
            ));
        }
        notes
    }
}

/// The tensors of a layer, on one NPU: what is cut is cut by rows.
fn shapes(layer: &Layer, parameters: u64, cut: u64) -> Vec<Vec<u64>> {
    let known = layer.matrices.iter();
    let mut shapes: Vec<Vec<u64>> =
        known.map(|[rows, columns]| vec![rows.div_ceil(cut), *columns]).collect();
    let numbers = |shapes: &[Vec<u64>]| -> u64 {
        shapes.iter().map(|shape| shape.iter().product::<u64>()).sum()
    };
    if shapes.is_empty() || numbers(&shapes) > parameters {
        let side = parameters.isqrt();
        shapes = if side > 1 { vec![vec![parameters / side, side]] } else { Vec::new() };
    }
    let in_matrices = numbers(&shapes);
    if parameters > in_matrices {
        shapes.push(vec![parameters - in_matrices]);
    }
    shapes
}

fn plus(sum: &mut Cost, cost: Cost) {
    sum.flops += cost.flops;
    sum.bytes += cost.bytes;
}

fn add(sum: &mut Travel, travel: Travel) {
    plus(&mut sum.after, travel.after);
    for (turn, exchange) in travel.exchanges.into_iter().enumerate() {
        match sum.exchanges.get_mut(turn) {
            None => sum.exchanges.push(exchange),
            Some(Exchange { bytes, before, .. }) => {
                *bytes += exchange.bytes;
                plus(before, exchange.before);
            }
        }
    }
}
