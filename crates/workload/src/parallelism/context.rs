//! Context parallelism: each rank has a part of a sample's tokens.
//!
//! Everything but attention between tokens is done for the own tokens alone. For attention each rank needs
//! the keys and values of all:
//!
//! | `context` | forward | backward |
//! |---|---|---|
//! | `ring` | block by block from the neighbour, beside attention to the block before: P − 1 messages | the other way round, with the gradient of each block behind it: P messages, the first of keys and values alone, the last of gradients alone |
//! | `all_gather` | all-gather, attention | all-gather again, attention, reduce-scatter of their gradients |
//!
//! `ring` is Ring Attention (Liu, Zaharia, Abbeel, 2023) as Megatron-LM runs it, `all_gather` what Llama 3
//! was trained with (Grattafiori et al., 2024, §3.3.2). A block is what one rank has of a microbatch:
//! keys and values of tokens / P. A tensor group with more ranks than heads of keys and values holds copies.
//! Gradients and ZeRO's shards are over dp × cp.
//!
//! Causal work is taken as balanced: each rank has one part from the beginning and one from the end of a
//! sample, so their number divides the tokens twice. The rest of a layer's work stands before the ring of
//! the forward pass and after that of the backward pass: where it stands within the layer changes no time, as
//! nothing hides it.
//!
//! Ignored: attention that takes longer in blocks than at once, buffers of blocks on their way.

use allrail_collective::Operation::{AllGather, ReduceScatter};
use allrail_core::{Bytes, FieldError, Time, counted};

use super::emit::{Emitter, Span};
use super::plan::{Plan, Times};
use crate::error::wrong;
use crate::graph::{Node, NodeId, Pass, Peer, Purpose, Work};
use crate::models::{Cut, Layer};
use crate::spec::{Axis, Context};

/// What a layer computes in a pass: all of it, and of this what is between tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Computing {
    pub(super) pass: Pass,
    pub(super) all: Time,
    pub(super) between_tokens: Time,
}

impl Plan<'_> {
    /// Whether the model's tokens can be cut so.
    pub(super) fn cuts_tokens(&self) -> Result<(), FieldError> {
        let (cp, context) = (self.degree(Axis::Cp), self.workload.parallelism.context);
        if cp == 1 {
            if context != Context::default() {
                let why = "every sample is on one rank";
                let hint = "leave it out, or give `cp`";
                return Err(wrong("parallelism.context", context.tag(), why, hint));
            }
            return Ok(());
        }
        let fail = |why: &str, hint: &str| Err(wrong("parallelism.cp", cp, why, hint));
        let whole = |layer: &&Layer| !matches!(layer.cut, Cut::Tensor { .. });
        if let Some(layer) = self.model.layers.iter().find(whole) {
            let why = format!("layer `{}` cannot be cut so", layer.name);
            return fail(&why, "`cp` cuts the tokens of transformers");
        }
        let tokens = self.model.tokens.unwrap_or(0);
        if !tokens.is_multiple_of(2 * cp) {
            let why = format!(
                "each of its ranks takes two equal parts of the {tokens}",
                tokens = counted(tokens, "token")
            );
            return fail(&why, "twice `cp` divides `sequence_length`");
        }
        Ok(())
    }

    /// What context parallelism takes for granted.
    pub(super) fn context_notes(&self) -> Option<String> {
        let cp = self.degree(Axis::Cp);
        let tokens = self.model.tokens.unwrap_or(0) / cp;
        (cp > 1).then(|| {
            format!(
                "{tokens} of a sample on each of {cp}, causal attention balanced over them",
                tokens = counted(tokens, "token"),
                cp = counted(cp, "rank")
            )
        })
    }

    /// The gradient of a layer's inputs, or its forward pass.
    pub(super) fn computing(&self, times: Times, pass: Pass, forward: bool) -> Computing {
        let all = if forward { times.forward } else { times.input };
        let between_tokens = times.attention[usize::from(!forward)].min(all);
        Computing { pass, all, between_tokens }
    }
}

/// So much of a time.
pub(super) fn part(time: Time, count: u64, of: u64) -> Time {
    let share = u128::from(time.as_ps()) * u128::from(count.min(of)) / u128::from(of.max(1));
    Time::from_ps(u64::try_from(share).unwrap_or(u64::MAX))
}

/// Equal parts of a time, as near as picoseconds go.
pub(super) fn parts(time: Time, count: u64) -> impl Iterator<Item = Time> {
    let all = time.as_ps();
    (0..count).map(move |k| Time::from_ps(all / count + u64::from(k < all % count)))
}

