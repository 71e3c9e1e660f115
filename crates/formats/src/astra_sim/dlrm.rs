//! `HYBRID_DLRM` and `HYBRID_DLRM_ENHANCED`: embeddings over all NPUs, the rest data parallel.
//!
//! Layer 0 holds the embedding tables. Its all-to-all goes out before all else that waits, and the
//! bottom layers compute meanwhile; after the last of them the embeddings must have come. Back, each
//! layer does its weight gradient first, then its input gradient; the embeddings' gradient leaves,
//! before all else, when the lowest top layer has done its input gradient. At the end `HYBRID_DLRM`
//! waits for it; `HYBRID_DLRM_ENHANCED` does not.
//!
//! Forward collectives other than all-to-all are not run; where the last bottom layer itself has an
//! all-to-all, nobody waits for the embeddings. The first layer has no input gradient to compute.

use allrail_collective::Operation;
use allrail_core::FieldError;

use super::chain::{Chain, Of, Turn};

pub(super) fn run(
    chain: &mut Chain<'_>,
    last_bottom: usize,
    waits: bool,
) -> Result<(), FieldError> {
    let count = chain.layers();
    if last_bottom >= count {
        return Err(FieldError::new(
            "workload.model.astra_sim.options.last_bottom_layer",
            last_bottom,
            format!("there is no such layer: there are {count}"),
            "it is the last layer before the embeddings are needed, counted from 0",
        ));
    }
    for layer in 0..count {
        chain.gate(layer);
        chain.compute(layer, Of::Forward)?;
        if chain.collective(layer, Of::Forward) == Some(Operation::AllToAll) {
            chain.issue(layer, Of::Forward, Turn::First)?;
        } else if layer == last_bottom {
            chain.wait(0, Of::Forward);
        }
    }
    for layer in (0..count).rev() {
        chain.compute(layer, Of::WeightGradient)?;
        chain.issue(layer, Of::WeightGradient, Turn::Its)?;
        if waits {
            chain.wait(layer, Of::InputGradient);
        }
        if layer > 0 {
            chain.compute(layer, Of::InputGradient)?;
            if layer == last_bottom + 1 {
                chain.issue(0, Of::InputGradient, Turn::First)?;
            }
        }
    }
    Ok(())
}
