//! ZeRO and FSDP: states in shards over replicas.
//!
//! | `zero` | a gradient | parameters |
//! |---|---|---|
//! | 0 | all-reduce | whole |
//! | 1, 2 | reduce-scatter | all-gathered after the update |
//! | 3 | reduce-scatter | all-gathered before they are used |
//!
//! (Rajbhandari et al., SC'20; PyTorch FSDP, Zhao et al., VLDB 2023.)
//!
//! **Units.** With `zero: 3` what is gathered and scattered at once is a block of a transformer, as users wrap
//! it in FSDP; its ends, and layers by shape, are units of their own. A unit is gathered while the `prefetch`
//! units before it compute (0: when they have), before the forward and again before the backward pass. With
//! `reshard: false` (`SHARD_GRAD_OP`, FSDP2's `reshard_after_forward=False`) it is kept until its gradient has
//! travelled: gathered once a microbatch where that is after each, else once a step.
//!
//! `by_parameter` (FSDP2) copies a gathered unit into its parameters, and gradients in the precision in which they
//! are reduced into what is scattered: on the stream that computes (PyTorch's `_fsdp_collectives.py`).
//!
//! **Shards.** `shard: N` cuts states over N of the replicas, the nearest, and the rest holds copies (HSDP;
//! `--num-distributed-optimizer-instances` of Megatron-LM): a gradient is reduce-scattered among the N, and its
//! part all-reduced over the copies.
//!
//! **When.** `reduce: microbatch` sends the gradients of every microbatch, `step` the sum of all. FSDP and
//! DeepSpeed's ZeRO 2 and 3 do the first, as they have no room for whole gradients, so it is the default there;
//! not in a pipeline, which holds whole gradients until its last microbatch. `no_sync` is `step`.
//! `overlap_gradients: false` sends none before the backward pass of its stage is over, and
//! `overlap_parameters: false` lets no pass begin before all updated parameters are there: Megatron-LM
//! without `--overlap-grad-reduce`, `--overlap-param-gather`.

use std::ops::Range;

use allrail_collective::Operation::AllGather;
use allrail_core::{FieldError, Time, counted};

use super::emit::{Emitter, Span};
use super::plan::Plan;
use crate::error::wrong;
use crate::graph::{NodeId, Pass, Purpose};
use crate::models::{Cut, Layer};
use crate::spec::{Axis, Reduce};

impl Plan<'_> {
    /// Whether gradients travel after every microbatch.
    pub(crate) fn reduces_each(&self) -> bool {
        let parallelism = &self.workload.parallelism;
        let reduce = parallelism.reduce.unwrap_or({
            let each = parallelism.zero >= 2 && self.pipeline.positions == 1;
            if each { Reduce::Microbatch } else { Reduce::Step }
        });
        reduce == Reduce::Microbatch && self.pipeline.microbatches > 1
    }

    /// Over how many ranks states are cut, of so many that have the same parameters.
    pub(crate) fn shards(&self, replicas: u64) -> u64 {
        self.workload.parallelism.shard.map_or(replicas, u64::from)
    }

    /// The unit of FSDP that a layer of a piece is in.
    pub(crate) fn unit(&self, piece: &Range<usize>, i: usize) -> Range<usize> {
        let layers = &self.model.layers;
        let apart = |j: &usize| !layers[*j].block || layers[*j].unit != layers[i].unit;
        if !layers[i].block {
            return i..i + 1;
        }
        let before = (piece.start..i).rev().take_while(|j| !apart(j)).count();
        let after = (i + 1..piece.end).take_while(|j| !apart(j)).count();
        i - before..i + 1 + after
    }

    /// Whether what is said of shards goes together.
    pub(super) fn shards_go_together(&self) -> Result<(), FieldError> {
        let parallelism = &self.workload.parallelism;
        let (zero, pp) = (parallelism.zero, self.pipeline.positions);
        let fail = |field: &str, value: &dyn ToString, why: &str, hint: &str| {
            Err(wrong(&format!("parallelism.{field}"), value.to_string(), why, hint))
        };
        if zero < 3 && !parallelism.reshard {
            let why = "parameters are cut with `zero: 3` alone";
            return fail("reshard", &false, why, "leave it out, or write `zero: 3`");
        }
        if zero < 3 && parallelism.prefetch.is_some() {
            let why = "parameters are gathered for a pass with `zero: 3` alone";
            let value = parallelism.prefetch.unwrap_or(0);
            return fail("prefetch", &value, why, "leave it out, or write `zero: 3`");
        }
        if zero < 3 && parallelism.by_parameter {
            let why = "parameters are gathered with `zero: 3` alone";
            return fail("by_parameter", &true, why, "leave it out, or write `zero: 3`");
        }
        if !parallelism.overlap_parameters && !matches!(zero, 1 | 2) {
            let why = "updated parameters are gathered with `zero: 1` and `zero: 2` alone";
            return fail("overlap_parameters", &false, why, "leave it out");
        }
        if !parallelism.overlap_gradients && self.reduces_each() {
            let why = "the gradients of every microbatch travel beside the next pass";
            return fail("overlap_gradients", &false, why, "leave it out, or `reduce: step`");
        }
        if let Some(reduce) = parallelism.reduce {
            let each = reduce == Reduce::Microbatch;
            if each && (pp > 1 || self.workload.every > 1) {
                let why =
                    "a pipeline, or replicas that train apart, exchange no part of a gradient";
                return fail("reduce", &reduce.tag(), why, "`reduce: step`");
            }
        }
        let Some(shard) = parallelism.shard else { return Ok(()) };
        if zero == 0 {
            return fail("shard", &shard, "nothing is cut without `zero`", "give `zero: 1` to 3");
        }
        if self.degree(Axis::Ep) * self.degree(Axis::Op) > 1 {
            let why = "with `ep` or `op` not all parameters have the same replicas";
            return fail("shard", &shard, why, "leave it out");
        }
        if self.layout.nearest(Span::Replicas.axes(), shard).is_none() {
            let replicas = self.degree(Axis::Dp) * self.degree(Axis::Cp);
            let why = format!(
                "it is no factor of the {replicas} as they lie",
                replicas = counted(replicas, "replica")
            );
            return fail("shard", &shard, &why, "a divisor, such as the NPUs of a node");
        }
        Ok(())
    }
}

