//! Asynchronous tensor parallelism: a product of matrices and its collective, in parts beside each other.
//!
//! With `sp` a layer's input is gathered before its first product and its output scattered behind its last
//! one. `async_tp` cuts both into as many parts as ranks: a product begins with the tokens that are there, and
//! takes those of the next rank as they arrive; behind the last product, sums of finished parts travel while the
//! next part is computed (P − 1 messages each). In the backward pass gradients of outputs arrive in the
//! same way, and those of inputs are scattered beside the gradient of the weights, as without it. It
//! is `--tp-comm-overlap` of Megatron-LM and the async TP of PyTorch and torchtitan (Wang et al., ASPLOS 2023).
//!
//! Of a layer's time without attention between tokens, its first products take as much as of its parameters:
//! of attention queries, keys and values, of a feed-forward part all but the last matrix; where matrices are not
//! known, half. Layers with
//! experts keep their collectives whole: tokens are sorted in between.
//!
//! What has arrived of an output is summed with the own part: with P ranks (P + 1)/P of the output is read and
//! written, behind the last part.
//!
//! Ignored: that parts of a product take longer than the whole.

use allrail_core::{FieldError, Time};

use super::context::{Computing, part, parts};
use super::emit::{Emitter, Span};
use super::plan::{Plan, Times};
use crate::error::wrong;
use crate::graph::{NodeId, Pass};
use crate::models::{Cut, Layer};
use crate::spec::Axis;

/// The parts of a layer's computing that run beside a collective.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    /// Elements of a sample that arrive, and the product that takes them.
    pub(super) gathered: Option<(u64, Time)>,
    /// Elements of a sample that are summed and scattered, and the product that makes them.
    pub(super) scattered: Option<(u64, Time)>,
}

impl Beside {
    /// What is left of a layer's computing.
    pub(super) fn rest(&self, computing: Computing) -> Computing {
        let taken = [self.gathered, self.scattered].into_iter().flatten();
        let all = taken.fold(computing.all, |all, (_, time)| all.saturating_sub(time));
        Computing { all, ..computing }
    }
}

impl Plan<'_> {
    /// Whether there is something to overlap.
    pub(super) fn overlaps_tensors(&self) -> Result<(), FieldError> {
        let parallelism = &self.workload.parallelism;
        if parallelism.async_tp && !parallelism.sp {
            let why = "it overlaps the gathers and scatters of `sp`";
            return Err(wrong("parallelism.async_tp", true, why, "give `tp` and `sp: true`"));
        }
        Ok(())
    }

    /// Of a layer's forward pass.
    pub(super) fn beside_forward(&self, layer: &Layer, times: Times) -> Beside {
        let Some((gathered, scattered)) = self.products(layer) else { return Beside::default() };
        let linear = times.forward.saturating_sub(times.attention[0]);
        let (first, last) = ends(layer, linear);
        Beside {
            gathered: (gathered > 0).then_some((gathered, first)),
            scattered: (scattered > 0).then_some((scattered, last)),
        }
    }

    /// Of the gradient of its inputs: the last product comes first.
    pub(super) fn beside_backward(&self, layer: &Layer, times: Times) -> Beside {
        let Some((_, gathered)) = self.products(layer) else { return Beside::default() };
        let linear = times.input.saturating_sub(times.attention[1]);
        let (_, last) = ends(layer, linear);
        Beside { gathered: (gathered > 0).then_some((gathered, last)), scattered: None }
    }

    /// (elements gathered before, scattered behind) a layer's forward pass in parts; none where it is whole.
    fn products(&self, layer: &Layer) -> Option<(u64, u64)> {
        let Cut::Tensor { forward, backward } = layer.cut else { return None };
        let products = layer.flops.forward > 0 && layer.experts.is_none();
        (self.workload.parallelism.async_tp && products).then_some((backward, forward))
    }
}

/// Of the time of a layer's linear maps: those that take its input, and the one that makes its output.
fn ends(layer: &Layer, linear: Time) -> (Time, Time) {
    if !layer.block {
        // A head is one product.
        return (linear, linear);
    }
    let sizes: Vec<u64> = layer.matrices.iter().map(|[rows, columns]| rows * columns).collect();
    let last = match sizes.as_slice() {
        [.., last] if sizes.len() > 1 => part(linear, *last, sizes.iter().sum()),
        _ => part(linear, 1, 2),
    };
    (linear.saturating_sub(last), last)
}

impl Emitter<'_> {
    /// A product that begins with the own part of its input: (its first node, its last).
    pub(super) fn gathering_product(
        &mut self,
        (position, layer): (usize, &Layer),
        name: &str,
        (elements, time): (u64, Time),
        pass: Pass,
        after: &[NodeId],
    ) -> (NodeId, NodeId) {
        let ranks = self.plan.degree(Axis::Tp);
        let bytes = self.gathered(layer, elements, ranks);
        let mut held = after.to_vec();
        let (mut first, mut last) = (None, None);
        for (time, k) in parts(time, ranks).zip(1..) {
            let ready = self.after(position, &held);
            let arriving = (k < ranks).then(|| {
                let name = format!("{name} input {k}");
                self.pass_round(position, &name, (bytes, Span::Tensor, pass), &ready)
            });
            let node = self.compute(position, &format!("{name} of input {k}"), (time, pass), &held);
            first.get_or_insert(node);
            last = Some(node);
            held = arriving.into_iter().collect();
        }
        let last = last.expect("there is a rank");
        (first.unwrap_or(last), last)
    }

    /// A product whose parts are summed over the ranks as they are made: what its output waits for.
    pub(super) fn scattering_product(
        &mut self,
        position: usize,
        name: &str,
        (elements, time): (u64, Time),
        pass: Pass,
        after: &[NodeId],
    ) -> Vec<NodeId> {
        let ranks = self.plan.degree(Axis::Tp);
        let bytes = self.bytes(elements, ranks);
        let mut output = Vec::new();
        let mut sum: Option<NodeId> = None;
        for (time, k) in parts(time, ranks).zip(1..) {
            let after = if k == 1 { after } else { &[] };
            let node =
                self.compute(position, &format!("{name} of output {k}"), (time, pass), after);
            if k == ranks {
                output.push(node);
                break;
            }
            // The other ranks' sum so far, and the own part of it.
            let ready: Vec<NodeId> = [node].into_iter().chain(sum).collect();
            let name = format!("{name} output {k}");
            sum = Some(self.pass_round(position, &name, (bytes, Span::Tensor, pass), &ready));
        }
        output.extend(sum);
        let width = self.plan.width();
        let time = self.plan.moved((self.bytes(elements, 1) + bytes) / width, width);
        if time == Time::ZERO {
            return output;
        }
        vec![self.compute(position, &format!("{name} of outputs summed"), (time, pass), &output)]
    }
}
