//! What is said of a type that is not read, with a hint that works.

use allrail_core::FieldError;
use serde_json::{Map as Object, Value};

use super::config::{Config, EXPERTS, wrong};
use super::defaults;
use super::nested::OTHER;

/// What to do about a model that no keys describe.
const OTHERWISE: &str = "import a profile of a step (`allrail import rank0.json -o out`), or give its layers by \
                         numbers (`model: {layers: [...]}`)";

/// The error for a type that is in no row; `nested` is a model within another, and `is_read` tries a file
/// under another type.
pub(super) fn unknown(
    config: &Config<'_>,
    nested: bool,
    is_read: fn(&Object<String, Value>) -> bool,
) -> FieldError {
    let kind = config.text("model_type");
    if kind.is_empty() && !config.object.contains_key("architectures") {
        return wrong(
            "model_type",
            "absent",
            "this is no `config.json` of a transformer",
            "it needs `model_type`, such as \"llama\"",
        );
    }
    if OTHER.contains(&kind) {
        let why =
            "its layers, or some of them, are no attention (state space, linear, convolution)";
        return wrong("model_type", kind, why, OTHERWISE);
    }
    // Whoever trusts another type's count of a class that is known to differ is misled.
    if defaults::is_other(kind) {
        let why = "its class in `transformers` has layers or ends of a kind that is not read";
        return wrong("model_type", kind, why, OTHERWISE);
    }
    let hint = match like(config.object, is_read) {
        Some(name) => {
            let whose = if nested { "its text model's " } else { "" };
            format!(
                "where its layers are those of a `{name}`, set {whose}`model_type` to `{name}` in the file; or give \
                 its sizes (`model: {{transformer: {{...}}}}`)"
            )
        }
        None => OTHERWISE.to_owned(),
    };
    let why = format!("the architecture ({}) is not known", config.architecture());
    wrong("model_type", kind, &why, &hint)
}

/// The type whose keys the file has, if the file can be read as one.
fn like(
    object: &Object<String, Value>,
    is_read: fn(&Object<String, Value>) -> bool,
) -> Option<&'static str> {
    let has =
        |names: &[&str]| names.iter().any(|name| object.get(*name).is_some_and(|v| !v.is_null()));
    let name = if has(&["kv_lora_rank"]) {
        "deepseek_v3"
    } else if has(EXPERTS) && has(&["moe_intermediate_size"]) {
        "qwen3_moe"
    } else if has(EXPERTS) {
        "mixtral"
    } else if has(&["n_embd"]) {
        "gpt2"
    } else if has(&["decoder_layers"]) {
        "bart"
    } else if has(&["type_vocab_size"]) {
        "bert"
    } else {
        "llama"
    };
    let mut renamed = object.clone();
    renamed.insert("model_type".to_owned(), name.into());
    is_read(&renamed).then_some(name)
}