impl Emitter<'_> {
    /// A layer's computing in its forward pass, with what attention takes from other ranks: the first and the
    /// last of its nodes.
    pub(super) fn attend(
        &mut self,
        position: usize,
        layer: &Layer,
        name: &str,
        computing: Computing,
        after: &[NodeId],
    ) -> (NodeId, NodeId) {
        let Computing { pass, all, between_tokens } = computing;
        let Some((block, ranks)) = self.blocks(layer) else {
            let node = self.compute(position, name, (all, pass), after);
            return (node, node);
        };
        let rest = all.saturating_sub(between_tokens);
        let first = self.compute(position, name, (rest, pass), after);
        let mut held = first;
        if self.plan.workload.parallelism.context == Context::AllGather {
            let what = (AllGather, block * ranks, Span::Context);
            let kind = (Purpose::Tensor, None, pass);
            let name = format!("{name} keys and values");
            held = self.collective(position, &name, what, kind, &[held]).unwrap_or(held);
        }
        let count = self.plan.workload.parallelism.context.parts(ranks);
        let mut last = first;
        for (time, k) in parts(between_tokens, count).zip(1..) {
            let arriving = (k < count).then(|| {
                let name = format!("{name} keys and values {k}");
                self.pass_round(position, &name, (block, Span::Context, pass), &[held])
            });
            let name = format!("{name} of block {k}");
            last = self.compute(position, &name, (time, pass), &[held]);
            held = arriving.unwrap_or(last);
        }
        (first, last)
    }

    /// The same in its backward pass: the last of its nodes.
    pub(super) fn attend_back(
        &mut self,
        position: usize,
        layer: &Layer,
        name: &str,
        computing: Computing,
        after: &[NodeId],
    ) -> NodeId {
        let Computing { pass, all, between_tokens } = computing;
        let Some((block, ranks)) = self.blocks(layer) else {
            return self.compute(position, name, (all, pass), after);
        };
        let kind = (Purpose::Tensor, None, pass);
        let rest = all.saturating_sub(between_tokens);
        if self.plan.workload.parallelism.context == Context::AllGather {
            let ready = self.after(position, after);
            let what = (AllGather, block * ranks, Span::Context);
            let gather = format!("{name} keys and values");
            let gathered = self.collective(position, &gather, what, kind, &ready);
            let mut held = after.to_vec();
            held.extend(gathered);
            let products = format!("{name} of attention");
            let node = self.compute(position, &products, (between_tokens, pass), &held);
            let what = (ReduceScatter, block * ranks, Span::Context);
            let scatter = format!("{name} of keys and values");
            let scattered = self.collective(position, &scatter, what, kind, &[node]);
            return self.compute(position, name, (rest, pass), &[scattered.unwrap_or(node)]);
        }
        let (mut held, mut before) = (after.to_vec(), None);
        for (time, k) in parts(between_tokens, ranks).zip(1..) {
            // Keys and values for the next block, and the gradient of the block that has just gone by.
            let bytes = if k == 1 || k == ranks { block } else { 2 * block };
            let mut ready = self.after(position, &held);
            ready.extend(before);
            let message = format!("{name} keys and values {k}");
            let what = (bytes, Span::Context, pass);
            let arriving = self.pass_round(position, &message, what, &ready);
            let block = format!("{name} of block {k}");
            before = Some(self.compute(position, &block, (time, pass), &held));
            held = vec![arriving];
        }
        self.compute(position, name, (rest, pass), &held)
    }

    /// (bytes of a rank's keys and values of a microbatch, ranks) of a layer whose attention needs others'.
    fn blocks(&self, layer: &Layer) -> Option<(u64, u64)> {
        let ranks = self.plan.degree(Axis::Cp);
        let heads = self.plan.model.read_heads.max(1);
        let bytes = self.bytes(layer.keys, self.plan.degree(Axis::Tp).min(heads));
        (ranks > 1 && bytes > 0).then_some((bytes, ranks))
    }

    /// Each rank of a span sends to the next one: the receive.
    pub(super) fn pass_round(
        &mut self,
        position: usize,
        name: &str,
        (bytes, span, pass): (u64, Span, Pass),
        after: &[NodeId],
    ) -> NodeId {
        let group = self.group(position, span).expect("a ring has several ranks");
        let actor = self.stages[position].actor;
        let (bytes, purpose) = (Bytes::new(bytes), Purpose::Tensor);
        let work = Work::Send { bytes, group, peer: Peer::Next(1), purpose };
        let node = Node { actor, work, tensor: None, pass };
        self.builder.node(&format!("{name} send"), node, after);
        let work = Work::Receive { bytes, group, peer: Peer::Next(-1), purpose };
        let node = Node { actor, work, tensor: None, pass };
        self.builder.node(&format!("{name} receive"), node, after)
    }
}
