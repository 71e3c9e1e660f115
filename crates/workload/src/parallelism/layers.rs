//! The nodes of one layer in one pass of a microbatch.
//!
//! | cut | forward | backward |
//! |---|---|---|
//! | `tp` | compute, all-reduce | gradient of the input, all-reduce beside the gradient of the weights (behind both with `overlap_sums: false`) |
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

use allrail_collective::Operation::{AllGather, AllReduce, AllToAll, ReduceScatter};
use allrail_core::Time;

use super::context::Computing;
use super::emit::{Emitter, Span};
use super::experts::Journey;
use super::slot::{Slot, Turn};
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::Axis;

/// Which run of a forward pass it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// In names of nodes.
    word: &'static str,
    /// What it is part of.
    pass: Pass,
}

impl Run {
    pub(super) const FIRST: Self = Self { word: "forward", pass: Pass::Forward };
    pub(super) const AGAIN: Self = Self { word: "recomputed", pass: Pass::Backward };
}

impl Emitter<'_> {
    /// Of so many elements of a sample, cut so many ways beside its tokens: those of a microbatch.
    pub(super) fn bytes(&self, elements: u64, cut: u64) -> u64 {
        let cut = cut * self.plan.degree(Axis::Cp);
        elements.saturating_mul(self.plan.samples).saturating_mul(self.plan.width()).div_ceil(cut)
    }

    /// The same of a layer's input, or its output's gradient, on its way to the ranks of a tensor group: what
    /// a recipe has converted.
    pub(super) fn gathered(&self, layer: &Layer, elements: u64, cut: u64) -> u64 {
        let (bytes, width) = (self.bytes(elements, cut), self.plan.width());
        let format = self.plan.workload.compute.recipe.gathered().filter(|_| layer.block);
        format.map_or(bytes, |format| (bytes * format.bits()).div_ceil(8 * width).min(bytes))
    }

    /// What a communication waits for: the data, or at least the chain.
    pub(super) fn after(&self, position: usize, data: &[NodeId]) -> Vec<NodeId> {
        if data.is_empty() {
            self.stages[position].chain.into_iter().collect()
        } else {
            data.to_vec()
        }
    }

    pub(super) fn layer_forward(
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
        let beside = plan.beside_forward(layer, plan.times[i]);
        match layer.cut {
            Cut::Tensor { backward, .. } if sp && backward > 0 && beside.gathered.is_none() => {
                let what = (AllGather, self.gathered(layer, backward, 1), Span::Tensor);
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
        let tokens = |journey| (layer, journey);
        data = self.exchange_tokens(position, tokens(Journey::Out), &name, pass, data);
        data.extend(parameters);
        let computing = plan.computing(plan.times[i], pass, true);
        let mut first = None;
        if let Some(gathered) = beside.gathered {
            let nodes = self.gathering_product((position, layer), &name, gathered, pass, &data);
            first = Some(nodes.0);
            data = vec![nodes.1];
        }
        let rest = beside.rest(computing);
        if first.is_none() || rest.all > Time::ZERO {
            let nodes = self.attend(position, layer, &name, rest, &data);
            first.get_or_insert(nodes.0);
            data = vec![nodes.1];
        }
        let users = self.stages[position].users.entry(i).or_default();
        if users.is_empty() {
            users.extend(first);
        }
        let output = self.exchange_tokens(position, tokens(Journey::Home), &name, pass, data);
        self.share_output(position, layer, &name, (pass, beside.scattered), output)
    }

    /// What a layer's ranks tell each other of its output.
    fn share_output(
        &mut self,
        position: usize,
        layer: &Layer,
        name: &str,
        (pass, scattered): (Pass, Option<(u64, Time)>),
        mut output: Vec<NodeId>,
    ) -> Vec<NodeId> {
        let sp = self.plan.workload.parallelism.sp;
        let kind = |purpose: Purpose| (purpose, None, pass);
        match layer.cut {
            Cut::Tensor { .. } if scattered.is_some() => {
                let product = scattered.unwrap_or_default();
                output = self.scattering_product(position, name, product, pass, &output);
            }
            Cut::Tensor { forward, .. } if forward > 0 => {
                let operation = if sp { ReduceScatter } else { AllReduce };
                let what = (operation, self.bytes(forward, 1), Span::Tensor);
                let sum = self.collective(position, name, what, kind(Purpose::Tensor), &output);
                output = sum.map_or(output, |id| vec![id]);
            }
            Cut::Spatial { halo } => {
                let bytes = self.bytes(halo, 1);
                let borders = self.halo(position, &format!("{name} halo"), bytes, pass, &output);
                output.extend(borders);
            }
            Cut::Tables { exchanged } => {
                let what = (AllToAll, self.bytes(exchanged, 1), Span::Replicas);
                let rows = self.collective(position, name, what, kind(Purpose::Expert), &output);
                output = rows.map_or(output, |id| vec![id]);
            }
            _ => {}
        }
        output
    }

    /// Who has the same parameters of a layer.
    pub(crate) fn replicas(&self, layer: &Layer) -> Span {
        match layer.cut {
            Cut::Spatial { .. } => Span::ReplicasAndShards,
            _ => Span::Replicas,
        }
    }

    /// The gradients of embeddings travel to their tables.
    pub(super) fn rows_back(
        &mut self,
        position: usize,
        i: usize,
        slot: Slot,
        data: &[NodeId],
    ) -> Vec<NodeId> {
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

    /// (what the layer before waits for, the node that ends this layer's gradient, as far as the pass makes it).
    pub(super) fn layer_backward(
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
        let beside = plan.beside_backward(layer, times);
        match layer.cut {
            Cut::Tensor { forward, .. } if sp && forward > 0 && beside.gathered.is_none() => {
                let what = (AllGather, self.gathered(layer, forward, 1), Span::Tensor);
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
        let tokens = |journey| (layer, journey);
        data = self.exchange_tokens(position, tokens(Journey::Out), &name, Pass::Backward, data);
        data.extend(parameters);
        if let Some(gathered) = beside.gathered {
            let at = (position, layer);
            let product = self.gathering_product(at, &name, gathered, Pass::Backward, &data);
            data = vec![product.1];
        }
        let summed = match layer.cut {
            Cut::Tensor { backward, .. } if self.ranks(Span::Tensor) > 1 => backward,
            _ => 0,
        };
        // Where nothing hides behind the gradient of the weights, both are one node.
        let apart = slot.turn == Turn::Inputs;
        let experts = layer.experts.is_some_and(|_| self.ranks(Span::Experts) > 1);
        let waits = plan.waits_for_kernels() || !plan.workload.parallelism.overlap_sums;
        let merged = !apart && (summed == 0 || experts || waits);
        let mut computing = plan.computing(times, Pass::Backward, false);
        let mut of_inputs = format!("{name} of inputs");
        if merged {
            let all = times.input.checked_add(times.weight).unwrap_or(times.input);
            computing = Computing { all, ..computing };
            of_inputs.clone_from(&name);
        }
        let node = self.attend_back(position, layer, &of_inputs, beside.rest(computing), &data);
        let mut output = self.exchange_tokens(
            position,
            tokens(Journey::Home),
            &name,
            Pass::Backward,
            vec![node],
        );
        if summed > 0 {
            output = self.sum_inputs(position, &name, summed, output);
        }
        if let Cut::Gathered { input } = layer.cut {
            let what = (ReduceScatter, self.bytes(input, 1), Span::Shards);
            let cut = self.collective(position, &name, what, kind(Purpose::Operator), &output);
            output = cut.map_or(output, |id| vec![id]);
        }
        if merged || apart {
            return (output, node);
        }
        (output, self.layer_weights(position, i, slot))
    }

    /// The gradient of a layer's weights.
    pub(super) fn layer_weights(&mut self, position: usize, i: usize, slot: Slot) -> NodeId {
        let name = &self.plan.model.layers[i].name;
        let name = format!("{name} backward{} of weights", suffix(self, slot));
        self.compute(position, &name, (self.plan.times[i].weight, Pass::Backward), &[])
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
pub(super) fn suffix(emitter: &Emitter<'_>, slot: Slot) -> String {
    if emitter.plan.pipeline.microbatches == 1 {
        String::new()
    } else {
        format!(" {}", slot.microbatch)
    }
}
