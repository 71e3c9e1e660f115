//! Models of several parts, of which the text model alone is read, and what is no transformer.

use serde_json::{Map as Object, Value, json};

/// Types of models with layers that are no attention.
pub(super) const OTHER: [&str; 24] = [
    "mamba",
    "mamba2",
    "falcon_mamba",
    "falcon_h1",
    "jamba",
    "bamba",
    "zamba",
    "zamba2",
    "nemotron_h",
    "granitemoehybrid",
    "recurrent_gemma",
    "rwkv",
    "xlstm",
    "lfm2",
    "lfm2_moe",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "kimi_linear",
    "olmo_hybrid",
    "minimax",
    "minimax_text_01",
];

/// Where the text model of several parts is.
const PARTS: [&str; 3] = ["text_config", "llm_config", "language_config"];

/// The text model of a `config.json` of several parts, and what to say of the rest; none where it is of
/// one part.
pub(super) fn part(object: &Object<String, Value>) -> Option<(Object<String, Value>, String)> {
    let (name, inner) =
        PARTS.iter().find_map(|name| Some((*name, object.get(*name)?.as_object()?)))?;
    let mut part = inner.clone();
    // Some files say it for the whole model alone.
    for key in ["tie_word_embeddings", "vocab_size"] {
        if let Some(value) = object.get(key).filter(|_| !part.contains_key(key)) {
            part.insert(key.to_owned(), value.clone());
        }
    }
    let mut assumed = Vec::new();
    for (key, value) in left_to_code(&part) {
        if !part.contains_key(key) {
            assumed.push(format!("`{key}` {value}"));
            part.insert(key.to_owned(), value);
        }
    }
    let rest: Vec<String> = object
        .keys()
        .filter(|key| key.ends_with("_config") && *key != name && *key != "quantization_config")
        .map(|key| format!("`{key}`"))
        .collect();
    let mut said = format!("of its config.json `{name}` is read");
    if !rest.is_empty() {
        said += &format!(", and not {}", rest.join(", "));
    }
    if !assumed.is_empty() {
        said += &format!("; assumed is, as its code has it, {}", assumed.join(", "));
    }
    Some((part, said))
}

/// Sizes that the files of a type leave out where they are its class's own.
fn left_to_code(part: &Object<String, Value>) -> Vec<(&'static str, Value)> {
    match part.get("model_type").and_then(Value::as_str) {
        Some("gemma3_text") => vec![
            ("num_attention_heads", json!(8)),
            ("num_key_value_heads", json!(4)),
            ("head_dim", json!(256)),
            ("vocab_size", json!(262_208)),
            ("max_position_embeddings", json!(131_072)),
        ],
        _ => Vec::new(),
    }
}
