//! The kernels of a transformer's layers: which products, which attention, what is moved between them.
//!
//! With s tokens, width h, heads of a · d, keys and values of g · d, inner width f (elements of one sample,
//! operator by operator; fused, what stands in brackets):
//!
//! | part | forward | backward |
//! |---|---|---|
//! | a norm and the sum after a block | 2h + 3h (4h) | 4h + 3h (5h) |
//! | an RMS norm, in fp32 and operator by operator, and that sum | 14h + 3h (4h) | 20h + 3h (5h) |
//! | rotary positions, in fp32 | 14(a + g)d (2(a + g)d) | the same |
//! | keys and values copied to all heads | 2(a + g)d (2(a + g)d) | the same |
//! | GELU, ReLU | 2f (2f) | 3f (3f) |
//! | a gate | 5f (3f) | 8f (5f) |
//! | a bias of width w | in the product | w |
//! | experts: to their order and back | 4h a visit (4h) | 4h |
//! | embedding | 2h | 4h |
//! | loss, of V words, in fp32 | 9V (2V) | 5V (2V) |
//!
//! | dropout, with a mask of one byte | 2.5h (0.5h) | 2.5h (2.5h) |
//!
//! Counted from what PyTorch's operators read and write; fused, dropout is written by the kernel that sums.

use super::sizes::Sizes;
use super::transformer::Head;
use crate::kernels::{Attention, Kernel, Product, Split, Stream};

fn product(rows: u64, inputs: u64, outputs: u64, split: Split) -> Kernel {
    Kernel::Product(Product { rows, inputs, outputs, copies: 1, split, scaled: true })
}

fn plain(rows: u64, inputs: u64, outputs: u64, split: Split) -> Kernel {
    Kernel::Product(Product { rows, inputs, outputs, copies: 1, split, scaled: false })
}

