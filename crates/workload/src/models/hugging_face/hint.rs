//! What is said of a type that is not read, with a hint that works.

use serde_json::{Map as Object, Value};

use super::nested::OTHER;
use super::{Config, EXPERTS, one, wrong};
use crate::error::WorkloadError;

/// The error for a type that is in no row.
pub(super) fn unknown(config: &Config<'_>) -> WorkloadError {
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
        return wrong(
            "model_type",
            kind,
            "its layers, or some of them, are no attention (state space, linear, convolution)",
            "import a trace of it, or describe its layers in a file with `transformer`",
        );
    }
    let hint = match like(config.object) {
        Some(name) => format!(
            "where its layers are those of a `{name}`, set `model_type` to `{name}` in the file; or describe it \
             as `transformer`"
        ),
        None => "describe its layers in a file with `transformer`".to_owned(),
    };
    let why = format!("the architecture ({}) is not known", config.architecture());
    wrong("model_type", kind, &why, &hint)
}

/// The type whose keys the file has, if the file can be read as one.
fn like(object: &Object<String, Value>) -> Option<&'static str> {
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
    let (spec, _) = one(&renamed, None, false).ok()?;
    spec.model("", None).ok().map(|_| name)
}
