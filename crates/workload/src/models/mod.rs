//! Models as lists of layers: FLOPs, parameters and activations, before anything is cut.
//!
//! - [`layer`]: what every model becomes.
//! - [`shapes`]: layers by shape, from a file.
//! - [`transformer`]: transformers by their sizes.
//! - [`dlrm`]: embedding tables and MLPs.

pub mod dlrm;
pub mod layer;
pub mod shapes;
pub mod transformer;

pub use dlrm::DlrmSpec;
pub use layer::{Cut, Experts, Layer, Network};
pub use shapes::{ConvolutionSpec, DenseSpec, EmbeddingSpec, LayerSpec, LstmSpec};
pub use transformer::TransformerSpec;
