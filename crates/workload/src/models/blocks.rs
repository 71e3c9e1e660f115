//! The layers of a transformer: embedding, (attention, cross-attention, feed-forward) × layers, head.
//!
//! With s tokens a sample, width h, a heads of size d, feed-forward width f, vocabulary V:
//!
//! | part | parameters | forward FLOPs | summed by `tp` forward, backward |
//! |---|---|---|---|
//! | embedding | V·h + positions | 0 | s·h, – |
//! | attention | h·d·(2a + 2·kv_heads) | 2·s·parameters + 4·s·min(s, window)·a·d | s·h, s·h |
//! | feed-forward | 2·h·f, gated 3·h·f | 2·s·parameters | s·h, s·h |
//! | experts | router h·E, each as a feed-forward | 2·s·(router + `top_k` · expert + shared) | s·h, s·h |
//! | head | V·h (none where tied) | 2·s·h·V | –, s·h |
//!
//! These are Megatron-LM's counts (Narayanan et al., SC'21, §5.1 and appendix): causal masks are not
//! taken off, so an iteration without recomputation has 72·s·l·h²·(1 + s/6h + V/12lh) FLOPs a sample.
//! Activations are those of Korthikanti et al. (2205.05198, §4), dropout's masks where there is dropout; the
//! s² scores are counted where attention is unfused (`memory.rs`). Experts' tokens are taken as balanced.
//!
//! Ignored: the gradient of an encoder's output in a decoder's pipeline, copies of key and value
//! heads where `tp` exceeds them, relative positions' time.
//!
//! An index of tokens (DeepSeek-V3.2) has a products' worth of its own: q·H·D + h·(D + H) parameters with H heads of
//! D, 2·s²·H·D FLOPs; attention then sees `tokens` at most.

use allrail_core::{FieldError, counted};

use super::layer::{Cut, Experts, Flops, Layer, ModelLayers};
use super::sizes::Sizes;
use super::transformer::{ExpertsSpec, Head, TransformerSpec};

impl TransformerSpec {
    /// Its layers, for samples of `sequence` tokens or as many as it says itself.
    ///
    /// # Errors
    /// A size that is missing, zero, too large, or does not divide.
    pub fn model(&self, name: &str, sequence: Option<u32>) -> Result<ModelLayers, FieldError> {
        let sizes = self.sizes(sequence)?;
        let beside = sizes.of_the_decoder();
        let mut layers = vec![sizes.embedding()];
        let (encoder, decoder) = (self.layers, self.decoder_layers);
        for i in 0..encoder + decoder {
            let crossed = i >= encoder;
            let name = match decoder {
                0 => format!("layer{i}"),
                _ if crossed => format!("decoder{}", i - encoder),
                _ => format!("encoder{i}"),
            };
            let sizes = if crossed { &beside } else { &sizes };
            let mut block =
                vec![sizes.attention(format!("{name}.attention"), false, self.masks(i))];
            if crossed {
                block.push(sizes.attention(format!("{name}.cross"), true, false));
            }
            block.push(sizes.feed_forward(format!("{name}.feed_forward"), i));
            if self.parallel_blocks {
                // One input and one sum for both.
                block[0].cut = Cut::Tensor { forward: 0, backward: sizes.wide() };
                block[1].cut = Cut::Tensor { forward: sizes.wide(), backward: 0 };
            }
            for mut layer in block {
                layer.unit = i;
                layer.block = true;
                layers.push(layer);
            }
        }
        for k in 0..self.next_tokens {
            layers.extend(sizes.next_token(k, encoder + decoder));
        }
        let mut last = sizes.last();
        last.unit = encoder + decoder + self.next_tokens - 1;
        layers.push(last);
        let language = matches!(self.head, Head::Language | Head::Masked | Head::Pretraining);
        let mut divisible = vec![("attention heads", sizes.heads)];
        if self.decoder_layers > 0 && beside.heads != sizes.heads {
            divisible.push(("the decoder's attention heads", beside.heads));
        }
        if self.layers_without_experts() > 0 {
            divisible.push(("feed_forward", sizes.feed_forward));
            if self.decoder_layers > 0 && beside.feed_forward != sizes.feed_forward {
                divisible.push(("the decoder's feed_forward", beside.feed_forward));
            }
        }
        if let Some(experts) = self.experts {
            let inner = experts.feed_forward.unwrap_or(sizes.feed_forward);
            divisible.push(("an expert's feed_forward", inner));
        }
        Ok(ModelLayers {
            name: name.to_owned(),
            layers,
            tied: if self.tied && language { self.vocabulary * self.embedding() } else { 0 },
            divisible,
            kv_heads: Some(sizes.kv_heads),
            read_heads: sizes.read_heads,
            notes: Self::too_long(sizes.tokens, self.positions).into_iter().collect(),
            tokens: Some(sizes.tokens),
        })
    }

