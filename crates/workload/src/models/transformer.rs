//! Transformers by their sizes: decoders, encoders, both, dense or with experts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sizes of a transformer. What is absent is off or as in GPT-2.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TransformerSpec {
    /// Layers: of a decoder or an encoder; of the encoder where there is a decoder beside it.
    pub layers: u32,
    /// Layers of a decoder that also attends to the encoder.
    pub decoder_layers: u32,
    /// The width.
    pub hidden: u64,
    /// Attention heads.
    pub heads: u64,
    /// Attention heads of the decoder beside an encoder, where they are others.
    pub decoder_heads: Option<u64>,
    /// Heads of keys and values; as many as heads where absent.
    pub kv_heads: Option<u64>,
    /// Whether keys and values are copied to every head of queries before attention, as Llama's reference code and
    /// torchtitan do it (`repeat_kv`): they are written, sent by `cp` and kept so.
    pub repeated_keys: bool,
    /// The width of a head; hidden / heads where absent.
    pub head_size: Option<u64>,
    /// The width of a head's values, where it is another.
    pub value_size: Option<u64>,
    /// Keys and values (and queries) through a narrow waist, as DeepSeek has them.
    pub latent: Option<LatentSpec>,
    /// The inner width of the feed-forward part; 4 × hidden where absent.
    pub feed_forward: Option<u64>,
    /// The inner width of the feed-forward part of the decoder beside an encoder, where it is another.
    pub decoder_feed_forward: Option<u64>,
    /// A third matrix gates it.
    pub gated: bool,
    /// The width of a map of a layer's input that gates what attention returns; 0 is none.
    pub gate: u64,
    /// Learned numbers of a layer's attention beside its maps, biases and norms, such as its sinks.
    pub vectors: u64,
    /// Tokens in the vocabulary; with `head: classifier`, classes.
    pub vocabulary: u64,
    /// Numbers of a patch of a picture, its pixels times its colours: tokens are patches, mapped to the
    /// width, and `token_types` learned ones before them.
    pub patch: Option<u64>,
    /// Learned positions; with `decoder_layers`, of each stack.
    pub positions: u64,
    /// Whether queries and keys are turned by their positions; where absent, they are where there are neither
    /// `positions` nor `relative_positions`. With ALiBi, or without any, `false`.
    pub rotary: Option<bool>,
    /// Learned types of token.
    pub token_types: u64,
    /// Learned biases of attention by distance, per head, over the whole model.
    pub relative_positions: u64,
    /// Learned numbers outside of the layers that nothing else here names, such as a second head.
    pub others: u64,
    /// The width of the embedding, where it is projected to `hidden`.
    pub embedding_size: Option<u64>,
    /// Tokens per sample.
    pub sequence_length: u64,
    /// The output uses the input's table.
    pub tied: bool,
    /// What comes after the last layer.
    pub head: Head,
    /// Whether a token sees none after itself; where absent, it does not with `head: language`, nor in the
    /// decoder beside an encoder.
    pub causal: Option<bool>,
    /// Biases of the linear maps.
    pub biases: Biases,
    /// Norms.
    pub norms: Norms,
    /// Experts in place of the feed-forward part.
    pub experts: Option<ExpertsSpec>,
    /// Layers without experts, from 0, beside those that `experts` leaves out.
    pub dense_layers: Vec<u32>,
    /// Attention and feed-forward run side by side on one input.
    pub parallel_blocks: bool,
    /// A token sees at most so many before it.
    pub window: Option<u64>,
    /// The part of activations that a training step leaves out, behind the embedding, attention's softmax
    /// and both parts of a layer; 0 is none. Its masks take time and memory, whatever the part.
    pub dropout: f64,
    /// Modules behind the last layer that each predict one more token: a projection, a layer and the head
    /// again (DeepSeek-V3's multi-token prediction).
    pub next_tokens: u32,
    /// For how many times its even share of tokens an expert has room (`parallelism.capacity_factor`).
    #[serde(skip)]
    pub room: Option<f64>,
}

impl TransformerSpec {
    /// The width of a head.
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head_size.unwrap_or(self.hidden / self.heads.max(1))
    }

    /// With so much room in its experts.
    #[must_use]
    pub fn with_room(mut self, room: Option<f64>) -> Self {
        self.room = room;
        self
    }
}

/// What comes after the last layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// A word for every token.
    #[default]
    Language,
    /// Nothing.
    None,
    /// One dense layer on the first token, as BERT has.
    Pooler,
    /// One of `vocabulary` classes for a sample, from its first token, as ViT has it.
    Classifier,
    /// A dense layer, a norm, and a word for every token: BERT's masked words.
    Masked,
    /// That and the pooler with BERT's next-sentence guess.
    Pretraining,
}

/// Which linear maps have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Biases {
    /// Queries, keys and values.
    pub qkv: bool,
    /// Attention's output.
    pub output: bool,
    /// The feed-forward part.
    pub feed_forward: bool,
    /// The head.
    pub head: bool,
    /// The dense layer of `head: masked` before its words.
    pub transform: bool,
    /// The projection of an embedding of another width.
    pub embedding: bool,
}

impl Default for Biases {
    fn default() -> Self {
        Self {
            qkv: true,
            output: true,
            feed_forward: true,
            head: false,
            transform: true,
            embedding: false,
        }
    }
}

/// The norms of a transformer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Norms {
    /// How many per layer.
    pub per_layer: u64,
    /// Parameters per element: 2 with a bias, 1 without, 0 with none.
    pub parameters: u64,
    /// One after the embedding.
    pub embedding: bool,
    /// One after the last layer.
    pub last: bool,
    /// Parameters of norms of queries and keys, per layer.
    pub query_key: u64,
}

impl Default for Norms {
    fn default() -> Self {
        Self { per_layer: 2, parameters: 2, embedding: false, last: true, query_key: 0 }
    }
}

/// A narrow waist in attention (DeepSeek-V2, multi-head latent attention).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LatentSpec {
    /// Of queries; none where absent.
    #[serde(default)]
    pub query: Option<u64>,
    /// Of keys and values.
    pub key_value: u64,
    /// Of a head, with rotary positions, shared by all heads for keys.
    pub rotary: u64,
    /// An index of the tokens that attention sees (DeepSeek-V3.2); none where absent.
    #[serde(default)]
    pub index: Option<IndexSpec>,
}

/// What picks the tokens that attention sees, by a small attention of its own (DeepSeek-V3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IndexSpec {
    /// Its heads of queries; keys have one.
    pub heads: u64,
    /// The width of a head.
    pub size: u64,
    /// How many tokens it picks.
    pub tokens: u64,
}

/// Experts in place of the feed-forward part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpertsSpec {
    /// How many.
    pub count: u32,
    /// How many a token visits; 1 where absent.
    pub top_k: Option<u32>,
    /// The inner width of one; the transformer's where absent.
    pub feed_forward: Option<u64>,
    /// The inner width of a part that all tokens visit.
    pub shared: u64,
    /// Whether a gate weighs the shared part.
    pub shared_gate: bool,
    /// One layer in so many has experts; 1 where absent.
    pub every: Option<u32>,
    /// So many layers at the beginning have none.
    pub first_dense: u32,
    /// Whether the router has a bias per expert.
    pub router_bias: bool,
    /// Whether the experts' maps have biases; as `biases.feed_forward` where absent.
    pub biases: Option<bool>,
}
