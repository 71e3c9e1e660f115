//! Encoders with a decoder beside them: a row a type, and what no row can say.

use super::config::{Config, POSITIONS};
use super::row::Flag::{No, Yes};
use super::row::{BARE, EXPERTS, ExpertsRow, GPT, LLAMA, Positions, Read, Row};
use crate::models::transformer::TransformerSpec;

/// A BART: a table for both stacks and the head, learned places for each.
const BART: Row = Row { end_norms: [Yes, No], positions: Positions::Learned(2), read: pair, ..GPT };
/// A T5: no biases, learned distances.
const T5: Row = Row { gated: No, biases: BARE, read: t5, ..LLAMA };

pub(super) static PAIRS: &[Row] = &[
    Row { types: &["bart", "plbart"], ..BART },
    Row { types: &["mvp"], ..BART },
    Row { types: &["mbart"], end_norms: [Yes, Yes], ..BART },
    Row { types: &["blenderbot"], end_norms: [No, Yes], positions: Positions::Learned(0), ..BART },
    Row { types: &["blenderbot-small"], positions: Positions::Learned(0), ..BART },
    Row { types: &["pegasus"], end_norms: [No, Yes], positions: Positions::Learned(0), ..BART },
    Row { types: &["marian"], end_norms: [No, No], positions: Positions::Learned(0), ..BART },
    Row { types: &["m2m_100"], end_norms: [No, Yes], positions: Positions::Fixed, ..BART },
    Row {
        types: &["nllb-moe"],
        end_norms: [No, Yes],
        positions: Positions::Fixed,
        experts: Some(ExpertsRow { visits: Some(2), biases: true, ..EXPERTS }),
        read: |config, spec| {
            pair(config, spec)?;
            sparse(config, spec, |layer, step| (layer + 1).is_multiple_of(step))
        },
        ..BART
    },
    Row { types: &["t5", "mt5", "umt5", "pop2piano"], ..T5 },
    Row {
        types: &["switch_transformers"],
        experts: Some(ExpertsRow { visits: Some(1), ..EXPERTS }),
        read: |config, spec| {
            t5(config, spec)?;
            tables(config, spec);
            sparse(config, spec, |layer, step| step == 1 || layer % step == 1)
        },
        ..T5
    },
];

/// A key that no file has: two stacks share a table though the head, which is the whole's, has its own.
pub(super) const ONE_TABLE: &str = "_one_table";

/// Which layers of each stack have experts, by a step of its own.
fn sparse(config: &Config<'_>, spec: &mut TransformerSpec, with: fn(u32, u32) -> bool) -> Read {
    let stacks = [
        (0, spec.layers, "encoder_sparse_step"),
        (spec.layers, spec.decoder_layers, "decoder_sparse_step"),
    ];
    for (first, layers, name) in stacks {
        let step = config.small(&[name])?;
        let dense = (0..layers.min(1 << 14)).filter(|layer| step == 0 || !with(*layer, step));
        spec.dense_layers.extend(dense.map(|layer| first.saturating_add(layer)));
    }
    Ok(())
}

/// The decoder's sizes, where they are others.
fn pair(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.decoder_layers = config.small(&["decoder_layers"])?;
    spec.decoder_heads = config.size(&["decoder_attention_heads"])?;
    spec.decoder_feed_forward = config.size(&["decoder_ffn_dim"])?;
    tables(config, spec);
    Ok(())
}

/// One table for both stacks and the head, or one for each and a shared one that nobody reads.
fn tables(config: &Config<'_>, spec: &mut TransformerSpec) {
    if !spec.tied && !config.flag(&[ONE_TABLE], false) {
        spec.others = spec.hidden.saturating_mul(spec.vocabulary).saturating_mul(2);
    }
}

fn t5(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.decoder_layers = match config.value(&["num_decoder_layers"]) {
        Some(_) => config.small(&["num_decoder_layers"])?,
        None => spec.layers,
    };
    spec.gated = config.text("feed_forward_proj").starts_with("gated");
    let buckets = config.size(&["relative_attention_num_buckets"])?.unwrap_or(32);
    // A table for each stack; UMT5 has one for each layer.
    let tables = match config.text("model_type") {
        "umt5" => u64::from(spec.layers) + u64::from(spec.decoder_layers),
        _ => 2,
    };
    spec.relative_positions = tables * buckets.min(1 << 20);
    // Its class ties where a file does not say it, though it has no such field.
    spec.tied = config.flag(&["tie_word_embeddings"], true);
    if config.size(POSITIONS)?.is_none() {
        spec.sequence_length = 512;
    }
    Ok(())
}
