//! A row of the table makes a transformer of a file's sizes.

use super::config::{Config, POSITIONS};
use super::ends::ends;
use super::experts::{experts, latent};
use super::row::{Positions, QueryKey, Read, Row};
use crate::models::transformer::{Biases, Norms, TransformerSpec};

/// What the row alone decides, of a model whose sizes are read.
pub(super) fn apply(row: &Row, config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.gated = config.has(row.gated);
    let [qkv, output, feed_forward, head] = row.biases.map(|flag| config.has(flag));
    spec.biases = Biases { qkv, output, feed_forward, head, ..Biases::default() };
    let [embedding, last] = row.end_norms.map(|flag| config.has(flag));
    spec.norms =
        Norms { per_layer: row.norms, parameters: row.norm, embedding, last, ..Norms::default() };
    spec.parallel_blocks = config.has(row.parallel);
    if spec.parallel_blocks {
        spec.norms.per_layer = spec.norms.per_layer.min(1);
    }
    if row.rounded {
        let head = spec.hidden / spec.heads.max(1);
        spec.head_size = spec.head_size.or(Some(head).filter(|head| *head > 0));
    }
    let (heads, kv) = (spec.heads, spec.kv_heads.unwrap_or(spec.heads));
    let normed = match row.query_key {
        QueryKey::Head(flag) if config.has(flag) => 2,
        QueryKey::All(flag) if config.has(flag) => heads.saturating_add(kv),
        _ => 0,
    };
    spec.norms.query_key = normed.saturating_mul(spec.head()).saturating_mul(row.norm);
    match row.positions {
        Positions::Rotary => {}
        Positions::Learned(more) => {
            spec.positions = config.needed(POSITIONS)?.saturating_add(more);
        }
        Positions::Fixed => spec.rotary = Some(false),
    }
    // Where layers alternate between a window and all tokens, all are counted.
    config.get("sliding_window");
    let slide = config.all_slide();
    if config.has(row.window) && slide {
        spec.window = config.size(&["sliding_window"])?.filter(|window| *window > 0);
    }
    if row.latent {
        latent(config, spec)?;
    }
    if let Some(table) = row.experts {
        experts(config, spec, table)?;
    }
    ends(config, spec, row.ends)?;
    (row.read)(config, spec)
}
