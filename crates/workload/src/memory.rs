//! Memory per NPU.
//!
//! | kind | bytes |
//! |---|---|
//! | parameters | parameters on the NPU × width, over the replicas with ZeRO 3, and the largest blocks that are gathered at once; whole with `reshard: false` |
//! | gradients | the same × width of gradients, over the replicas with ZeRO 2 and 3; whole where they travel once for several microbatches |
//! | optimizer | Adam: 12 per parameter below fp32 (a copy and two moments), 8 at fp32; over the replicas with ZeRO 1 to 3 |
//! | activations | what the backward pass needs of a microbatch × the most microbatches in flight; with `recompute: full` the inputs of blocks, and all of one block |
//!
//! So mixed-precision Adam keeps 16 bytes a parameter (Rajbhandari et al., SC'20, §3.1). The position
//! of a pipeline that needs most is given. How many microbatches are in flight follows from the
//! order of passes.
//!
//! Ignored: workspaces, fragmentation, buffers of collectives, a block's whole gradient before it is
//! scattered.

use allrail_core::Bytes;

use crate::kernels::Kernel;
use crate::models::{Cut, Layer};
use crate::parallelism::order::{Slot, Turn};
use crate::parallelism::plan::Plan;
use crate::spec::Axis;

/// What one NPU keeps, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Parameters.
    pub parameters: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// The optimizer's state.
    pub optimizer: Bytes,
    /// Activations of all microbatches in flight.
    pub activations: Bytes,
    /// What the device has, where it is known.
    pub capacity: Option<Bytes>,
}

impl Memory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let parts = [self.parameters, self.gradients, self.optimizer, self.activations];
        Bytes::new(parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.count())))
    }

    /// Whether the device has enough; `None` where its memory is not known.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        self.capacity.map(|capacity| self.total() <= capacity)
    }

    /// In words: what is needed, and whether it fits.
    #[must_use]
    pub fn words(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
        let shown = |bytes: Bytes| format!("{:.2} GB", bytes.count() as f64 / 1e9);
        let needs = format!("an NPU needs {}", shown(self.total()));
        match self.capacity {
            None => needs,
            Some(capacity) if self.total() <= capacity => {
                format!("{needs} of its {}", shown(capacity))
            }
            Some(capacity) => {
                format!("the layout does not fit: {needs} and has {}", shown(capacity))
            }
        }
    }
}

/// Of the position that needs most.
pub(crate) fn estimate(plan: &Plan<'_>, orders: &[Vec<Slot>]) -> Memory {
    let pieces = plan.pipeline.total_pieces();
    let on = |position: u32| {
        let mut memory = Memory { capacity: plan.device.memory, ..Memory::default() };
        for (piece, direction) in held_pieces(plan, position) {
            // A tied table is held once where both of its ends are on one NPU.
            let tied = direction == 0 && piece + 1 == pieces && plan.pipeline.positions > 1;
            add(plan, piece, tied, &mut memory);
        }
        let in_use = held_pieces(plan, position).map(|(piece, _)| in_use(plan, piece)).max();
        let parameters = memory.parameters.count().saturating_add(in_use.unwrap_or(0));
        memory.parameters = Bytes::new(parameters);
        memory.activations = activations(plan, &orders[position as usize]);
        memory
    };
    (0..plan.pipeline.positions).map(on).max_by_key(Memory::total).unwrap_or_default()
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

/// What ZeRO 3 has gathered of a piece at once: the largest unit, and those that are fetched ahead.
fn in_use(plan: &Plan<'_>, piece: u32) -> u64 {
    let parallelism = &plan.workload.parallelism;
    if parallelism.zero < 3
        || !parallelism.reshard
        || plan.degree(Axis::Dp) * plan.degree(Axis::Cp) * plan.degree(Axis::Ep) == 1
    {
        return 0;
    }
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
        units.push(plan.model.layers[unit].iter().map(of).sum());
    }
    units.sort_unstable_by(|a, b| b.cmp(a));
    let at_once = parallelism.prefetch.unwrap_or(1) as usize + 1;
    units
        .iter()
        .take(at_once)
        .fold(0, |sum: u64, one| sum.saturating_add(*one))
        .saturating_mul(plan.width())
}

