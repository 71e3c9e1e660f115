//! What lasts from step to step: parameters, gradients, the optimizer's state, and what ZeRO 3 gathers of them.
//!
//! | kind | bytes |
//! |---|---|
//! | parameters | parameters on the NPU × width; with ZeRO 3 the shards, which are the optimizer's copy in 32 bits |
//! | gradients | the same × width of gradients, over the replicas with ZeRO 2 and 3; whole where they travel once for several microbatches; twice with `separate_sums`, once in the width of parameters |
//! | rows | of a table whose gradient travels as rows, in place of its gradient: those of all ranks with their places; with servers a rank's own, twice |
//! | optimizer | Adam: 12 per parameter below fp32 (a copy and two moments), 8 at fp32; over the replicas with ZeRO 1 to 3; less the copy where parameters are it |
//! | versions | the same × those that a pipeline without a flush keeps at its stage (`PipeDream`: one a microbatch in flight; 2BW: two); gradients that are applied k steps later are there 1 + k times |
//! | gathered | with ZeRO 3 the largest blocks that are whole at once, × width; all with `reshard: false` |
//!
//! While it updates, an optimizer has a copy of gradients in 32 bits where they have fewer, of its shards: DeepSpeed's
//! `ZeRO` 1, Megatron-LM's optimizers.
//!
//! FSDP shards parameters as it is given them, in 32 bits, and casts what it gathers (Zhao et al., VLDB 2023,
//! §4.4); gradients of shards have the same width. That is 16 bytes of a parameter, as of ZeRO 3 with 16-bit
//! shards and a copy.

use crate::models::{Cut, Layer};
use crate::parallelism::plan::Plan;
use crate::spec::{Axis, Optimizer, Precision};

/// Bytes of a parameter of an optimizer's copy.
const COPY: u64 = 4;

/// Bytes on a position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct States {
    pub(super) parameters: u64,
    pub(super) gradients: u64,
    pub(super) optimizer: u64,
    pub(super) gathered: u64,
    /// What the update has for a while.
    pub(super) update: u64,
}

/// On a position of the pipeline.
pub(super) fn on(plan: &Plan<'_>, position: u32) -> States {
    let pieces = plan.pipeline.total_pieces();
    let mut states = States::default();
    for (piece, direction) in held_pieces(plan, position) {
        // A tied table is held once where both of its ends are on one NPU.
        let tied = direction == 0 && piece + 1 == pieces && plan.pipeline.positions > 1;
        add(plan, piece, tied, &mut states);
    }
    states.parameters = states.parameters.saturating_mul(plan.versions(position));
    if plan.exchanging() > 1 {
        states.gradients = states.gradients.saturating_mul(plan.sets_of_gradients());
    }
    if gathers(plan) && plan.workload.parallelism.reshard {
        let in_use = held_pieces(plan, position).map(|(piece, _)| in_use(plan, piece));
        states.gathered = in_use.max().unwrap_or(0);
    }
    states
}

/// Whether parameters are in shards that are gathered to be used.
pub(super) fn gathers(plan: &Plan<'_>) -> bool {
    plan.workload.parallelism.zero >= 3 && plan.exchanging() > 1
}

/// The pieces of the model at a position, each with its direction.
fn held_pieces(plan: &Plan<'_>, position: u32) -> impl Iterator<Item = (u32, u32)> {
    let pieces = plan.pipeline.total_pieces();
    let both = plan.pipeline.schedule.goes_both_ways() && plan.pipeline.positions > 1;
    let directions = if both { 0..2 } else { 0..1 };
    let all =
        directions.flat_map(move |direction| (0..pieces).map(move |piece| (piece, direction)));
    all.filter(move |(piece, direction)| plan.pipeline.position(*piece, *direction) == position)
}

