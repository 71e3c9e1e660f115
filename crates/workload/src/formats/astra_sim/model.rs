//! `MODEL`, `HYBRID_DATA_MODEL`, `HYBRID_MODEL_DATA`, `HYBRID_CUSTOMIZED`, `HYBRID_TRANSFORMER` and
//! `DISTRIBUTED_INFERENCE`: one loop, whose collectives differ in the dimensions that they span.
//!
//! Forward, a layer computes, communicates, and waits for it. Back, from the last layer: the input
//! gradient, its collective, the weight gradient meanwhile, its collective, and then a wait for the
//! input gradient's. Nobody waits for the weight gradient's but the layer's next forward pass.
//!
//! The first layer's input gradient is computed but not communicated, except in the transformer
//! loops, which communicate it too. `MODEL` communicates no weight gradient. Inference is the forward
//! half alone.

use super::Loop;
use super::chain::{Chain, Of, Turn};
use crate::error::WorkloadError;

pub(super) fn run(chain: &mut Chain<'_>, which: Loop) -> Result<(), WorkloadError> {
    inference(chain)?;
    for layer in (0..chain.layers()).rev() {
        backward(
            chain,
            layer,
            layer > 0 || which == Loop::HybridTransformer,
            which != Loop::Model,
        )?;
    }
    Ok(())
}

pub(super) fn inference(chain: &mut Chain<'_>) -> Result<(), WorkloadError> {
    (0..chain.layers()).try_for_each(|layer| forward(chain, layer))
}

pub(super) fn forward(chain: &mut Chain<'_>, layer: usize) -> Result<(), WorkloadError> {
    chain.gate(layer);
    chain.compute(layer, Of::Forward)?;
    chain.issue(layer, Of::Forward, Turn::Its)?;
    chain.wait(layer, Of::Forward);
    Ok(())
}

pub(super) fn backward(
    chain: &mut Chain<'_>,
    layer: usize,
    input: bool,
    weight: bool,
) -> Result<(), WorkloadError> {
    chain.compute(layer, Of::InputGradient)?;
    if input {
        chain.issue(layer, Of::InputGradient, Turn::Its)?;
    }
    chain.compute(layer, Of::WeightGradient)?;
    if weight {
        chain.issue(layer, Of::WeightGradient, Turn::Its)?;
    }
    chain.wait(layer, Of::InputGradient);
    Ok(())
}