    /// What to say of samples longer than the positions a model was made for, if it has any.
    pub(super) fn too_long(tokens: u64, positions: u64) -> Option<String> {
        (positions > 0 && tokens > positions).then(|| {
            let positions = counted(positions, "position");
            format!(
                "{tokens} a sample, but the model has {positions}",
                tokens = counted(tokens, "token")
            )
        })
    }

    pub(super) fn embedding(&self) -> u64 {
        self.embedding_size.unwrap_or(self.hidden)
    }

    pub(super) fn has_experts(&self, layer: u32) -> bool {
        self.experts.is_some_and(|experts| {
            let every = experts.every.unwrap_or(1);
            layer >= experts.first_dense
                && (layer + 1).is_multiple_of(every)
                && !self.dense_layers.contains(&layer)
        })
    }

    /// Whether a token of a layer sees none after itself.
    pub(super) fn masks(&self, layer: u32) -> bool {
        let decodes = self.decoder_layers == 0 || layer >= self.layers;
        let usual = self.decoder_layers > 0 || self.head == Head::Language;
        decodes && self.causal.unwrap_or(usual)
    }

    fn layers_without_experts(&self) -> usize {
        (0..self.layers + self.decoder_layers).filter(|i| !self.has_experts(*i)).count()
    }
}

