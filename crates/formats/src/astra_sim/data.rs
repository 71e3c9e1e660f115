//! `DATA`: data parallel. Forward through all layers, then back: each layer's weight gradient, its
//! all-reduce (nobody waits for it but the layer's next forward pass), the input gradient of the
//! layer (not of the first one, which has nobody below it).
//!
//! `MICRO` is the collective of the first layer's weight gradient alone, without computing.

use allrail_core::FieldError;

use super::chain::{Chain, Of, Turn};

pub(super) fn run(chain: &mut Chain<'_>) -> Result<(), FieldError> {
    for layer in 0..chain.layers() {
        chain.gate(layer);
        chain.compute(layer, Of::Forward)?;
    }
    for layer in (0..chain.layers()).rev() {
        chain.compute(layer, Of::WeightGradient)?;
        chain.issue(layer, Of::WeightGradient, Turn::Its)?;
        if layer > 0 {
            chain.compute(layer, Of::InputGradient)?;
        }
    }
    Ok(())
}

pub(super) fn micro(chain: &mut Chain<'_>) -> Result<(), FieldError> {
    chain.issue(0, Of::WeightGradient, Turn::Its)
}
