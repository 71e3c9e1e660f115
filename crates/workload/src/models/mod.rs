//! Models as lists of layers: FLOPs, parameters and activations, before anything is cut.
//!
//! - [`layer`]: what every model becomes.
//! - [`shapes`]: layers by shape, from a file.
//! - [`transformer`]: transformers by their sizes.
//! - `sizes`: what these are after defaults, checked. [`blocks`]: their layers. `next_token`: modules that predict more tokens.
//! - `kernels`: what these run on a device.
//! - [`hugging_face`]: transformers by their `config.json`.
//! - [`dlrm`]: embedding tables and MLPs.

pub mod blocks;
pub mod dlrm;
pub mod hugging_face;
mod kernels;
pub mod layer;
mod next_token;
pub mod shapes;
mod sizes;
pub mod transformer;

pub use dlrm::DlrmSpec;
pub use layer::{Cut, Experts, Layer, ModelLayers};
pub use shapes::{ConvolutionSpec, DenseSpec, EmbeddingSpec, LayerSpec, LstmSpec};
pub use transformer::TransformerSpec;

use allrail_core::FieldError;

use crate::spec::{Model, Workload};

/// The layers of a workload's model.
///
/// # Errors
/// A size that is missing or out of range; a model that says its own step graph.
pub fn model(workload: &Workload) -> Result<ModelLayers, FieldError> {
    let (name, tokens) = (workload.name.as_str(), workload.sequence_length);
    let transformer = match &workload.model {
        Model::Layers(specs) => return shapes::model(name, specs),
        Model::Dlrm(spec) => return spec.model(name),
        Model::Transformer(spec) => {
            (**spec).clone().with_room(workload.parallelism.capacity_factor)
        }
        Model::HuggingFace(config) => {
            let (transformer, notes) = hugging_face::transformer(config, tokens)?;
            let transformer = transformer.with_room(workload.parallelism.capacity_factor);
            let mut layers = transformer.model(name, tokens)?;
            layers.notes.splice(0..0, notes);
            return Ok(layers);
        }
        Model::Trace(path) | Model::AstraSim(path) | Model::Steps(path) => {
            return Err(FieldError::new(
                "workload.model",
                path,
                "it says its own step graph and has no layers",
                "parallelism and compute time are in the file",
            ));
        }
    };
    transformer.model(name, tokens)
}
