//! What the code of a model type fixes, as data: one row for types that differ in nothing else.

use allrail_core::FieldError;

use super::config::Config;
use crate::models::transformer::TransformerSpec;

use Flag::{Any, Key, No, Yes};

pub(super) type Read = Result<(), FieldError>;

/// Whether a part is there: by the code of the type, or by a key of its file.
#[derive(Clone, Copy)]
pub(super) enum Flag {
    No,
    Yes,
    /// Where the key is true.
    Key(&'static str),
    /// Where any of the keys is true.
    Any(&'static [&'static str]),
}

/// Norms of queries and keys.
#[derive(Clone, Copy)]
pub(super) enum QueryKey {
    /// Of each head, with the same numbers for all heads.
    Head(Flag),
    /// Over all heads.
    All(Flag),
}

/// How a token's place is told.
#[derive(Clone, Copy)]
pub(super) enum Positions {
    Rotary,
    /// A learned table, with so many rows more than the key says.
    Learned(u64),
    /// By nothing that is learned and nothing that turns queries: ALiBi, sinusoids, none.
    Fixed,
}

/// What comes behind the last layer, beside what `architectures` says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    Words,
    /// An encoder: words that were masked, or nothing; a pooler only where `architectures` names neither.
    Encoder {
        pooler: bool,
    },
    Picture {
        pooler: bool,
    },
}

/// Which parts all tokens visit beside the experts.
#[derive(Clone, Copy)]
pub(super) enum Shared {
    None,
    /// So many of an expert's width, by the first key that is there.
    Count(&'static [&'static str]),
    /// Of a width of its own.
    Width(&'static str),
    /// One of an expert's width.
    One,
}

/// Experts of a type.
#[derive(Clone, Copy)]
pub(super) struct ExpertsRow {
    /// An expert's inner width.
    pub(super) inner: &'static [&'static str],
    pub(super) shared: Shared,
    pub(super) shared_gate: bool,
    /// Whether an expert's maps have biases.
    pub(super) biases: bool,
    /// A learned number per expert in the router (buffers are none).
    pub(super) router_bias: bool,
    /// How many a token visits, where no key says it.
    pub(super) visits: Option<u32>,
    /// So many layers at the beginning have none.
    pub(super) first_dense: &'static [&'static str],
    /// One layer in so many has experts.
    pub(super) every: &'static [&'static str],
}

pub(super) const EXPERTS: ExpertsRow = ExpertsRow {
    inner: super::config::FEED_FORWARD,
    shared: Shared::None,
    shared_gate: false,
    biases: false,
    router_bias: false,
    visits: None,
    first_dense: &[],
    every: &[],
};

/// A row of the table.
pub(super) struct Row {
    pub(super) types: &'static [&'static str],
    pub(super) gated: Flag,
    /// Parameters of a norm per element.
    pub(super) norm: u64,
    /// Norms of a layer.
    pub(super) norms: u64,
    /// A norm behind the embedding, and one behind the last layer.
    pub(super) end_norms: [Flag; 2],
    /// Biases: of queries, keys and values; of attention's output; of the feed-forward part; of the head.
    pub(super) biases: [Flag; 4],
    pub(super) query_key: QueryKey,
    pub(super) parallel: Flag,
    pub(super) positions: Positions,
    /// Whether heads need not divide the width: what is left over is no head's.
    pub(super) rounded: bool,
    /// Whether `sliding_window` holds for every layer.
    pub(super) window: Flag,
    pub(super) latent: bool,
    pub(super) experts: Option<ExpertsRow>,
    pub(super) ends: Ends,
    /// What else there is to it.
    pub(super) read: fn(&Config<'_>, &mut TransformerSpec) -> Read,
}

pub(super) fn nothing(_: &Config<'_>, _: &mut TransformerSpec) -> Read {
    Ok(())
}

/// A llama.
pub(super) const LLAMA: Row = Row {
    types: &[],
    gated: Yes,
    norm: 1,
    norms: 2,
    end_norms: [No, Yes],
    biases: [Key("attention_bias"), Key("attention_bias"), Key("mlp_bias"), No],
    query_key: QueryKey::Head(No),
    parallel: No,
    positions: Positions::Rotary,
    rounded: false,
    window: No,
    latent: false,
    experts: None,
    ends: Ends::Words,
    read: nothing,
};

/// A GPT: plain feed-forward parts, norms and maps with biases.
pub(super) const GPT: Row = Row {
    gated: No,
    norm: 2,
    biases: [Yes, Yes, Yes, No],
    positions: Positions::Learned(0),
    ..LLAMA
};

/// Nothing has a bias.
pub(super) const BARE: [Flag; 4] = [No; 4];

impl Config<'_> {
    pub(super) fn has(&self, flag: Flag) -> bool {
        match flag {
            No => false,
            Yes => true,
            Key(name) => self.flag(&[name], false),
            Any(names) => names.iter().any(|name| self.flag(&[name], false)),
        }
    }
}