/// Parameters of the units of a piece that `counts`, that is of what is gathered and scattered at once; the
/// largest first.
pub(super) fn units(plan: &Plan<'_>, piece: u32, counts: impl Fn(&Layer) -> bool) -> Vec<u64> {
    let range = &plan.pieces[piece as usize];
    let mut units: Vec<u64> = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let unit = plan.unit(range, at);
        at = unit.end;
        let of = |layer: &Layer| {
            let (own, experts) = plan.parameters(layer);
            if matches!(layer.cut, Cut::Tables { .. }) { 0 } else { own + experts }
        };
        if plan.model.layers[unit.clone()].iter().any(&counts) {
            units.push(plan.model.layers[unit].iter().map(of).sum());
        }
    }
    units.sort_unstable_by(|a, b| b.cmp(a));
    units
}

/// What is whole of a piece at once: the largest unit, and those that are fetched ahead.
fn in_use(plan: &Plan<'_>, piece: u32) -> u64 {
    let at_once = plan.workload.parallelism.prefetch.unwrap_or(1) as usize + 1;
    let sum = |sum: u64, one: &u64| sum.saturating_add(*one);
    units(plan, piece, |_| true).iter().take(at_once).fold(0, sum).saturating_mul(plan.width())
}

fn add(plan: &Plan<'_>, piece: u32, tied: bool, states: &mut States) {
    let parallelism = &plan.workload.parallelism;
    let (dp, ep, op) = (plan.degree(Axis::Dp), plan.degree(Axis::Ep), plan.degree(Axis::Op));
    // Context parallelism cuts no parameters.
    let dp = dp * plan.degree(Axis::Cp);
    let (mut dense, mut experts, mut tables) = (0u64, 0u64, 0u64);
    let mut replicas = dp * ep;
    let (mut fewer, mut rows) = (0u64, 0u64);
    for i in plan.pieces[piece as usize].clone() {
        let layer = &plan.model.layers[i];
        let (whole, kept) = plan.kept_rows(i);
        fewer += whole;
        rows = rows.saturating_add(kept);
        let (own, of_experts) = plan.parameters(layer);
        if matches!(layer.cut, Cut::Spatial { .. }) {
            replicas = dp * ep * op;
        }
        match layer.cut {
            Cut::Tables { .. } => tables += own,
            _ => dense += own,
        }
        experts += of_experts;
    }
    if tied {
        dense += plan.model.tied.div_ceil(plan.degree(Axis::Tp));
    }
    let sum = |cut: bool, bytes: u64| {
        let (replicas, dp) = if cut { (plan.shards(replicas), plan.shards(dp)) } else { (1, 1) };
        let count = (dense.div_ceil(replicas) + experts.div_ceil(dp)).saturating_add(tables);
        count.saturating_mul(bytes)
    };
    let zero = parallelism.zero;
    // The shards of ZeRO 3 are the optimizer's copy.
    let copied = plan.workload.precision != Precision::Fp32
        && plan.workload.optimizer != Optimizer::None
        && gathers(plan);
    let (width, copy) = if copied { (COPY, COPY) } else { (plan.width(), 0) };
    let more = |kept: &mut u64, cut: bool, bytes: u64| {
        *kept = kept.saturating_add(sum(cut, bytes));
    };
    more(&mut states.parameters, zero >= 3, width);
    if gathers(plan) && !parallelism.reshard {
        more(&mut states.gathered, false, plan.width());
    }
    // Sums over microbatches are whole until they travel.
    let summed = plan.pipeline.microbatches > 1 && !plan.reduces_each();
    let of_gradient = plan.gradient_precision.bytes();
    let whole = summed || zero < 2;
    more(&mut states.gradients, !whole, if whole { of_gradient } else { of_gradient.max(copy) });
    states.gradients = states.gradients.saturating_sub(fewer).saturating_add(rows);
    if parallelism.separate_sums {
        more(&mut states.gradients, !whole, plan.width());
    }
    more(&mut states.optimizer, zero >= 1, plan.optimizer_bytes() - copy);
    if copy == 0 && plan.optimizer_bytes() > 0 && of_gradient < COPY {
        more(&mut states.update, zero >= 1, COPY);
    }
}
