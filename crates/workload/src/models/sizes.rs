//! The sizes of a transformer after defaults, and whether they can be meant.

use allrail_core::{FieldError, counted};

use super::transformer::{Head, TransformerSpec};

fn wrong(field: &str, value: impl std::fmt::Display, why: &str, hint: &str) -> FieldError {
    FieldError::new(format!("workload.model.{field}"), value, why, hint)
}

/// 2^63: `magnitude` counts every sum more than twice, and four times such a sum fits a `u64`.
pub(super) const MOST: f64 = 9_223_372_036_854_775_808.0;

/// Sizes after defaults.
#[derive(Clone, Copy)]
pub(super) struct Sizes<'a> {
    pub(super) spec: &'a TransformerSpec,
    pub(super) hidden: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    /// Heads of keys and values as attention reads them.
    pub(super) read_heads: u64,
    pub(super) head: u64,
    pub(super) value: u64,
    pub(super) feed_forward: u64,
    pub(super) tokens: u64,
}

impl TransformerSpec {
    /// Its sizes, for samples of `sequence` tokens or as many as it says itself.
    ///
    /// # Errors
    /// A size that is missing, zero, too large, or does not divide.
    pub(super) fn sizes(&self, sequence: Option<u32>) -> Result<Sizes<'_>, FieldError> {
        let count = u64::from(self.layers) + u64::from(self.decoder_layers);
        let tokens = sequence.map_or(self.sequence_length, u64::from);
        self.check_needed(count, tokens)?;
        self.check_optional()?;
        let kv_heads = self.kv_heads.unwrap_or(self.heads);
        self.check_heads(kv_heads)?;
        self.check_experts()?;
        self.check_blocks()?;
        let head = self.head_size.unwrap_or(self.hidden / self.heads);
        let sizes = Sizes {
            spec: self,
            hidden: self.hidden,
            heads: self.heads,
            kv_heads,
            read_heads: if self.repeated_keys { self.heads } else { kv_heads },
            head,
            value: self.value_size.unwrap_or(head),
            feed_forward: self.feed_forward.unwrap_or(4 * self.hidden),
            tokens,
        };
        if sizes.magnitude() > MOST {
            let why = "the FLOPs of a sample, or the parameters, are more than 2^62";
            let hint = "look for a size that is too large";
            return Err(wrong("transformer", counted(count, "layer"), why, hint));
        }
        Ok(sizes)
    }

    /// Sizes that are at least 1.
    fn check_needed(&self, count: u64, tokens: u64) -> Result<(), FieldError> {
        let all = [
            ("layers", count, 1 << 14),
            ("hidden", self.hidden, 1 << 20),
            ("heads", self.heads, 1 << 14),
            ("vocabulary", self.vocabulary + u64::from(self.patch.is_some()), 1 << 26),
            ("patch", self.patch.unwrap_or(1), 1 << 20),
            ("sequence_length", tokens, 1 << 24),
            ("kv_heads", self.kv_heads.unwrap_or(1), 1 << 14),
            ("head_size", self.head_size.unwrap_or(1), 1 << 16),
            ("value_size", self.value_size.unwrap_or(1), 1 << 16),
            ("feed_forward", self.feed_forward.unwrap_or(1), 1 << 22),
            ("decoder_feed_forward", self.decoder_feed_forward.unwrap_or(1), 1 << 22),
            ("decoder_heads", self.decoder_heads.unwrap_or(1), 1 << 14),
            ("embedding_size", self.embedding(), 1 << 20),
        ];
        for (field, value, most) in all {
            if value == 0 {
                return Err(wrong(field, 0, "it is needed", "a transformer has at least one"));
            }
            if value > most {
                return Err(wrong(field, value, "it is too large", &format!("at most {most}")));
            }
        }
        Ok(())
    }

    /// Sizes that may be 0.
    fn check_optional(&self) -> Result<(), FieldError> {
        let latent = self.latent.map_or([0; 3], |l| [l.query.unwrap_or(0), l.key_value, l.rotary]);
        let index =
            self.latent.and_then(|l| l.index).map_or([0; 3], |i| [i.heads, i.size, i.tokens]);
        let optional = [
            ("latent.query", latent[0]),
            ("latent.key_value", latent[1]),
            ("latent.rotary", latent[2]),
            ("latent.index.heads", index[0]),
            ("latent.index.size", index[1]),
            ("latent.index.tokens", index[2]),
            ("gate", self.gate),
            ("others", self.others >> 14),
            ("vectors", self.vectors),
            ("positions", self.positions),
            ("token_types", self.token_types),
            ("relative_positions", self.relative_positions),
            ("norms.query_key", self.norms.query_key),
            ("norms.per_layer", self.norms.per_layer),
            ("norms.parameters", self.norms.parameters),
            ("experts.shared", self.experts.map_or(0, |e| e.shared)),
            ("experts.feed_forward", self.experts.and_then(|e| e.feed_forward).unwrap_or(1)),
        ];
        for (field, value) in optional {
            if value > 1 << 26 {
                return Err(wrong(field, value, "it is too large", "at most 2^26"));
            }
        }
        Ok(())
    }

    /// Heads divide what is cut among them.
    fn check_heads(&self, kv_heads: u64) -> Result<(), FieldError> {
        if !self.heads.is_multiple_of(kv_heads) {
            let hint = "each head of keys and values serves as many query heads";
            return Err(wrong("kv_heads", kv_heads, "it does not divide `heads`", hint));
        }
        if let Some(beside) = self.decoder_heads
            && (self.decoder_layers == 0 || !self.hidden.is_multiple_of(beside))
        {
            let hint = "leave it out where there is no decoder beside an encoder";
            return Err(wrong("decoder_heads", beside, "it does not divide `hidden`", hint));
        }
        if self.head_size.is_none() && !self.hidden.is_multiple_of(self.heads) {
            let hint = "give `head_size`";
            return Err(wrong("heads", self.heads, "it does not divide `hidden`", hint));
        }
        Ok(())
    }

    fn check_experts(&self) -> Result<(), FieldError> {
        let Some(experts) = self.experts else { return Ok(()) };
        let top_k = experts.top_k.unwrap_or(1);
        if experts.count == 0 || experts.count > 1 << 16 {
            let hint = "1 to 65,536; leave `experts` out where there are none";
            return Err(wrong("experts.count", experts.count, "it is out of range", hint));
        }
        if top_k == 0 || top_k > experts.count {
            let hint = format!("1 to {}", experts.count);
            return Err(wrong("experts.top_k", top_k, "a token cannot visit so many", &hint));
        }
        if let Some(room) = self.room {
            let all = f64::from(experts.count) / f64::from(top_k);
            if !(room > 0.0 && room <= all) {
                let why = "an expert has room for some tokens, and for all at most";
                let hint = format!("above 0, at most {all}");
                let field = "workload.parallelism.capacity_factor";
                return Err(FieldError::new(field, room, why, hint));
            }
        }
        if experts.every == Some(0) {
            return Err(wrong("experts.every", 0, "it is zero", "1: every layer has experts"));
        }
        Ok(())
    }

    /// What cannot be in one block, or in one model.
    fn check_blocks(&self) -> Result<(), FieldError> {
        if self.next_tokens > 0 && (self.head != Head::Language || self.decoder_layers > 0) {
            let why = "it follows a decoder with a head of words";
            return Err(wrong("next_tokens", self.next_tokens, why, "leave it out"));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let hint = "0 to below 1, such as 0.1";
            return Err(wrong("dropout", self.dropout, "it is no part of activations", hint));
        }
        if self.next_tokens > 64 {
            return Err(wrong("next_tokens", self.next_tokens, "it is too large", "at most 64"));
        }
        if self.parallel_blocks && self.decoder_layers > 0 {
            let hint = "leave `decoder_layers` or `parallel_blocks` out";
            return Err(wrong("parallel_blocks", true, "a cross-attention is not parallel", hint));
        }
        Ok(())
    }
}