impl Sizes<'_> {
    /// Elements of a sample at full width.
    pub(super) fn wide(&self) -> u64 {
        self.tokens * self.hidden
    }

    /// Elements of two bytes that a part of a layer keeps at full width: its input twice, before and behind
    /// the norm, and the mask of its dropout.
    fn kept_whole(&self) -> u64 {
        let mask = if self.spec.dropout > 0.0 { self.wide() / 2 } else { 0 };
        2 * self.wide() + mask
    }

    pub(super) fn norm(&self) -> u64 {
        self.hidden * self.spec.norms.parameters
    }

    fn embedding(&self) -> Layer {
        let spec = self.spec;
        let width = spec.embedding();
        let projection = if width == self.hidden { 0 } else { width * self.hidden };
        let projected = if projection > 0 && spec.biases.embedding { self.hidden } else { 0 };
        // Each stack has its own places, and its own norm.
        let stacks = if spec.decoder_layers > 0 { 2 } else { 1 };
        let norm = if spec.norms.embedding { width * spec.norms.parameters } else { 0 };
        // Normed together, they are as wide as the embedding.
        let placed = if spec.norms.embedding { width } else { self.hidden };
        let distances = spec.relative_positions * self.heads;
        let tables =
            stacks * (spec.positions * placed + norm) + spec.token_types * width + distances;
        let tables = tables + spec.others;
        // A vocabulary's rows, or one map of patches, with a bias.
        let (rows, bias) = spec.patch.map_or((spec.vocabulary, 0), |patch| (patch, width));
        let patches = spec.patch.map_or(0, |patch| patch * width);
        Layer {
            name: "embedding".to_owned(),
            flops: Flops::linear(2 * self.tokens * (projection + patches)),
            parameters: rows * width,
            replicated: projection + projected + tables + bias,
            matrices: vec![[rows, width]],
            moved: 2 * self.wide(),
            output: self.wide(),
            cut: Cut::Tensor { forward: self.wide(), backward: 0 },
            kernels: self.embedding_kernels(),
            lookups: spec.patch.is_none().then_some(self.tokens),
            ..Layer::default()
        }
    }

    pub(super) fn attention(&self, name: String, crossed: bool, causal: bool) -> Layer {
        let (h, a, kv, d, v) = (self.hidden, self.heads, self.kv_heads, self.head, self.value);
        let spec = self.spec;
        let bias = |given: bool, width: u64| if given { width } else { 0 };
        let out = h * a * v;
        // (cut, replicated) weights of queries, keys and values.
        let (cut, whole, extra) = match spec.latent {
            None => (h * (a * d + kv * (d + v)), 0, bias(spec.biases.qkv, a * d + kv * (d + v))),
            Some(latent) => {
                let plain = d - latent.rotary.min(d);
                let up = latent.key_value * a * (plain + v);
                let down = h * (latent.key_value + latent.rotary);
                let query = latent.query.unwrap_or(0);
                let norms = latent.key_value + query;
                // Of the maps to the waist.
                let biases = match latent.query {
                    Some(query) => query + latent.key_value + latent.rotary,
                    None => latent.key_value + latent.rotary,
                };
                let norms = norms + bias(spec.biases.qkv, biases);
                let index = latent.index.map_or(0, |index| {
                    let queries = latent.query.unwrap_or(h) * index.heads * index.size;
                    queries + h * (index.size + index.heads) + 2 * index.size
                });
                match latent.query {
                    Some(query) => (query * a * d + up, h * query + down + norms + index, 0),
                    None => (h * a * d + up, down + norms + index, 0),
                }
            }
        };
        let vectors = if crossed { 0 } else { spec.vectors };
        // What gates the result is cut with the heads.
        let gate = if crossed { 0 } else { h * spec.gate };
        let linear = 2 * self.tokens * (cut + gate + whole + out);
        let index = spec.latent.and_then(|latent| latent.index);
        let seen = spec.window.unwrap_or(self.tokens).min(self.tokens);
        let picked = index.map_or(seen, |index| seen.min(index.tokens));
        let scores = index.map_or(0, |index| 2 * self.tokens * seen * index.heads * index.size);
        let product = 2 * self.tokens * picked * a * (d + v) + scores;
        let inner = self.tokens * (a * d + self.read_heads * (d + v) + a * v);
        Layer {
            name,
            flops: Flops::attention(linear, product),
            parameters: cut + gate + out + extra,
            matrices: match spec.latent {
                None if gate > 0 => Vec::new(),
                None => vec![[a * d, h], [kv * d, h], [kv * v, h], [h, a * v]],
                Some(_) => Vec::new(),
            },
            replicated: whole
                + bias(spec.biases.output, h)
                + spec.norms.per_layer.min(1) * self.norm()
                + spec.norms.query_key
                + vectors,
            moved: 2 * (inner + 2 * self.wide()),
            output: self.wide(),
            saved: inner,
            saved_whole: self.kept_whole(),
            read: [0, self.wide()],
            keys: self.tokens * self.read_heads * (d + v),
            cut: Cut::Tensor { forward: self.wide(), backward: self.wide() },
            kernels: self.attention_kernels(crossed, causal),
            ..Layer::default()
        }
    }

    pub(super) fn feed_forward(&self, name: String, layer: u32) -> Layer {
        let (h, f, spec) = (self.hidden, self.feed_forward, self.spec);
        let matrices = if spec.gated { 3 } else { 2 };
        let bias = |given: bool, width: u64| if given { width } else { 0 };
        let norms = spec.norms.per_layer.saturating_sub(1) * self.norm();
        let cut = Cut::Tensor { forward: self.wide(), backward: self.wide() };
        let Some(experts) = spec.experts.filter(|_| spec.has_experts(layer)) else {
            let inner = self.tokens * f * matrices;
            return Layer {
                name,
                flops: Flops::linear(2 * self.tokens * matrices * h * f),
                parameters: matrices * h * f + bias(spec.biases.feed_forward, (matrices - 1) * f),
                replicated: bias(spec.biases.feed_forward, h) + norms,
                matrices: if spec.gated {
                    vec![[f, h], [f, h], [h, f]]
                } else {
                    vec![[f, h], [h, f]]
                },
                moved: 2 * (inner + 2 * self.wide()),
                output: self.wide(),
                saved: inner,
                saved_whole: self.kept_whole(),
                read: [self.tokens * f, self.wide()],
                cut,
                kernels: self.feed_forward_kernels(layer),
                ..Layer::default()
            };
        };
        let f = experts.feed_forward.unwrap_or(f);
        let visited = self.visited(experts);
        let router = h * u64::from(experts.count);
        let shared = matrices * h * experts.shared;
        let biased = experts.biases.unwrap_or(spec.biases.feed_forward);
        let one = matrices * h * f + bias(biased, (matrices - 1) * f + h);
        let beside = spec.biases.feed_forward && experts.shared > 0;
        let beside = bias(beside, (matrices - 1) * experts.shared + h);
        let inner = visited * (matrices * f + h) + self.tokens * matrices * experts.shared;
        let even = self.tokens * u64::from(experts.top_k.unwrap_or(1));
        let each = matrices * h * f;
        Layer {
            name,
            flops: Flops::linear(2 * (self.tokens * (router + shared) + visited * each)),
            parameters: shared,
            replicated: router
                + beside
                + bias(experts.router_bias, u64::from(experts.count))
                + bias(experts.shared_gate, h)
                + norms,
            moved: 2 * (inner + 2 * self.wide()),
            output: self.wide(),
            saved: inner,
            saved_whole: self.kept_whole(),
            read: [visited * (f + h) + self.tokens * experts.shared, 0],
            cut,
            experts: Some(Experts {
                count: experts.count,
                top_k: experts.top_k.unwrap_or(1),
                parameters: one,
                dispatched: visited * h,
                padding: 2 * visited.saturating_sub(even) * each,
            }),
            kernels: self.feed_forward_kernels(layer),
            ..Layer::default()
        }
    }

    /// Visits of a sample's tokens that experts have room for.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn visited(&self, experts: ExpertsSpec) -> u64 {
        let even = self.tokens * u64::from(experts.top_k.unwrap_or(1));
        self.spec.room.map_or(even, |room| (even as f64 * room).ceil() as u64)
    }

    /// The last norm and the head.
    pub(super) fn last(&self) -> Layer {
        let (h, spec) = (self.hidden, self.spec);
        let width = spec.embedding();
        // An encoder beside a decoder has its own last norm.
        let stacks = if spec.decoder_layers > 0 { 2 } else { 1 };
        let norm = if spec.norms.last { stacks * self.norm() } else { 0 };
        let projection = if width == h { 0 } else { h * width };
        let table = if spec.tied { 0 } else { spec.vocabulary * width };
        let bias = if spec.biases.head { spec.vocabulary } else { 0 };
        let normed = width * spec.norms.parameters;
        let transform = h * width + if spec.biases.transform { width } else { 0 } + normed;
        let (parameters, replicated, per_token, once) = match spec.head {
            Head::None => (0, 0, 0, 0),
            Head::Pooler => (0, h * h + h, 0, h * h),
            Head::Classifier => (spec.vocabulary * width + bias, 0, 0, spec.vocabulary * width),
            Head::Language => (table + bias, projection, projection + spec.vocabulary * width, 0),
            Head::Masked => (table + bias, transform, h * width + spec.vocabulary * width, 0),
            Head::Pretraining => {
                let pooler = h * h + h + 2 * h + 2;
                (
                    table + bias,
                    transform + pooler,
                    h * width + spec.vocabulary * width,
                    h * h + 2 * h,
                )
            }
        };
        let words = if per_token == 0 { 0 } else { self.tokens * spec.vocabulary };
        Layer {
            name: "head".to_owned(),
            flops: Flops::linear(2 * (self.tokens * per_token + once)),
            parameters,
            replicated: replicated + norm,
            matrices: if table > 0 { vec![[spec.vocabulary, width]] } else { Vec::new() },
            moved: 2 * (words + self.wide()),
            output: words.max(self.wide()),
            words,
            saved_whole: 2 * self.wide(),
            cut: Cut::Tensor { forward: 0, backward: self.wide() },
            kernels: self.head_kernels(),
            ..Layer::default()
        }
    }
}
