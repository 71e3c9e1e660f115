//! What passes hold: activations for the backward passes in flight, and what a pass has for a while.
//!
//! Slots are followed in the order in which a position runs them. At the end of a forward pass it holds what
//! all microbatches in flight keep, what a block's forward pass has had, and on the last stage the words and
//! the loss; within a backward pass, what is computed again of a block, the gradients within it, and those on
//! their way to their shards. The fuller of both counts:
//!
//! ```text
//! forward   kept + a block's forward pass + loss
//! backward  kept + what is repeated of a block + a layer's gradients + units being reduced
//! ```
//!
//! What a block's forward pass has had counts beside the loss, because an allocator keeps it for the next block, in
//! parts that are too small for words.
//!
//! | | bytes |
//! |---|---|
//! | kept of a layer | Korthikanti et al. (2205.05198, §4); what products alone read in the format of the recipe |
//! | kept of a stage | what it has sent on, too: DeepSpeed and PyTorch hold it until its gradient comes (Megatron-LM since 2022 does not) |
//! | computed again | all of the block's that is not kept |
//! | a layer's gradients | as much as its activations within, and of its output |
//! | keys and values gathered by `cp` | those of all tokens, in a backward pass with their gradients; a ring has two blocks of them |
//! | gathered by `sp` | a layer's whole input and output; with `async_tp` in parts, which are not counted |
//! | loss, fused | words and their gradient, in the precision of the workload |
//! | loss, unfused | three arrays of words in 32 bits (the log-softmax and two gradients), four where `tp` cuts them: PyTorch's `cross_entropy`, its `loss_parallel` |
//! | reduced with ZeRO 3 | the largest block's gradient in the width of parameters, and twice in that of gradients: one is filled while the other travels |
//! | reduced with `separate_sums` | a buffer of 5 · 10⁸ elements in the width of gradients (DeepSpeed's `buffered_allreduce_fallback`) |

use crate::kernels::Kernel;
use crate::models::{Cut, Layer};
use crate::parallelism::plan::Plan;
use crate::parallelism::slot::{Slot, Turn};
use crate::spec::{Axis, Context};

/// Bytes of a word in the loss.
const LOSS: u64 = 4;

/// Elements of the buffer in which separate sums travel.
const BUFFER: u64 = 500_000_000;

/// Bytes at the fullest moment of a position.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) kept: u64,
    pub(super) working: u64,
    pub(super) loss: u64,
}

impl Held {
    fn all(&self) -> u64 {
        self.kept.saturating_add(self.working).saturating_add(self.loss)
    }
}

/// What one microbatch has of a piece.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    kept: u64,
    /// What a pass over one of its blocks has besides.
    forward: u64,
    backward: u64,
    loss: u64,
}

/// In the order of a position's passes.
pub(super) fn of(plan: &Plan<'_>, position: u32, order: &[Slot]) -> Held {
    let pieces: Vec<Piece> =
        (0..plan.pipeline.total_pieces()).map(|index| piece(plan, index)).collect();
    let (mut kept, mut most) = (0u64, Held::default());
    if !plan.pipeline.flushes() {
        // What is in flight when a step begins.
        let behind = u64::from(plan.pipeline.positions - 1 - position);
        kept = pieces[position as usize].kept.saturating_mul(behind);
    }
    for slot in order {
        let piece = &pieces[slot.piece as usize];
        let held = match slot.turn {
            Turn::Forward => {
                kept = kept.saturating_add(piece.kept);
                Held { kept, working: piece.forward, loss: piece.loss }
            }
            Turn::Backward | Turn::Inputs => Held { kept, working: piece.backward, loss: 0 },
            Turn::Weights => Held { kept, ..Held::default() },
        };
        if held.all() > most.all() {
            most = held;
        }
        if slot.ends() {
            kept = kept.saturating_sub(piece.kept);
        }
    }
    most
}

fn piece(plan: &Plan<'_>, index: u32) -> Piece {
    let recompute = plan.workload.parallelism.recompute;
    let layers = &plan.model.layers[plan.pieces[index as usize].clone()];
    let mut piece = Piece { loss: loss(plan, layers), ..Piece::default() };
    for block in layers.chunk_by(|one, next| recompute.joins(one, next)) {
        let add = |sum: u64, layer: &Layer| sum.saturating_add(saved(plan, layer));
        let all = block.iter().fold(0, add);
        let kept = kept(plan, block, all);
        piece.kept = piece.kept.saturating_add(kept);
        let repeated = all - kept;
        for layer in block {
            let exchanged = exchanged(plan, layer);
            let seen = seen(plan, layer);
            // What is not kept is there until the layer is through.
            let within = if repeated > 0 { saved(plan, layer) } else { 0 };
            piece.forward = piece.forward.max(within.saturating_add(exchanged + seen));
            let gradients = within_a(plan, layer).saturating_add(output(plan, layer));
            let backward = repeated.saturating_add(gradients).saturating_add(exchanged + 2 * seen);
            piece.backward = piece.backward.max(backward);
        }
    }
    piece.backward = piece.backward.saturating_add(reduced(plan, index));
    let sends = plan.pipeline.positions > 1;
    if let Some(last) = layers.last().filter(|last| sends && last.words == 0) {
        piece.kept = piece.kept.saturating_add(output(plan, last));
    }
    piece
}