impl Emitter<'_> {
    /// Who cuts the parameters of a span, and who has the same part of them.
    pub(super) fn sharded(&self, span: Span) -> (Span, Option<Span>) {
        match (span, self.plan.workload.parallelism.shard) {
            (Span::Replicas, Some(_)) => (Span::Shard, Some(Span::Copies)),
            _ => (span, None),
        }
    }

    /// The parameters of layers that travel together, `tied` more of their own, by those who share them.
    pub(super) fn unit_spans(&self, layers: &[Layer], tied: u64) -> Vec<(u64, Span)> {
        let mut sums: Vec<(u64, Span)> = Vec::new();
        for (layer, tied) in layers.iter().zip([tied].into_iter().chain(std::iter::repeat(0))) {
            for (parameters, span) in self.parameters_by_span(layer, tied) {
                match sums.iter_mut().find(|(_, other)| *other == span) {
                    Some((sum, _)) => *sum += parameters,
                    None => sums.push((parameters, span)),
                }
            }
        }
        sums.retain(|(parameters, _)| *parameters > 0);
        sums
    }

    /// With ZeRO 3, where a pass enters a unit (`enters`): its parameters, gathered ahead. `name` is that of the
    /// pass, behind the unit's.
    pub(super) fn gather_parameters(
        &mut self,
        position: usize,
        (unit, enters): (Range<usize>, bool),
        name: &str,
        pass: Pass,
    ) -> Vec<NodeId> {
        let plan = self.plan;
        let parallelism = &plan.workload.parallelism;
        let tables = |layer: &Layer| matches!(layer.cut, Cut::Tables { .. });
        if parallelism.zero < 3 || !enters || tables(&plan.model.layers[unit.start]) {
            return Vec::new();
        }
        let stage = &mut self.stages[position];
        stage.entered.push(stage.chain);
        let known = stage.users.contains_key(&unit.start);
        let kept = pass == Pass::Backward || (known && !plan.reduces_each());
        if kept && !parallelism.reshard {
            return Vec::new();
        }
        let ahead = parallelism.prefetch.unwrap_or(1) as usize;
        let begins = stage.entered.len().checked_sub(1 + ahead);
        let after: Vec<NodeId> = begins.and_then(|at| stage.entered[at]).into_iter().collect();
        let layers = &plan.model.layers[unit.clone()];
        let name = format!("{}{name}", unit_name(layers));
        let mut gathered = Vec::new();
        let mut copied = 0;
        for (parameters, span) in self.unit_spans(layers, 0) {
            copied += parameters;
            let what = (AllGather, parameters * plan.width(), self.sharded(span).0);
            let of = if span == Span::OfExpert { " of experts" } else { "" };
            let name = format!("{name} parameters{of}");
            gathered.extend(self.collective(
                position,
                &name,
                what,
                (Purpose::Data, None, pass),
                &after,
            ));
        }
        if !known && !gathered.is_empty() {
            for i in unit {
                self.stages[position].users.insert(i, gathered.clone());
            }
        }
        if !parallelism.by_parameter || gathered.is_empty() {
            return gathered;
        }
        let time = plan.moved(copied, 2 * plan.width());
        vec![self.compute(position, &format!("{name} parameters copied"), (time, pass), &gathered)]
    }

    /// How long it takes to copy a layer's gradient, where each parameter is cut for itself, into what is scattered.
    pub(super) fn copied_gradient(&self, layer: &Layer) -> Time {
        let plan = self.plan;
        if !plan.workload.parallelism.by_parameter {
            return Time::ZERO;
        }
        let parameters = self.spans(layer).into_iter().map(|(parameters, _)| parameters).sum();
        plan.moved(parameters, plan.width() + plan.gradient_precision.bytes())
    }
}

/// How a unit is called: its layers without their own part of the name.
pub(super) fn unit_name(layers: &[Layer]) -> &str {
    match layers {
        [only] => &only.name,
        [first, ..] => first.name.rsplit_once('.').map_or(&*first.name, |(block, _)| block),
        [] => "",
    }
}
