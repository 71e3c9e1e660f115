//! A transformer by its Hugging Face `config.json`.
//!
//! Families differ in what they call a size and in what they leave to code: whether the feed-forward
//! part is gated, which maps have biases, what the norms learn. Sizes are looked up under all their
//! names; what is left to code is in `families`, as the classes of `transformers` have it. The
//! tests hold the counts of parameters against published ones.
//!
//! A sample has as many tokens as the model has positions, 4,096 at most, where the workload does not
//! say it.

mod families;

use serde_json::{Map as Object, Value};

use families::FAMILIES;

use super::transformer::{Norms, TransformerSpec};
use crate::error::WorkloadError;

/// A `config.json`.
struct Config<'a>(&'a Object<String, Value>);

fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.model.hugging_face.{field}"), value, why, hint)
}

impl Config<'_> {
    fn value(&self, names: &[&str]) -> Option<(&str, &Value)> {
        let found = names.iter().find_map(|name| self.0.get_key_value(*name));
        found.map(|(name, value)| (name.as_str(), value)).filter(|(_, value)| !value.is_null())
    }

    fn size(&self, names: &[&str]) -> Result<Option<u64>, WorkloadError> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        let whole = value.as_u64().or_else(|| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            value.as_f64().filter(|v| *v >= 0.0 && v.fract() == 0.0 && *v < 1e15).map(|v| v as u64)
        });
        match whole {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, value, "it is not a whole number", "such as 4096")),
        }
    }

    fn needed(&self, names: &[&str]) -> Result<u64, WorkloadError> {
        self.size(names)?.ok_or_else(|| {
            let known = format!("it is also looked for as {}", names.join(", "));
            wrong(names[0], "absent", "a model of this type needs it", &known)
        })
    }

    fn small(&self, names: &[&str]) -> Result<u32, WorkloadError> {
        let number = self.needed(names)?;
        u32::try_from(number).map_err(|_| wrong(names[0], number, "it is too large", "such as 32"))
    }

    fn flag(&self, names: &[&str], otherwise: bool) -> bool {
        self.value(names).and_then(|(_, value)| value.as_bool()).unwrap_or(otherwise)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or("")
    }

    /// The first of `architectures`.
    fn architecture(&self) -> &str {
        let first = self.0.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or("")
    }

    /// Refuses a key that changes the model in a way that is not read.
    fn refuse(&self, name: &str, why: &str) -> Result<(), WorkloadError> {
        let empty = match self.0.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        };
        if empty {
            return Ok(());
        }
        Err(wrong(name, &self.0[name], why, "describe the model as `transformer` instead"))
    }
}

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "num_heads", "n_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv"];
const FEED_FORWARD: &[&str] =
    &["intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", "ffn_hidden_size"];
const POSITIONS: &[&str] =
    &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];

/// The transformer that a `config.json` describes.
///
/// # Errors
/// Its architecture is not known, a size is missing or no number, or a key changes the model in a
/// way that is not read.
pub fn transformer(object: &Object<String, Value>) -> Result<TransformerSpec, WorkloadError> {
    let config = Config(object);
    let kind = config.text("model_type");
    let found = FAMILIES.iter().find(|family| family.types.contains(&kind));
    let Some(family) = found else { return Err(unknown(&config)) };
    let positions = config.size(POSITIONS)?;
    let mut spec = TransformerSpec {
        layers: config.small(LAYERS)?,
        hidden: config.needed(HIDDEN)?,
        heads: config.needed(HEADS)?,
        kv_heads: config.size(KV_HEADS)?,
        head_size: config.size(&["head_dim", "d_kv"])?,
        feed_forward: config.size(FEED_FORWARD)?,
        gated: family.gated,
        vocabulary: config.needed(&["vocab_size"])?,
        sequence_length: positions.unwrap_or(4096).min(4096),
        tied: config.flag(&["tie_word_embeddings"], family.tied),
        biases: family.biases,
        norms: Norms { parameters: family.norm, ..Norms::default() },
        ..TransformerSpec::default()
    };
    (family.read)(&config, &mut spec)?;
    Ok(spec)
}

fn unknown(config: &Config<'_>) -> WorkloadError {
    let kind = config.text("model_type");
    if kind.is_empty() && !config.0.contains_key("architectures") {
        return wrong(
            "model_type",
            "absent",
            "this is no `config.json` of a transformer",
            "it needs `model_type`, such as \"llama\"",
        );
    }
    let mut known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.types).copied().collect();
    known.sort_unstable();
    let nested = if config.0.contains_key("text_config") {
        "it has a `text_config`: give that part alone; "
    } else {
        ""
    };
    wrong(
        "model_type",
        kind,
        &format!("the architecture ({}) is not known", config.architecture()),
        &format!("{nested}known are {}; or describe it as `transformer`", known.join(", ")),
    )
}