impl Sizes<'_> {
    /// No less than any sum of numbers of the model.
    #[expect(clippy::cast_precision_loss, reason = "a bound")]
    fn magnitude(&self) -> f64 {
        let spec = self.spec;
        let [h, tokens] = [self.hidden, self.tokens].map(|size| size as f64);
        let heads = self.heads as f64 * (self.head + self.value) as f64;
        let latent = spec.latent.map_or(0.0, |latent| {
            (latent.query.unwrap_or(0) + latent.key_value + latent.rotary) as f64
        });
        let experts = spec.experts.unwrap_or_default();
        let index = spec.latent.and_then(|latent| latent.index);
        let index = index.map_or(0.0, |index| (index.heads + 2) as f64 * (index.size + 2) as f64);
        let beside = self.of_the_decoder();
        let heads = heads.max(beside.heads as f64 * (beside.head + beside.value) as f64);
        let latent = latent + index + spec.gate as f64;
        let feed_forward = self.feed_forward.max(beside.feed_forward);
        let inner = (feed_forward + experts.feed_forward.unwrap_or(0)) as f64;
        let inner = inner * (f64::from(experts.count) + 1.0) + experts.shared as f64;
        let layer = (h + latent) * (2.0 * heads + latent) + 4.0 * (h + 1.0) * (inner + h);
        let tables = spec.vocabulary + spec.positions + spec.token_types + spec.relative_positions;
        let tables = tables + spec.patch.unwrap_or(0) + spec.others;
        let ends = tables as f64 * (h + spec.embedding() as f64 + self.heads as f64) + 4.0 * h * h;
        let norms = (spec.norms.per_layer + 2) as f64 * spec.norms.parameters as f64 * h;
        let more = f64::from(spec.next_tokens);
        let layers = f64::from(spec.layers) + f64::from(spec.decoder_layers) + more;
        let ends = (ends + 2.0 * h * h) * (1.0 + more);
        let norms = norms + spec.norms.query_key as f64 + spec.vectors as f64;
        8.0 * tokens * (2.0 * layers * (layer + norms + tokens * (heads + index)) + ends)
    }

    /// The sizes of the decoder beside an encoder.
    pub(super) fn of_the_decoder(&self) -> Self {
        let feed_forward = self.spec.decoder_feed_forward.unwrap_or(self.feed_forward);
        let Some(heads) = self.spec.decoder_heads else { return Self { feed_forward, ..*self } };
        let head = self.hidden / heads;
        let (kv_heads, read_heads) = (heads, heads);
        Self { heads, kv_heads, read_heads, head, value: head, feed_forward, ..*self }
    }
}
