//! A transformer by its Hugging Face `config.json`.
//!
//! Families differ in what they call a size and in what they leave to code: whether the feed-forward
//! part is gated, which maps have biases, what the norms learn. Sizes are looked up under all their
//! names; what is left to code is in `families`, as the classes of `transformers` have it. The
//! tests hold the counts of parameters against published ones.
//!
//! A sample has as many tokens as the model has positions, 4,096 at most, where the workload does not
//! say it; a picture as many as it has patches, and one.

mod encoders;
mod experts;
mod families;
mod nested;

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map as Object, Value};

use families::FAMILIES;

use super::transformer::{Norms, TransformerSpec};
use crate::error::WorkloadError;

/// A `config.json`, and which of its keys were asked for.
struct Config<'a> {
    object: &'a Object<String, Value>,
    asked: RefCell<BTreeSet<&'a str>>,
}

/// Keys that change neither sizes nor operations: beginnings, ends and whole names.
const HARMLESS: [&str; 43] = [
    "_name_or_path",
    "_attn_implementation",
    "architectures",
    "auto_map",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "initializer_",
    "hidden_act",
    "activation",
    "rope_",
    "rotary_",
    "partial_rotary_factor",
    "max_window_layers",
    "original_max_position_embeddings",
    "use_cache",
    "pretraining_tp",
    "tokenizer_class",
    "task_specific_params",
    "id2label",
    "label2id",
    "gradient_checkpointing",
    "quantization_config",
    "output_",
    "return_dict",
    "problem_type",
    "scale_attn",
    "reorder_and_upcast_attn",
    "summary_",
    "is_decoder",
    "is_encoder_decoder",
    "router_aux_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "norm_topk_prob",
    "routed_scaling_factor",
    "scoring_func",
    "topk_method",
    "topk_group",
    "n_group",
    "ep_size",
    "position_embedding_type",
    "classifier_dropout",
];
const HARMLESS_ENDS: [&str; 9] = [
    "_token_id",
    "_dropout",
    "_pdrop",
    "_eps",
    "_epsilon",
    "dropout",
    "_softcapping",
    "_multiplier",
    "_scaling",
];

fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.model.hugging_face.{field}"), value, why, hint)
}

impl<'a> Config<'a> {
    /// A key with its value, which now counts as read.
    fn get(&self, name: &str) -> Option<(&'a String, &'a Value)> {
        let found = self.object.get_key_value(name)?;
        self.asked.borrow_mut().insert(found.0);
        Some(found)
    }

    /// What was assumed or passed over, for whoever reads the result. `positions` are the model's, where
    /// the length of a sample is taken from them; `groups_heads` where its family has fewer heads of keys.
    fn notes(
        &self,
        spec: &TransformerSpec,
        positions: Option<Option<u64>>,
        groups_heads: bool,
    ) -> Vec<String> {
        let absent = |names: &[&str]| self.value(names).is_none();
        let mut assumed = Vec::new();
        let sequence = spec.sequence_length;
        match positions {
            Some(None) => assumed.push(format!("{sequence} tokens a sample")),
            Some(Some(many)) if many > sequence => assumed.push(format!(
                "{sequence} tokens a sample, of {many} positions (`workload.sequence_length`)"
            )),
            _ => {}
        }
        if spec.feed_forward.is_none() && absent(FEED_FORWARD) {
            assumed.push(format!("`{}` {}", FEED_FORWARD[0], spec.hidden.saturating_mul(4)));
        }
        let grouped = groups_heads && spec.latent.is_none();
        if grouped && spec.kv_heads.is_none() && absent(KV_HEADS) {
            assumed.push(format!("`{}` {}", KV_HEADS[0], spec.heads));
        }
        if spec.patch.is_none() && absent(&["tie_word_embeddings"]) {
            assumed.push(format!("`tie_word_embeddings` {}", spec.tied));
        }
        let asked = self.asked.borrow();
        let matters = |name: &&String| {
            let name = name.as_str();
            let harmless = HARMLESS
                .iter()
                .any(|one| if one.ends_with('_') { name.starts_with(one) } else { name == *one });
            !asked.contains(name)
                && !harmless
                && !HARMLESS_ENDS.iter().any(|end| name.ends_with(end))
                && !self.object[name].is_null()
        };
        let ignored: Vec<String> = self
            .object
            .keys()
            .filter(matters)
            .map(|name| {
                let value = &self.object[name];
                let short = value.is_number() || value.is_boolean() || value.is_string();
                if short { format!("`{name}` ({value})") } else { format!("`{name}`") }
            })
            .collect();
        let mut notes = Vec::new();
        if !assumed.is_empty() {
            notes.push(format!(
                "its config.json leaves open, and assumed is: {}",
                assumed.join(", ")
            ));
        }
        if !ignored.is_empty() {
            notes
                .push(format!("keys of its config.json that are not read: {}", ignored.join(", ")));
        }
        notes
    }

