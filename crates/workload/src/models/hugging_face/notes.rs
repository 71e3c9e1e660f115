//! What was assumed for a `config.json`, and which of its keys were passed over.

use super::config::{Config, FEED_FORWARD, KV_HEADS};
use crate::models::transformer::TransformerSpec;
use allrail_core::counted;

/// Keys that change neither sizes nor operations: beginnings, ends and whole names.
const HARMLESS: [&str; 44] = [
    super::pairs::ONE_TABLE,
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

/// For whoever reads the result. `positions` are the model's, where the length of a sample is taken from
/// them; `groups_heads` where its type has fewer heads of keys.
pub(super) fn notes(
    config: &Config<'_>,
    spec: &TransformerSpec,
    positions: Option<Option<u64>>,
    groups_heads: bool,
) -> Vec<String> {
    let absent = |names: &[&str]| {
        names.iter().all(|name| config.get(name).is_none_or(|(_, value)| value.is_null()))
    };
    let mut assumed = Vec::new();
    let sequence = spec.sequence_length;
    match positions {
        Some(None) => assumed.push(format!("{} a sample", counted(sequence, "token"))),
        Some(Some(many)) if many > sequence => assumed.push(format!(
            "{} a sample, of {many} positions (`workload.sequence_length`)",
            counted(sequence, "token")
        )),
        _ => {}
    }
    if absent(FEED_FORWARD) {
        let inner = spec.feed_forward.unwrap_or(spec.hidden.saturating_mul(4));
        assumed.push(format!("`{}` {inner}", FEED_FORWARD[0]));
    }
    let grouped = groups_heads && spec.latent.is_none();
    if grouped && spec.kv_heads.is_none() && absent(KV_HEADS) {
        assumed.push(format!("`{}` {}", KV_HEADS[0], spec.heads));
    }
    let mut filled: Vec<&str> = config.assumed.borrow().iter().copied().collect();
    // Pictures have three colours.
    filled.retain(|name| *name != "num_channels");
    for name in filled.into_iter().filter(|name| !FEED_FORWARD.contains(name)) {
        if let Some((_, value)) = config.value(&[name]) {
            assumed.push(format!("`{name}` {value}"));
        }
    }
    if spec.patch.is_none() && absent(&["tie_word_embeddings"]) {
        assumed.push(format!("`tie_word_embeddings` {}", spec.tied));
    }
    let asked = config.asked.borrow();
    let matters = |name: &&String| {
        let name = name.as_str();
        let harmless = HARMLESS
            .iter()
            .any(|one| if one.ends_with('_') { name.starts_with(one) } else { name == *one });
        !asked.contains(name)
            && !harmless
            && !HARMLESS_ENDS.iter().any(|end| name.ends_with(end))
            && !config.object[name].is_null()
    };
    let ignored: Vec<String> = config
        .object
        .keys()
        .filter(matters)
        .map(|name| {
            let value = &config.object[name];
            let short = value.is_number() || value.is_boolean() || value.is_string();
            if short { format!("`{name}` ({value})") } else { format!("`{name}`") }
        })
        .collect();
    let mut notes = Vec::new();
    if !assumed.is_empty() {
        notes.push(format!("its config.json leaves open, and assumed is: {}", assumed.join(", ")));
    }
    if !ignored.is_empty() {
        notes.push(format!("keys of its config.json that are not read: {}", ignored.join(", ")));
    }
    notes
}
