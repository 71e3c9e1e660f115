//! What every model becomes: layers with FLOPs, parameters and activations of one sample.
//!
//! FLOPs count a multiply-add as two. The backward pass has two parts: the gradient of the input,
//! which the layer before waits for, and that of the weights, which travels. For a plain linear map
//! each costs what the forward pass does; a product of two activations (attention's scores) has no
//! weights and costs twice in the input part; the first layer needs no gradient of its input.
//!
//! Ignored: FLOPs of element-wise work (its memory traffic counts), buffers of the framework.

use allrail_core::Time;

use crate::kernels::Kernel;

/// One layer, or a part of one that is cut in one way.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    /// For tables and traces.
    pub name: String,
    /// FLOPs of one sample.
    pub flops: Flops,
    /// Parameters that tensor parallelism cuts (all of them where the layer is not cut).
    pub parameters: u64,
    /// Parameters that every rank of a tensor group has: norms, routers.
    pub replicated: u64,
    /// Elements that one sample reads and writes in a forward pass, weights aside.
    pub moved: u64,
    /// How often a pass reads the weights once more: a recurrent layer does at every step.
    pub weight_rereads: u64,
    /// Elements of one sample that are handed on.
    pub output: u64,
    /// Elements of one sample kept for the backward pass, which tensor parallelism cuts.
    pub saved: u64,
    /// The same, which sequence parallelism alone cuts.
    pub saved_whole: u64,
    /// Of these two, what products with weights alone read: in fewer bits where they compute in fewer.
    pub read: [u64; 2],
    /// Elements of one sample of a head's words, which the loss reads; tensor parallelism cuts them.
    pub words: u64,
    /// Rows and columns of the matrices among its parameters, uncut; where none is known, its
    /// parameters are taken as one square.
    pub matrices: Vec<[u64; 2]>,
    /// Elements of one sample of attention's keys and values, which context parallelism sends round.
    pub keys: u64,
    /// Of an embedding table: rows that one sample looks up.
    pub lookups: Option<u64>,
    /// How it may be cut.
    pub cut: Cut,
    /// Its experts.
    pub experts: Option<Experts>,
    /// Whether its forward pass waits for exchanged embeddings.
    pub joins: bool,
    /// Layers of one unit stay on one pipeline stage; ascending.
    pub unit: u32,
    /// Whether it is part of a block, which activation recomputation may repeat: the layers of a unit that
    /// are make one.
    pub block: bool,
    /// What it runs, where that is known.
    pub kernels: Vec<Kernel>,
    /// Measured times of a whole batch: forward and backward.
    pub times: Option<(Time, Time)>,
}

/// FLOPs of one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flops {
    /// Forward.
    pub forward: u64,
    /// Backward, for the gradient of the input.
    pub input: u64,
    /// Backward, for the gradient of the weights.
    pub weight: u64,
    /// Forward, of these: of products of two activations, which have no weights.
    pub product: u64,
}

impl Flops {
    /// Of a linear map with weights.
    #[must_use]
    pub const fn linear(forward: u64) -> Self {
        Self { forward, input: forward, weight: forward, product: 0 }
    }

    /// Of a linear map with weights and a product of two activations.
    #[must_use]
    pub const fn attention(linear: u64, product: u64) -> Self {
        Self { forward: linear + product, input: linear + 2 * product, weight: linear, product }
    }

    /// All three.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.forward + self.input + self.weight
    }
}

/// How a layer may be cut within a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Not at all.
    #[default]
    Whole,
    /// By tensor parallelism: elements of one sample that the ranks sum after the forward pass and
    /// after the gradient of the input (0: nothing).
    Tensor {
        /// After the forward pass.
        forward: u64,
        /// After the gradient of the input.
        backward: u64,
    },
    /// By operator parallelism, in space: elements of one sample that a rank hands to each
    /// neighbour after the forward pass, so that the next layer sees its surroundings.
    Spatial {
        /// Per neighbour, with the shards of a 2×2 grid.
        halo: u64,
    },
    /// By operator parallelism, its outputs; the inputs of one sample are gathered before.
    Gathered {
        /// Elements.
        input: u64,
    },
    /// Tables spread over all replicas: elements of one sample that travel to their tables and back.
    Tables {
        /// Elements.
        exchanged: u64,
    },
}

/// The experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many.
    pub count: u32,
    /// How many each token visits.
    pub top_k: u32,
    /// Parameters of one.
    pub parameters: u64,
    /// Elements of one sample that travel to the experts, all visits counted.
    pub dispatched: u64,
    /// Forward FLOPs of one sample that are computed for nothing: room for tokens that is free.
    pub padding: u64,
}

/// A model: its layers in forward order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelLayers {
    /// For tables.
    pub name: String,
    /// The layers.
    pub layers: Vec<Layer>,
    /// Parameters of the first layer that the last one uses again, not counted there.
    pub tied: u64,
    /// What tensor parallelism must divide: name and number.
    pub divisible: Vec<(&'static str, u64)>,
    /// Heads of keys and values, which tensor parallelism divides or copies.
    pub kv_heads: Option<u64>,
    /// Heads of keys and values as attention reads them: with `repeated_keys` as many as of queries.
    pub read_heads: u64,
    /// What was assumed.
    pub notes: Vec<String>,
    /// Tokens of a sample, where it has tokens.
    pub tokens: Option<u64>,
}

impl Layer {
    /// Every parameter, of all experts.
    #[must_use]
    pub fn all_parameters(&self) -> u64 {
        let experts = self.experts.map_or(0, |e| u64::from(e.count) * e.parameters);
        self.parameters + self.replicated + experts
    }
}

impl ModelLayers {
    /// Every parameter of the model.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        self.layers.iter().map(Layer::all_parameters).sum()
    }

    /// Forward FLOPs of one sample that it needs.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        let all: u64 = self.layers.iter().map(|layer| layer.flops.forward).sum();
        all - self.padding() / 3
    }

    /// FLOPs of one sample that it needs, forward and backward.
    #[must_use]
    pub fn flops(&self) -> u64 {
        let all: u64 = self.layers.iter().map(|layer| layer.flops.total()).sum();
        all - self.padding()
    }

    /// FLOPs of one sample, forward and backward, that the padding of experts costs beside these.
    #[must_use]
    pub fn padding(&self) -> u64 {
        self.layers
            .iter()
            .filter_map(|layer| layer.experts)
            .map(|experts| 3 * experts.padding)
            .sum()
    }
}
