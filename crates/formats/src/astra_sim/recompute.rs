//! `HYBRID_TRANSFORMER_FWD_IN_BCKWD`: [`model`](super::model) with activations computed again.
//!
//! On the way back, before the gradients of a layer that *initiates*, the forward pass is run again
//! from the nearest checkpoint below it up to the layer before it, with its collectives. It
//! ends at the first layer that initiates, though: where two of them share a checkpoint, the
//! gradients go on from the lower one, and the layers between are never done.

use allrail_core::FieldError;

use super::chain::Chain;
use super::file::{Loop, Options};
use super::model::{backward, forward};

pub(super) fn run(chain: &mut Chain<'_>, options: &Options) -> Result<(), FieldError> {
    let count = chain.layers();
    let marked = |field: &str, layers: &[usize]| {
        let mut marks = vec![false; count];
        for (i, layer) in layers.iter().enumerate() {
            let Some(mark) = marks.get_mut(*layer) else {
                return Err(FieldError::new(
                    format!("workload.model.astra_sim.options.{field}[{i}]"),
                    layer,
                    format!("there is no such layer: there are {count}"),
                    format!("layers count from 0 to {}", count - 1),
                ));
            };
            *mark = true;
        }
        Ok(marks)
    };
    let kept = marked("checkpoints", &options.checkpoints)?;
    let initiates = marked("checkpoint_initiates", &options.checkpoint_initiates)?;
    (0..count).try_for_each(|layer| forward(chain, layer))?;
    let mut next = Some(count - 1);
    while let Some(mut layer) = next {
        if initiates[layer] {
            let wrong = |why: &str| {
                FieldError::new(
                    "workload.model.astra_sim.options.checkpoint_initiates",
                    layer,
                    why,
                    "keep a checkpoint below each layer that initiates, such as layer 0",
                )
            };
            let from = (0..=layer)
                .rev()
                .find(|below| kept[*below])
                .ok_or_else(|| wrong("no checkpoint is below it"))?;
            if from == layer {
                return Err(wrong("it is a checkpoint itself: nothing is to be computed again"));
            }
            let stop = (from + 1..=layer).find(|at| initiates[*at]).expect("the layer itself does");
            (from..stop).try_for_each(|again| forward(chain, again))?;
            layer = stop;
        }
        backward(chain, layer, Loop::HybridTransformerFwdInBckwd)?;
        next = layer.checked_sub(1);
    }
    Ok(())
}
