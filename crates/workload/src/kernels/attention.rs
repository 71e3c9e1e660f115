//! Attention: fused, at what was measured of its kind and head size, or as products and a softmax.
//!
//! With q queries that see k keys (pairs: q · k, of a causal mask those below the diagonal), a heads of
//! size d, values of size v:
//!
//! ```text
//! FLOPs    = 2 · pairs · a · (d + v) forward, 2.5 times as many backward
//! fused    = FLOPs / rate(kind, head) · (1 + half / k) + start
//! unfused  = the products Q·Kᵀ and P·V of whole q × k matrices, and a fused softmax over them;
//!            with dropout a mask of one byte each, written and read apart
//! ```
//!
//! Rates are of the papers of FlashAttention-2 (Dao, 2023) and -3 (Shah et al., 2024) or measured; the
//! latter's tables also give `half`. A head of another size takes the next larger one, padding included.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How attention is computed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[schemars(extend("x-what" = "a kind of attention"))]
pub enum AttentionKind {
    /// Products and a softmax, with all scores in memory.
    Unfused,
    /// `FlashAttention` (Dao et al., 2022).
    Flash,
    /// `FlashAttention-2` (Dao, 2023).
    #[serde(rename = "flash_2")]
    Flash2,
    /// `FlashAttention-3` (Shah et al., 2024), and cuDNN's, which is as fast.
    #[serde(rename = "flash_3")]
    Flash3,
}

impl AttentionKind {
    /// The tag in files.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::Unfused => "unfused",
            Self::Flash => "flash",
            Self::Flash2 => "flash_2",
            Self::Flash3 => "flash_3",
        }
    }

    /// Whether the scores of all pairs are in memory.
    #[must_use]
    pub const fn keeps_scores(self) -> bool {
        matches!(self, Self::Unfused)
    }
}

/// Attention of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// Tokens.
    pub queries: u64,
    /// Tokens that each sees at most.
    pub keys: u64,
    /// Whether it sees none after itself.
    pub causal: bool,
    /// Heads, which tensor parallelism divides.
    pub heads: u64,
    /// Elements of a head of queries and keys.
    pub head: u64,
    /// Elements of a head of values.
    pub value: u64,
    /// Whether some of the softmax is left out.
    pub dropout: bool,
}

impl Attention {
    /// (query, key) pairs that are not masked.
    #[must_use]
    pub fn pairs(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let [queries, keys] = [self.queries, self.keys].map(|count| count as f64);
        let masked = if self.causal { keys.min(queries) / 2.0 } else { 0.0 };
        queries * (keys - masked * keys.min(queries) / queries)
    }

    /// Of the forward pass, of one head: what is not masked.
    #[must_use]
    pub fn flops(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let sizes = (self.head + self.value) as f64;
        2.0 * self.pairs() * sizes
    }

    /// Scores of one head.
    #[must_use]
    pub const fn scores(&self) -> u64 {
        self.queries.saturating_mul(self.keys)
    }

    /// Elements of two bytes that unfused attention keeps of all heads: the softmax; with dropout, its mask
    /// and what is left, too (Korthikanti et al., 2205.05198, §4.1).
    #[must_use]
    pub const fn kept(&self) -> u64 {
        let scores = self.scores().saturating_mul(self.heads);
        if self.dropout { scores.saturating_mul(5) / 2 } else { scores }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_causal_mask_hides_half_and_of_a_window_little() {
        let all = Attention {
            queries: 1000,
            keys: 1000,
            causal: false,
            heads: 1,
            head: 64,
            value: 64,
            dropout: false,
        };
        assert!((all.pairs() - 1e6).abs() < 1.0);
        let causal = Attention { causal: true, ..all };
        assert!((causal.pairs() - 5e5).abs() < 1.0);
        let window = Attention { keys: 100, ..causal };
        assert!((window.pairs() - (1e5 - 5e3)).abs() < 1.0);
        assert!((causal.flops() - 2.0 * 5e5 * 128.0).abs() < 1.0);
    }
}
