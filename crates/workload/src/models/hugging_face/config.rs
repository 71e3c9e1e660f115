//! A `config.json` with what its class fills in, and which of its keys were asked for.

use std::cell::RefCell;
use std::collections::BTreeSet;

use allrail_core::FieldError;
use serde_json::{Map as Object, Value};

pub(super) const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
pub(super) const LAYERS: &[&str] =
    &["num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"];
pub(super) const HEADS: &[&str] = &[
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "attention_heads",
    "encoder_attention_heads",
];
pub(super) const KV_HEADS: &[&str] =
    &["num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"];
pub(super) const FEED_FORWARD: &[&str] = &[
    "intermediate_size",
    "n_inner",
    "ffn_dim",
    "d_ff",
    "dff",
    "hidden_dim",
    "ffn_hidden_size",
    "encoder_ffn_dim",
];
pub(super) const POSITIONS: &[&str] =
    &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
pub(super) const EXPERTS: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];

const DROPOUT: [&str; 9] = [
    "dropout",
    "dropout_rate",
    "hidden_dropout",
    "hidden_dropout_prob",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "resid_pdrop",
    "attn_pdrop",
    "embd_pdrop",
];

/// A `config.json`, and which of its keys were asked for.
pub(super) struct Config<'a> {
    pub(super) object: &'a Object<String, Value>,
    /// What the class of its type fills in where the file says nothing.
    defaults: Option<&'a Object<String, Value>>,
    pub(super) asked: RefCell<BTreeSet<&'a str>>,
    /// Sizes that were filled in so.
    pub(super) assumed: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Config<'a> {
    pub(super) fn new(
        object: &'a Object<String, Value>,
        defaults: Option<&'a Object<String, Value>>,
    ) -> Self {
        Self { object, defaults, asked: RefCell::default(), assumed: RefCell::default() }
    }

    /// A key of the file with its value, which now counts as read.
    pub(super) fn get(&self, name: &str) -> Option<(&'a String, &'a Value)> {
        let found = self.object.get_key_value(name)?;
        self.asked.borrow_mut().insert(found.0);
        Some(found)
    }

    /// The first of the names that the file has, or else the class.
    pub(super) fn value(&self, names: &[&str]) -> Option<(&'a str, &'a Value)> {
        let found = names.iter().find_map(|name| self.get(name)).or_else(|| {
            let found = names.iter().find_map(|name| self.defaults?.get_key_value(*name))?;
            if found.1.is_number() {
                self.assumed.borrow_mut().insert(found.0);
            }
            Some(found)
        });
        found.map(|(name, value)| (name.as_str(), value)).filter(|(_, value)| !value.is_null())
    }

    pub(super) fn size(&self, names: &[&str]) -> Result<Option<u64>, FieldError> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        whole(name, value).map(Some)
    }

    pub(super) fn needed(&self, names: &[&str]) -> Result<u64, FieldError> {
        self.size(names)?.ok_or_else(|| absent(names))
    }

    pub(super) fn small(&self, names: &[&str]) -> Result<u32, FieldError> {
        let number = self.needed(names)?;
        u32::try_from(number).map_err(|_| wrong(names[0], number, "it is too large", "such as 32"))
    }

    /// A size that the file has to say itself.
    pub(super) fn written(&self, names: &[&str]) -> Result<(), FieldError> {
        let found = names.iter().find_map(|name| self.get(name));
        found.filter(|(_, value)| !value.is_null()).map(|_| ()).ok_or_else(|| absent(names))
    }

    pub(super) fn flag(&self, names: &[&str], otherwise: bool) -> bool {
        self.value(names).and_then(|(_, value)| value.as_bool()).unwrap_or(otherwise)
    }

    pub(super) fn text(&self, name: &str) -> &'a str {
        self.value(&[name]).and_then(|(_, value)| value.as_str()).unwrap_or("")
    }

    /// The largest part that it leaves out anywhere.
    pub(super) fn dropout(&self) -> Result<f64, FieldError> {
        let found = DROPOUT.iter().filter_map(|name| {
            let (_, value) = self.get(name).filter(|(_, value)| !value.is_null())?;
            Some((name, value))
        });
        found.into_iter().try_fold(0.0, |most: f64, (name, value)| match value.as_f64() {
            Some(part) if (0.0..1.0).contains(&part) => Ok(most.max(part)),
            _ => Err(wrong(name, value, "it is no part of activations", "0 to below 1")),
        })
    }

    /// The first of `architectures`.
    pub(super) fn architecture(&self) -> &'a str {
        let first = self.object.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or("")
    }

    /// Whether no layer is said to see all tokens.
    pub(super) fn all_slide(&self) -> bool {
        let kinds = self.get("layer_types").and_then(|(_, value)| value.as_array());
        kinds.is_none_or(|kinds| !kinds.iter().any(|kind| kind == "full_attention"))
    }
}

fn absent(names: &[&str]) -> FieldError {
    let known = format!("it is also looked for as {}", names.join(", "));
    wrong(names[0], "absent", "a model of this type needs it", &known)
}

fn whole(name: &str, value: &Value) -> Result<u64, FieldError> {
    let whole = value.as_u64().or_else(|| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        value.as_f64().filter(|v| *v >= 0.0 && v.fract() == 0.0 && *v < 1e15).map(|v| v as u64)
    });
    whole.ok_or_else(|| wrong(name, value, "it is not a whole number", "such as 4096"))
}

pub(super) fn wrong(
    field: &str,
    value: impl std::fmt::Display,
    why: &str,
    hint: &str,
) -> FieldError {
    FieldError::new(format!("workload.model.hugging_face.{field}"), value, why, hint)
}
