//! A transformer by its Hugging Face `config.json`.
//!
//! Families differ in what they call a size and in what they leave to code: whether the feed-forward
//! part is gated, which maps have biases, what the norms learn. Sizes are looked up under all their
//! names; what is left to code is data: a row a type in `decoders`, `mixtures`, `encoders` and `pairs`, and what
//! the classes of `transformers` fill in where a file says nothing in `defaults`. The tests hold the counts of
//! parameters against published ones, `benches/hugging_face` against those of the classes.
//!
//! A sample has as many tokens as the model has positions, 4,096 at most, where the workload does not
//! say it; a picture as many as it has patches, and one.

mod apply;
mod config;
mod decoders;
mod defaults;
mod encoders;
mod ends;
mod experts;
mod hint;
mod mixtures;
mod nested;
mod notes;
mod pairs;
mod row;

use allrail_core::FieldError;
use serde_json::{Map as Object, Value};

use config::{Config, FEED_FORWARD, HEADS, HIDDEN, KV_HEADS, LAYERS, POSITIONS};
use row::Row;

use super::transformer::TransformerSpec;

/// Every row of the table.
fn rows() -> impl Iterator<Item = &'static Row> {
    let decoders = decoders::DECODERS.iter().chain(mixtures::MIXTURES);
    decoders.chain(encoders::ENCODERS).chain(pairs::PAIRS)
}

/// The model types that are read, in alphabetical order.
#[must_use]
pub fn types() -> Vec<&'static str> {
    let mut types: Vec<&str> = rows().flat_map(|row| row.types).copied().collect();
    types.sort_unstable();
    types
}

/// The transformer that a `config.json` describes, for samples of `tokens` if the workload says it, and what was assumed or passed over for it.
///
/// # Errors
/// Its architecture is not known, a size is missing or no number, or a key changes the model in a
/// way that is not read.
pub fn transformer(
    object: &Object<String, Value>,
    tokens: Option<u32>,
) -> Result<(TransformerSpec, Vec<String>), FieldError> {
    if let Some((part, said)) = nested::part(object) {
        let (spec, mut notes) = one(&part, tokens, true)?;
        notes.insert(0, said);
        return Ok((spec, notes));
    }
    one(object, tokens, false)
}

/// A model of one part. What is nested in another leaves sizes out that are its class's.
fn one(
    object: &Object<String, Value>,
    tokens: Option<u32>,
    nested: bool,
) -> Result<(TransformerSpec, Vec<String>), FieldError> {
    let kind = object.get("model_type").and_then(Value::as_str).unwrap_or("");
    let config = Config::new(object, defaults::of(kind));
    config.get("model_type");
    let found = rows().find(|row| row.types.contains(&kind));
    let Some(row) = found else { return Err(hint::unknown(&config, nested, is_read)) };
    if !nested {
        config.written(LAYERS)?;
        config.written(HIDDEN)?;
    }
    let positions = config.size(POSITIONS)?;
    let mut spec = TransformerSpec {
        layers: config.small(LAYERS)?,
        hidden: config.needed(HIDDEN)?,
        heads: config.needed(HEADS)?,
        kv_heads: config.size(KV_HEADS)?,
        head_size: config.size(&["head_dim", "d_kv", "dim_head", "kv_channels"])?,
        feed_forward: config.size(FEED_FORWARD)?,
        vocabulary: config.size(&["vocab_size"])?.unwrap_or(0),
        sequence_length: positions.unwrap_or(4096).min(4096),
        tied: config.flag(&["tie_word_embeddings"], false),
        dropout: config.dropout()?,
        ..TransformerSpec::default()
    };
    apply::apply(row, &config, &mut spec)?;
    let words = spec.patch.is_none();
    if words {
        config.needed(&["vocab_size"])?;
    }
    let open = (tokens.is_none() && words).then_some(positions);
    let groups = matches!(row.gated, row::Flag::Yes);
    let mut notes = notes::notes(&config, &spec, open, groups);
    // Of learned positions it is said where they are counted.
    let most = positions.filter(|_| spec.positions == 0).unwrap_or(0);
    notes.extend(TransformerSpec::too_long(tokens.map_or(0, u64::from), most));
    Ok((spec, notes))
}

/// Whether the file describes a model.
fn is_read(object: &Object<String, Value>) -> bool {
    one(object, None, false).is_ok_and(|(spec, _)| spec.model("", None).is_ok())
}
