//! The nodes of one pass of a microbatch through one piece of the model.
//!
//! | cut | forward | backward |
//! |---|---|---|
//! | `tp` | compute, all-reduce | gradient of the input, all-reduce beside the gradient of the weights |
//! | `tp` with `sp` | all-gather, compute, reduce-scatter | the same with the gradient of the input |
//! | `ep` | all-to-all, compute, all-to-all | the same |
//! | `cp` | attention in blocks, or gathered (`context.rs`) | the same |
//! | `op`, space | compute, halos | halos, compute |
//! | `op`, gathered | all-gather, compute | compute, reduce-scatter |
//! | tables | compute, all-to-all beside the next layers | all-to-all beside the layers before, compute |
//!
//! Megatron-LM (Shoeybi et al., 2019; Korthikanti et al., 2022 for `sp`, whose second gather of a
//! layer's input, hidden behind the gradient of its output, is left out). With ZeRO 3
//! parameters are gathered before each pass (`shards.rs`).
//!
//! A block whose activations are not kept is computed again before its gradient, with all that it exchanges
//! (`recompute.rs`).
//!
//! A stage sends the whole output of its last layer to the next one, from each rank of a tensor
//! group; with `sp` its share.

use std::ops::Range;

use allrail_collective::Operation::{AllGather, AllReduce, AllToAll, ReduceScatter};
use allrail_core::Time;

use super::context::Computing;
use super::emit::{Emitter, Span};
use super::order::Slot;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::Axis;

/// What passes hand on from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// By (direction-free) microbatch and piece: what the pass waits for.
    forward: std::collections::BTreeMap<(u32, u32), Vec<NodeId>>,
    backward: std::collections::BTreeMap<(u32, u32), Vec<NodeId>>,
}

impl Handed {
    /// Whether a pass has all that it needs from other passes.
    pub(crate) fn ready(&self, slot: Slot) -> bool {
        let at = (slot.microbatch, slot.piece);
        if slot.forward {
            slot.piece == 0 || self.forward.contains_key(&at)
        } else {
            self.backward.contains_key(&at)
        }
    }
}

/// Which run of a forward pass it is.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// In names of nodes.
    word: &'static str,
    /// What it is part of.
    pass: Pass,
}

impl Run {
    const FIRST: Self = Self { word: "forward", pass: Pass::Forward };
    const AGAIN: Self = Self { word: "recomputed", pass: Pass::Backward };
}

/// The last node that gives a layer's gradient, of the last microbatch.
pub(crate) type Done = Vec<(usize, NodeId)>;