    fn value(&self, names: &[&str]) -> Option<(&'a str, &'a Value)> {
        let found = names.iter().find_map(|name| self.get(name));
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

    /// The largest part that it leaves out anywhere.
    fn dropout(&self) -> Result<f64, WorkloadError> {
        let found = DROPOUT.iter().filter_map(|name| Some((name, self.value(&[name])?.1)));
        found.into_iter().try_fold(0.0, |most: f64, (name, value)| match value.as_f64() {
            Some(part) if (0.0..1.0).contains(&part) => Ok(most.max(part)),
            _ => Err(wrong(name, value, "it is no part of activations", "0 to below 1")),
        })
    }

    fn text(&self, name: &str) -> &'a str {
        self.get(name).and_then(|(_, value)| value.as_str()).unwrap_or("")
    }

    /// The first of `architectures`.
    fn architecture(&self) -> &'a str {
        let first = self.object.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or("")
    }

    /// Refuses a key that changes the model in a way that is not read.
    fn refuse(&self, name: &str, why: &str) -> Result<(), WorkloadError> {
        let empty = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            _ => false,
        };
        let Some((_, value)) = self.get(name).filter(|(_, value)| !empty(value)) else {
            return Ok(());
        };
        Err(wrong(name, value, why, "describe the model as `transformer` instead"))
    }
}

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
const HEADS: &[&str] =
    &["num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv"];
const FEED_FORWARD: &[&str] =
    &["intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", "ffn_hidden_size"];
const POSITIONS: &[&str] =
    &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
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
const EXPERTS: &[&str] =
    &["num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"];

/// The transformer that a `config.json` describes, for samples of `tokens` if the workload says it, and what was assumed or passed over for it.
///
/// # Errors
/// Its architecture is not known, a size is missing or no number, or a key changes the model in a
/// way that is not read.
pub fn transformer(
    object: &Object<String, Value>,
    tokens: Option<u32>,
) -> Result<(TransformerSpec, Vec<String>), WorkloadError> {
    if let Some((part, said)) = nested::part(object) {
        let (spec, mut notes) = transformer(&part, tokens)?;
        notes.insert(0, said);
        return Ok((spec, notes));
    }
    let config = Config { object, asked: RefCell::default() };
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
        vocabulary: config.size(&["vocab_size"])?.unwrap_or(0),
        sequence_length: positions.unwrap_or(4096).min(4096),
        tied: config.flag(&["tie_word_embeddings"], family.tied),
        biases: family.biases,
        norms: Norms { parameters: family.norm, ..Norms::default() },
        dropout: config.dropout()?,
        ..TransformerSpec::default()
    };
    (family.read)(&config, &mut spec)?;
    let words = spec.patch.is_none();
    if words {
        config.needed(&["vocab_size"])?;
    }
    let open = (tokens.is_none() && words).then_some(positions);
    let mut notes = config.notes(&spec, open, family.gated);
    // Of learned positions it is said where they are counted.
    let most = positions.filter(|_| spec.positions == 0).unwrap_or(0);
    notes.extend(TransformerSpec::too_long(tokens.map_or(0, u64::from), most));
    Ok((spec, notes))
}

fn unknown(config: &Config<'_>) -> WorkloadError {
    let kind = config.text("model_type");
    if kind.is_empty() && !config.object.contains_key("architectures") {
        return wrong(
            "model_type",
            "absent",
            "this is no `config.json` of a transformer",
            "it needs `model_type`, such as \"llama\"",
        );
    }
    if nested::OTHER.contains(&kind) {
        return wrong(
            "model_type",
            kind,
            "its layers, or some of them, are no attention (state space, linear, convolution)",
            "import a trace of it, or describe its layers in a file with `transformer`",
        );
    }
    let mut known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.types).copied().collect();
    known.sort_unstable();
    wrong(
        "model_type",
        kind,
        &format!("the architecture ({}) is not known", config.architecture()),
        &format!("known are {}; or describe it as `transformer`", known.join(", ")),
    )
}