/// What a block keeps of its activations.
fn kept(plan: &Plan<'_>, block: &[Layer], all: u64) -> u64 {
    let recompute = plan.workload.parallelism.recompute;
    let Some(last) = block.last().filter(|last| recompute.drops(last)) else { return all };
    // Its input, which has the shape of its output.
    let input = output(plan, last);
    let sum = block.iter().fold(input, |mut sum, layer| {
        let shares = plan.shares(layer);
        if let Some(attention) = attended(layer).filter(|_| recompute.keeps_attention()) {
            sum += bytes(plan, attention / shares.cut, shares.tokens);
        }
        for (i, [outputs, _]) in layer.matrices.iter().enumerate() {
            if recompute.keeps_product(i) {
                // The last product of a layer gives its output, which tensor parallelism sums and does not cut.
                let cut = if i + 1 == layer.matrices.len() { 1 } else { shares.cut };
                let elements = plan.model.tokens.unwrap_or(1) * outputs;
                sum += bytes(plan, elements / cut, shares.tokens);
            }
        }
        sum
    });
    sum.min(all)
}

/// Elements of a sample that attention gives.
fn attended(layer: &Layer) -> Option<u64> {
    layer.kernels.iter().find_map(|kernel| match kernel {
        Kernel::Attention(of) => Some(of.queries * of.heads * of.value),
        Kernel::Product(_) | Kernel::Stream(_) => None,
    })
}

/// What a layer keeps for its gradient, of a microbatch, where nothing is computed again.
fn saved(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let shares = plan.shares(layer);
    let wide =
        |cut: u64, whole: u64| bytes(plan, cut / shares.cut + whole / shares.whole, shares.tokens);
    let [read, read_whole] = layer.read;
    let plain = wide(layer.saved + scores(plan, layer) - read, layer.saved_whole - read_whole);
    plain.saturating_add(plan.workload.compute.recipe.kept(wide(read, read_whole)))
}

/// What a layer has between its input and its output.
fn within_a(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let shares = plan.shares(layer);
    bytes(plan, (layer.saved + scores(plan, layer)) / shares.cut, shares.tokens)
}

/// What a layer hands on.
fn output(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let shares = plan.shares(layer);
    let words = if layer.words > 0 { shares.cut } else { 1 };
    bytes(plan, layer.output / (shares.whole * words), shares.tokens)
}

/// With `sp`: a layer's input, gathered, and its output, before it is scattered.
fn exchanged(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let parallelism = &plan.workload.parallelism;
    let Cut::Tensor { forward, backward } = layer.cut else { return 0 };
    if !parallelism.sp || (parallelism.async_tp && layer.block) {
        return 0;
    }
    bytes(plan, forward + backward, plan.degree(Axis::Cp))
}

/// With `cp`: keys and values of other ranks' tokens that attention has at once.
fn seen(plan: &Plan<'_>, layer: &Layer) -> u64 {
    let ranks = plan.degree(Axis::Cp);
    if ranks == 1 {
        return 0;
    }
    let at_once = match plan.workload.parallelism.context {
        Context::AllGather => ranks,
        Context::Ring => ranks.min(2),
    };
    let heads = plan.degree(Axis::Tp).min(plan.model.read_heads.max(1));
    bytes(plan, layer.keys / heads * at_once, ranks)
}

/// Of unfused attention, unless they are computed again.
fn scores(plan: &Plan<'_>, layer: &Layer) -> u64 {
    if !plan.device.keeps_scores() || plan.workload.parallelism.recompute.repeats_scores(layer) {
        return 0;
    }
    let kept = |kernel: &Kernel| match kernel {
        Kernel::Attention(attention) => attention.kept(),
        Kernel::Product(_) | Kernel::Stream(_) => 0,
    };
    layer.kernels.iter().map(kept).fold(0, u64::saturating_add)
}

/// Words of the heads in some layers, and what the loss makes of them.
fn loss(plan: &Plan<'_>, layers: &[Layer]) -> u64 {
    let arrays = if plan.degree(Axis::Tp) > 1 { 4 } else { 3 };
    let of_word = if plan.workload.compute.fuses_loss() { 2 * plan.width() } else { arrays * LOSS };
    let of = |layer: &Layer| {
        let shares = plan.shares(layer);
        (layer.words / (shares.cut * shares.tokens)).saturating_mul(plan.samples)
    };
    layers.iter().map(of).fold(0, u64::saturating_add).saturating_mul(of_word)
}

/// Of gradients on their way to their shards.
fn reduced(plan: &Plan<'_>, index: u32) -> u64 {
    let parallelism = &plan.workload.parallelism;
    if plan.degree(Axis::Dp) * plan.degree(Axis::Cp) == 1 {
        return 0;
    }
    if parallelism.separate_sums {
        let all: u64 = super::states::units(plan, index, |_| true).iter().sum();
        return BUFFER.min(all) * plan.gradient_precision.bytes();
    }
    if parallelism.zero < 3 {
        return 0;
    }
    // An embedding's and a head's travel last, when activations are gone (FSDP's root).
    let blocks = super::states::units(plan, index, |layer| layer.block);
    let largest = blocks.first().copied().unwrap_or(0);
    largest.saturating_mul(plan.width() + 2 * plan.gradient_precision.bytes())
}

/// Of so many elements of a sample, of a microbatch, where its tokens are cut so many ways.
fn bytes(plan: &Plan<'_>, elements: u64, tokens: u64) -> u64 {
    (elements / tokens).saturating_mul(plan.samples).saturating_mul(plan.width())
}
