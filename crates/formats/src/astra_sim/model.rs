//! `MODEL`, `HYBRID_DATA_MODEL`, `HYBRID_MODEL_DATA`, `HYBRID_CUSTOMIZED`, `HYBRID_TRANSFORMER` and
//! `DISTRIBUTED_INFERENCE`: one loop, whose collectives differ in the dimensions that they span.
//!
//! Forward, a layer computes, communicates, and waits for it. Back, from the last layer: the input
//! gradient, its collective, the weight gradient meanwhile, its collective, and then a wait for the
//! input gradient's. Nobody waits for the weight gradient's but the layer's next forward pass.
//!
//! The transformer loops differ: they wait for the input gradient's collective before they compute
//! the weight gradient, and they communicate the first layer's, too, which the others compute and
//! keep. `MODEL` communicates no weight gradient. Inference is the forward half alone.

use allrail_core::FieldError;

use super::chain::{Chain, Of, Turn};
use super::file::Loop;

pub(super) fn run(chain: &mut Chain<'_>, which: Loop) -> Result<(), FieldError> {
    inference(chain)?;
    (0..chain.layers()).rev().try_for_each(|layer| backward(chain, layer, which))
}

pub(super) fn inference(chain: &mut Chain<'_>) -> Result<(), FieldError> {
    (0..chain.layers()).try_for_each(|layer| forward(chain, layer))
}

pub(super) fn forward(chain: &mut Chain<'_>, layer: usize) -> Result<(), FieldError> {
    chain.gate(layer);
    chain.compute(layer, Of::Forward)?;
    chain.issue(layer, Of::Forward, Turn::Its)?;
    chain.wait(layer, Of::Forward);
    Ok(())
}

pub(super) fn backward(chain: &mut Chain<'_>, layer: usize, which: Loop) -> Result<(), FieldError> {
    let transformer = matches!(which, Loop::HybridTransformer | Loop::HybridTransformerFwdInBckwd);
    chain.compute(layer, Of::InputGradient)?;
    if layer > 0 || transformer {
        chain.issue(layer, Of::InputGradient, Turn::Its)?;
    }
    if transformer {
        chain.wait(layer, Of::InputGradient);
    }
    chain.compute(layer, Of::WeightGradient)?;
    if which != Loop::Model {
        chain.issue(layer, Of::WeightGradient, Turn::Its)?;
    }
    chain.wait(layer, Of::InputGradient);
    Ok(())
}