fn add(plan: &Plan<'_>, piece: u32, tied: bool, memory: &mut Memory) {
    let zero = plan.workload.parallelism.zero;
    let (dp, ep, op) = (plan.degree(Axis::Dp), plan.degree(Axis::Ep), plan.degree(Axis::Op));
    // Context parallelism cuts no parameters.
    let dp = dp * plan.degree(Axis::Cp);
    let (mut dense, mut experts, mut tables) = (0u64, 0u64, 0u64);
    let mut replicas = dp * ep;
    for layer in &plan.model.layers[plan.pieces[piece as usize].clone()] {
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
    let sum = |stage: u8, bytes: u64| {
        let cut = zero >= stage;
        let (replicas, dp) = if cut { (plan.shards(replicas), plan.shards(dp)) } else { (1, 1) };
        let count = (dense.div_ceil(replicas) + experts.div_ceil(dp)).saturating_add(tables);
        count.saturating_mul(bytes)
    };
    let more = |kept: &mut Bytes, stage: u8, bytes: u64| {
        *kept = Bytes::new(kept.count().saturating_add(sum(stage, bytes)));
    };
    // Kept whole: parameters that are gathered once a step, and sums over microbatches until they travel.
    let never = 4;
    let parameters = if plan.workload.parallelism.reshard { 3 } else { never };
    let summed = plan.pipeline.microbatches > 1 && !plan.reduces_each();
    more(&mut memory.parameters, parameters, plan.width());
    more(&mut memory.gradients, if summed { never } else { 2 }, plan.gradient_precision.bytes());
    more(&mut memory.optimizer, 1, plan.optimizer_bytes());
}

/// The most that is kept at once, following the order of passes: what forward passes have kept, and, while a
/// block is repeated, all of its own activations.
fn activations(plan: &Plan<'_>, order: &[Slot]) -> Bytes {
    let recompute = plan.workload.parallelism.recompute;
    // (what its layers keep, what they keep if one of them is being repeated) of a microbatch.
    let of_piece = |piece: u32| -> (u64, u64) {
        let layers = &plan.model.layers[plan.pieces[piece as usize].clone()];
        let (mut kept, mut most) = (0u64, 0u64);
        let blocks = layers.chunk_by(|one, next| recompute.joins(one, next));
        for block in blocks {
            let all =
                block.iter().fold(0, |sum: u64, layer| sum.saturating_add(saved(plan, layer)));
            let Some(last) = block.last().filter(|last| recompute.repeats(last)) else {
                kept = kept.saturating_add(all);
                continue;
            };
            // Its input, which has the shape of its output.
            let input =
                bytes(plan, last.output / plan.shares(last).whole, plan.degree(Axis::Cp)).min(all);
            kept = kept.saturating_add(input);
            most = most.max(all - input);
        }
        (kept, most)
    };
    let pieces: Vec<(u64, u64)> = (0..plan.pipeline.total_pieces()).map(of_piece).collect();
    let (mut now, mut most) = (0u64, 0u64);
    for slot in order {
        let (kept, repeated) = pieces[slot.piece as usize];
        match slot.turn {
            Turn::Forward => {
                now = now.saturating_add(kept);
                most = most.max(now);
            }
            Turn::Backward | Turn::Inputs => most = most.max(now.saturating_add(repeated)),
            Turn::Weights => {}
        }
        if slot.ends() {
            now = now.saturating_sub(kept);
        }
    }
    Bytes::new(most)
}

/// What a layer keeps for its gradient, of a microbatch.
fn saved(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let shares = plan.shares(layer);
    let all = (layer.saved + scores(plan, layer)) / shares.cut + layer.saved_whole / shares.whole;
    bytes(plan, all, shares.tokens)
}

/// Of unfused attention, unless they are computed again.
fn scores(plan: &Plan<'_>, layer: &Layer) -> u64 {
    if !plan.device.keeps_scores() || plan.workload.parallelism.recompute.within(layer) > 0 {
        return 0;
    }
    let kept = |kernel: &Kernel| match kernel {
        Kernel::Attention(attention) => attention.kept(),
        Kernel::Product(_) | Kernel::Stream(_) => 0,
    };
    layer.kernels.iter().map(kept).fold(0, u64::saturating_add)
}

/// Of so many elements of a sample, of a microbatch, where its tokens are cut so many ways.
fn bytes(plan: &Plan<'_>, elements: u64, tokens: u64) -> u64 {
    (elements / tokens).saturating_mul(plan.samples).saturating_mul(plan.width())
}