impl Sizes<'_> {
    /// A norm, and the sum with what came in.
    fn norm_and_sum(&self) -> Kernel {
        let wide = self.tokens * self.hidden;
        // One without a bias is an RMS norm, of which PyTorch has no kernel of its own.
        let root = self.spec.norms.parameters == 1 && self.spec.gated;
        let (forward, backward, kernels) = if root { (17, 23, 7) } else { (5, 7, 2) };
        Kernel::Stream(Stream {
            forward: forward * wide,
            backward: backward * wide,
            fused_forward: 4 * wide,
            fused_backward: 5 * wide,
            kernels,
            cut: false,
        })
    }

    /// Behind a part of a layer, or the embedding.
    fn dropout(&self) -> Option<Kernel> {
        let wide = self.tokens * self.hidden;
        (self.spec.dropout > 0.0).then_some(Kernel::Stream(Stream {
            forward: 5 * wide / 2,
            backward: 5 * wide / 2,
            fused_forward: wide / 2,
            fused_backward: 5 * wide / 2,
            kernels: 1,
            cut: false,
        }))
    }

    fn bias(&self, given: bool, width: u64) -> Option<Kernel> {
        let summed = self.tokens * width;
        given.then_some(Kernel::Stream(Stream::plain(0, summed, 1, true)))
    }

    /// Of queries, keys and values, attention, and what follows.
    pub(super) fn attention_kernels(&self, crossed: bool, causal: bool) -> Vec<Kernel> {
        let (h, a, kv, d, v) = (self.hidden, self.heads, self.kv_heads, self.head, self.value);
        let (s, spec) = (self.tokens, self.spec);
        let mut kernels = vec![self.norm_and_sum()];
        match spec.latent {
            None if crossed => {
                kernels.push(product(s, h, a * d, Split::Outputs));
                kernels.push(product(s, h, kv * (d + v), Split::Outputs));
            }
            None => kernels.push(product(s, h, a * d + kv * (d + v), Split::Outputs)),
            Some(latent) => {
                let up = a * (d - latent.rotary.min(d) + v);
                kernels.push(product(s, h, latent.key_value + latent.rotary, Split::None));
                kernels.push(product(s, latent.key_value, up, Split::Outputs));
                match latent.query {
                    Some(query) => {
                        kernels.push(product(s, h, query, Split::None));
                        kernels.push(product(s, query, a * d, Split::Outputs));
                    }
                    None => kernels.push(product(s, h, a * d, Split::Outputs)),
                }
            }
        }
        if let Some(index) = spec.latent.and_then(|latent| latent.index).filter(|_| !crossed) {
            let inputs = spec.latent.and_then(|latent| latent.query).unwrap_or(h);
            kernels.push(product(s, inputs, index.heads * index.size, Split::None));
            kernels.push(product(s, h, index.size + index.heads, Split::None));
            kernels.push(plain(s, index.size, s * index.heads, Split::None));
        }
        if spec.gate > 0 && !crossed {
            kernels.push(product(s, h, spec.gate, Split::Outputs));
            kernels.push(Kernel::Stream(Stream::plain(3 * s * a * v, 5 * s * a * v, 1, true)));
        }
        let no_others = spec.positions == 0 && spec.relative_positions == 0;
        if spec.rotary.unwrap_or(no_others) {
            let turned = s * (a + kv) * d;
            let (alone, fused) = (14 * turned, 2 * turned);
            kernels.push(Kernel::Stream(Stream {
                forward: alone,
                backward: alone,
                fused_forward: fused,
                fused_backward: fused,
                kernels: 8,
                cut: true,
            }));
        }
        if self.read_heads > kv {
            let (few, many) = (s * kv * (d + v), s * self.read_heads * (d + v));
            kernels.push(Kernel::Stream(Stream::plain(few + many, many + few, 2, true)));
        }
        let picked = spec.latent.and_then(|latent| latent.index).map_or(s, |index| index.tokens);
        let keys = spec.window.unwrap_or(s).min(s).min(picked);
        let (causal, queries) = (causal && !crossed, s);
        kernels.push(Kernel::Attention(Attention {
            queries,
            keys,
            causal,
            heads: a,
            head: d,
            value: v,
            dropout: spec.dropout > 0.0,
        }));
        kernels.push(product(s, a * v, h, Split::Inputs));
        kernels.extend(self.dropout());
        kernels.extend(self.bias(spec.biases.qkv, a * d + kv * (d + v)));
        kernels.extend(self.bias(spec.biases.output, h));
        kernels
    }

    /// What lies between the products of a feed-forward part.
    fn activation(&self, inner: u64) -> Kernel {
        let [forward, backward, fused_forward, fused_backward] =
            if self.spec.gated { [5, 8, 3, 5] } else { [2, 3, 2, 3] }.map(|times| times * inner);
        let kernels = if self.spec.gated { 2 } else { 1 };
        let cut = true;
        Kernel::Stream(Stream { forward, backward, fused_forward, fused_backward, kernels, cut })
    }

    /// Of a dense feed-forward part of an inner width.
    fn dense(&self, f: u64) -> Vec<Kernel> {
        let (h, s, spec) = (self.hidden, self.tokens, self.spec);
        let up = if spec.gated { 2 * f } else { f };
        let mut kernels = vec![
            product(s, h, up, Split::Outputs),
            self.activation(s * f),
            product(s, f, h, Split::Inputs),
        ];
        kernels.extend(self.bias(spec.biases.feed_forward, f));
        kernels.extend(self.bias(spec.biases.feed_forward, h));
        kernels.extend(self.dropout());
        kernels
    }

    /// Of a feed-forward part, with experts or without.
    pub(super) fn feed_forward_kernels(&self, layer: u32) -> Vec<Kernel> {
        let (h, s, spec) = (self.hidden, self.tokens, self.spec);
        let mut kernels = vec![self.norm_and_sum()];
        let Some(experts) = spec.experts.filter(|_| spec.has_experts(layer)) else {
            kernels.extend(self.dense(self.feed_forward));
            return kernels;
        };
        let f = experts.feed_forward.unwrap_or(self.feed_forward);
        let copies = u64::from(experts.count);
        let rows = self.visited(experts);
        let of = |inputs, outputs, split| {
            Kernel::Product(Product { rows, inputs, outputs, copies, split, scaled: true })
        };
        let up = if spec.gated { 2 * f } else { f };
        kernels.push(plain(s, h, copies, Split::None));
        kernels.push(Kernel::Stream(Stream::plain(4 * rows * h, 4 * rows * h, 4, false)));
        kernels.push(of(h, up, Split::Outputs));
        kernels.push(self.activation(rows * f));
        kernels.push(of(f, h, Split::Inputs));
        if experts.shared > 0 {
            kernels.extend(self.dense(experts.shared));
        }
        kernels
    }

    /// Of the embedding.
    pub(super) fn embedding_kernels(&self) -> Vec<Kernel> {
        let (width, h, s) = (self.spec.embedding(), self.hidden, self.tokens);
        let mut kernels =
            vec![Kernel::Stream(Stream::plain(2 * s * width, 4 * s * width, 2, false))];
        kernels.extend(self.dropout());
        if let Some(patch) = self.spec.patch {
            kernels.push(plain(s, patch, width, Split::None));
        }
        if width != h {
            kernels.push(plain(s, width, h, Split::None));
        }
        kernels
    }

    /// Of a module's projection: the next token's embedding, two norms, and a product of both.
    pub(super) fn next_token_kernels(&self) -> Vec<Kernel> {
        let (h, s) = (self.hidden, self.tokens);
        let mut kernels = self.embedding_kernels();
        kernels.push(Kernel::Stream(Stream::plain(4 * s * h, 8 * s * h, 2, false)));
        kernels.push(product(s, 2 * h, h, Split::Outputs));
        kernels
    }

    /// Of the last norm, the head and the loss.
    pub(super) fn head_kernels(&self) -> Vec<Kernel> {
        let (h, s, spec) = (self.hidden, self.tokens, self.spec);
        let width = spec.embedding();
        let mut kernels = Vec::new();
        if spec.norms.last {
            kernels.push(Kernel::Stream(Stream::plain(2 * s * h, 4 * s * h, 1, false)));
        }
        let words = match spec.head {
            Head::None => return kernels,
            Head::Pooler => {
                kernels.push(plain(1, h, h, Split::None));
                return kernels;
            }
            Head::Classifier => {
                kernels.push(plain(1, width, spec.vocabulary, Split::Outputs));
                return kernels;
            }
            Head::Language => {
                if width != h {
                    kernels.push(plain(s, h, width, Split::None));
                }
                spec.vocabulary
            }
            Head::Masked | Head::Pretraining => {
                kernels.push(plain(s, h, h, Split::None));
                spec.vocabulary
            }
        };
        kernels.push(plain(s, width, words, Split::Outputs));
        // In fp32: from two bytes, a softmax, and back.
        let loss = s * words;
        kernels.push(Kernel::Stream(Stream {
            forward: 9 * loss,
            backward: 5 * loss,
            fused_forward: 2 * loss,
            fused_backward: 2 * loss,
            kernels: 4,
            cut: true,
        }));
        kernels
    }
}