impl Emitter<'_> {
    /// Of so many elements of a sample, cut so many ways beside its tokens: those of a microbatch.
    pub(super) fn bytes(&self, elements: u64, cut: u64) -> u64 {
        let cut = cut * self.plan.degree(Axis::Cp);
        elements.saturating_mul(self.plan.samples).saturating_mul(self.plan.width()).div_ceil(cut)
    }

    /// What a piece hands on, of a microbatch, from one rank.
    fn handed_on(&self, layer: &Layer) -> u64 {
        let shares = self.plan.shares(layer);
        self.bytes(layer.output, shares.whole)
    }

    /// A forward pass.
    pub(crate) fn forward(&mut self, slot: Slot, handed: &mut Handed) {
        let plan = self.plan;
        let position = plan.pipeline.position(slot.piece, slot.direction) as usize;
        let mut data = handed.forward.remove(&(slot.microbatch, slot.piece)).unwrap_or_default();
        let mut rows: Vec<NodeId> = Vec::new();
        let layers = plan.pieces[slot.piece as usize].clone();
        for i in layers.clone() {
            let layer = &plan.model.layers[i];
            if layer.joins {
                data.append(&mut rows);
            }
            data = self.layer_forward(position, i, slot, Run::FIRST, data);
            if matches!(layer.cut, Cut::Tables { .. }) {
                rows = std::mem::take(&mut data);
            }
        }
        let (next, at) = (slot.piece + 1, slot.microbatch);
        if next == plan.pipeline.total_pieces() {
            handed.backward.insert((at, slot.piece), data);
            return;
        }
        let destination = plan.pipeline.position(next, slot.direction) as usize;
        if destination != position {
            let last = &plan.model.layers[layers.end - 1];
            let name = format!("{} {}{}", last.name, "activations", suffix(self, slot));
            let bytes = self.handed_on(last);
            let what = (bytes, Purpose::Pipeline, Pass::Forward);
            let data = self.after(position, &data);
            let (_, receive) = self.message((position, destination), &name, what, &data);
            handed.forward.insert((at, next), vec![receive]);
        } else {
            handed.forward.insert((at, next), data);
        }
    }

    /// What a communication waits for: the data, or at least the chain.
    pub(super) fn after(&self, position: usize, data: &[NodeId]) -> Vec<NodeId> {
        if data.is_empty() {
            self.stages[position].chain.into_iter().collect()
        } else {
            data.to_vec()
        }
    }

    fn layer_forward(
        &mut self,
        position: usize,
        i: usize,
        slot: Slot,
        Run { word, pass }: Run,
        mut data: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let plan = self.plan;
        let layer = &plan.model.layers[i];
        let sp = plan.workload.parallelism.sp;
        let name = format!("{} {word}{}", layer.name, suffix(self, slot));
        let kind = |purpose: Purpose| (purpose, None, pass);
        let unit = plan.unit(&plan.pieces[slot.piece as usize], i);
        let entering = (unit.clone(), i == unit.start);
        let of_pass = &name[layer.name.len()..];
        let parameters = self.gather_parameters(position, entering, of_pass, pass);
        match layer.cut {
            Cut::Tensor { backward, .. } if sp && backward > 0 => {
                let what = (AllGather, self.bytes(backward, 1), Span::Tensor);
                let after = self.after(position, &data);
                let gathered =
                    self.collective(position, &name, what, kind(Purpose::Tensor), &after);
                data = gathered.map_or(data, |id| vec![id]);
            }
            Cut::Gathered { input } => {
                let what = (AllGather, self.bytes(input, 1), Span::Shards);
                let after = self.after(position, &data);
                let gathered =
                    self.collective(position, &name, what, kind(Purpose::Operator), &after);
                data = gathered.map_or(data, |id| vec![id]);
            }
            _ => {}
        }
        data = self.exchange_tokens(position, layer, &name, pass, data);
        data.extend(parameters);
        let computing = plan.forward_computing(layer, plan.times[i], pass);
        let (first, computed) = self.attend(position, layer, &name, computing, &data);
        let users = self.stages[position].users.entry(i).or_default();
        if users.is_empty() {
            users.push(first);
        }
        let mut output = self.exchange_tokens(position, layer, &name, pass, vec![computed]);
        match layer.cut {
            Cut::Tensor { forward, .. } if forward > 0 => {
                let operation = if sp { ReduceScatter } else { AllReduce };
                let what = (operation, self.bytes(forward, 1), Span::Tensor);
                let sum = self.collective(position, &name, what, kind(Purpose::Tensor), &output);
                output = sum.map_or(output, |id| vec![id]);
            }
            Cut::Spatial { halo } => {
                let bytes = self.bytes(halo, 1);
                let borders = self.halo(position, &format!("{name} halo"), bytes, pass, &output);
                output.extend(borders);
            }
            Cut::Tables { exchanged } => {
                let what = (AllToAll, self.bytes(exchanged, 1), Span::Replicas);
                let rows = self.collective(position, &name, what, kind(Purpose::Expert), &output);
                output = rows.map_or(output, |id| vec![id]);
            }
            _ => {}
        }
        output
    }

    /// Tokens to their experts, or back.
    fn exchange_tokens(
        &mut self,
        position: usize,
        layer: &Layer,
        name: &str,
        pass: Pass,
        data: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let Some(experts) = layer.experts else { return data };
        let whole = self.plan.shares(layer).whole;
        let what = (AllToAll, self.bytes(experts.dispatched, whole), Span::Experts);
        let after = self.after(position, &data);
        let arrived = self.collective(position, name, what, (Purpose::Expert, None, pass), &after);
        arrived.map_or(data, |id| vec![id])
    }

    /// Who has the same parameters of a layer.
    pub(crate) fn replicas(&self, layer: &Layer) -> Span {
        match layer.cut {
            Cut::Spatial { .. } => Span::ReplicasAndShards,
            _ => Span::Replicas,
        }
    }

    /// A backward pass, and which node gives which layer's gradient, ready to leave if it `leaves`.
    pub(crate) fn backward(&mut self, slot: Slot, leaves: bool, handed: &mut Handed) -> Done {
        let plan = self.plan;
        let position = plan.pipeline.position(slot.piece, slot.direction) as usize;
        let mut data = handed.backward.remove(&(slot.microbatch, slot.piece)).unwrap_or_default();
        let mut rows: Vec<NodeId> = Vec::new();
        let layers = plan.pieces[slot.piece as usize].clone();
        let mut done = Done::new();
        for i in layers.clone().rev() {
            let layer = &plan.model.layers[i];
            if matches!(layer.cut, Cut::Tables { .. }) {
                data.append(&mut rows);
            }
            if let Some(block) = self.repeated(&layers, i) {
                let mut again = data.clone();
                for j in block {
                    again = self.layer_forward(position, j, slot, Run::AGAIN, again);
                }
                data.extend(again);
            }
            let mut gradient;
            (data, gradient) = self.layer_backward(position, i, slot, data);
            let before = if leaves { self.before_leaving(layer) } else { Time::ZERO };
            if before > Time::ZERO {
                let name = format!("{} gradient compressed", layer.name);
                gradient = self.compute(position, &name, (before, Pass::Backward), &[gradient]);
            }
            done.push((i, gradient));
            if layer.joins {
                rows = self.rows_back(position, i, slot, &data);
            }
        }
        if slot.piece == 0 {
            return done;
        }
        let destination = plan.pipeline.position(slot.piece - 1, slot.direction) as usize;
        let at = (slot.microbatch, slot.piece - 1);
        if destination != position {
            let before = &plan.model.layers[layers.start - 1];
            let name = format!("{} {}{}", before.name, "gradient", suffix(self, slot));
            let what = (self.handed_on(before), Purpose::Pipeline, Pass::Backward);
            let data = self.after(position, &data);
            let (_, receive) = self.message((position, destination), &name, what, &data);
            handed.backward.insert(at, vec![receive]);
        } else {
            handed.backward.insert(at, data);
        }
        done
    }

    /// The block that ends with a layer, if it is computed again before that layer's gradient.
    fn repeated(&self, layers: &Range<usize>, i: usize) -> Option<Range<usize>> {
        let all = &self.plan.model.layers;
        let recompute = self.plan.workload.parallelism.recompute;
        let goes_on = |i: usize| recompute.joins(&all[i], &all[i + 1]);
        if !recompute.repeats(&all[i]) || (i + 1 < layers.end && goes_on(i)) {
            return None;
        }
        let before = (layers.start..i).rev().take_while(|before| goes_on(*before)).count();
        Some(i - before..i + 1)
    }

    /// The gradients of embeddings travel to their tables.
    fn rows_back(&mut self, position: usize, i: usize, slot: Slot, data: &[NodeId]) -> Vec<NodeId> {
        let layers = &self.plan.model.layers[..i];
        let Some(table) = layers.iter().rev().find(|l| matches!(l.cut, Cut::Tables { .. })) else {
            return Vec::new();
        };
        let Cut::Tables { exchanged } = table.cut else { return Vec::new() };
        let name = format!("{} backward{}", table.name, suffix(self, slot));
        let what = (AllToAll, self.bytes(exchanged, 1), Span::Replicas);
        let kind = (Purpose::Expert, None, Pass::Backward);
        self.collective(position, &name, what, kind, data).into_iter().collect()
    }

    /// (what the layer before waits for, the node that ends this layer's gradient).
    fn layer_backward(
        &mut self,
        position: usize,
        i: usize,
        slot: Slot,
        mut data: Vec<NodeId>,
    ) -> (Vec<NodeId>, NodeId) {
        let plan = self.plan;
        let (layer, times) = (&plan.model.layers[i], plan.times[i]);
        let sp = plan.workload.parallelism.sp;
        let name = format!("{} backward{}", layer.name, suffix(self, slot));
        let kind = |purpose: Purpose| (purpose, None, Pass::Backward);
        // A block that was repeated still has its parameters.
        let unit = plan.unit(&plan.pieces[slot.piece as usize], i);
        let enters = i + 1 == unit.end && !plan.workload.parallelism.recompute.repeats(layer);
        let of_pass = &name[layer.name.len()..];
        let parameters = self.gather_parameters(position, (unit, enters), of_pass, Pass::Backward);
        match layer.cut {
            Cut::Tensor { forward, .. } if sp && forward > 0 => {
                let what = (AllGather, self.bytes(forward, 1), Span::Tensor);
                let after = self.after(position, &data);
                let gathered =
                    self.collective(position, &name, what, kind(Purpose::Tensor), &after);
                data = gathered.map_or(data, |id| vec![id]);
            }
            Cut::Spatial { halo } => {
                let after = self.after(position, &data);
                let bytes = self.bytes(halo, 1);
                let borders =
                    self.halo(position, &format!("{name} halo"), bytes, Pass::Backward, &after);
                data.extend(borders);
            }
            _ => {}
        }
        data = self.exchange_tokens(position, layer, &name, Pass::Backward, data);
        data.extend(parameters);
        let summed = match layer.cut {
            Cut::Tensor { backward, .. } if self.ranks(Span::Tensor) > 1 => backward,
            _ => 0,
        };
        if summed == 0 || layer.experts.is_some_and(|_| self.ranks(Span::Experts) > 1) {
            // Nothing to hide behind the gradient of the weights: both in one node.
            let input = plan.input_computing(layer, times);
            let all = times.input.checked_add(times.weight).unwrap_or(times.input);
            let both = Computing { all, ..input };
            let node = self.attend_back(position, layer, &name, both, &data);
            let mut output =
                self.exchange_tokens(position, layer, &name, Pass::Backward, vec![node]);
            if summed > 0 {
                output = self.sum_inputs(position, &name, summed, output);
            }
            if let Cut::Gathered { input } = layer.cut {
                let what = (ReduceScatter, self.bytes(input, 1), Span::Shards);
                let cut = self.collective(position, &name, what, kind(Purpose::Operator), &output);
                output = cut.map_or(output, |id| vec![id]);
            }
            return (output, node);
        }
        let input = format!("{name} of inputs");
        let computing = plan.input_computing(layer, times);
        let node = self.attend_back(position, layer, &input, computing, &data);
        let output = self.sum_inputs(position, &name, summed, vec![node]);
        let weights = format!("{name} of weights");
        let gradient = self.compute(position, &weights, (times.weight, Pass::Backward), &[]);
        (output, gradient)
    }

    /// The ranks of a tensor group sum the gradients of their inputs.
    fn sum_inputs(
        &mut self,
        position: usize,
        name: &str,
        elements: u64,
        data: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let sp = self.plan.workload.parallelism.sp;
        let operation = if sp { ReduceScatter } else { AllReduce };
        let what = (operation, self.bytes(elements, 1), Span::Tensor);
        let kind = (Purpose::Tensor, None, Pass::Backward);
        let sum = self.collective(position, name, what, kind, &data);
        sum.map_or(data, |id| vec![id])
    }
}

/// Which microbatch, where there are several.
fn suffix(emitter: &Emitter<'_>, slot: Slot) -> String {
    if emitter.plan.pipeline.microbatches == 1 {
        String::new()
    } else {
        format!(" {}", slot.microbatch)
    }
}
