//! Models of several parts, of which the text model alone is read, and what is no transformer.

use serde_json::{Map as Object, Value, json};

use super::defaults;
use super::pairs::ONE_TABLE;

/// Types of models with layers that are no attention.
pub(super) const OTHER: [&str; 39] = [
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
    "lfm3",
    "qwen3_next",
    "qwen3_5",
    "qwen3_5_text",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen4_exp",
    "qwen4_exp_text",
    "kimi_linear",
    "olmo_hybrid",
    "minimax",
    "minimax_text_01",
    "bailing_hybrid",
    "lara_mini",
    "zaya",
    "reformer",
    "fnet",
    "convbert",
    "inkling_text",
    "inkling2_text",
    "inkling2_loop_text",
    "glm5_next",
    "hrm_text",
    "dory",
];

/// Where the text model of several parts is.
const PARTS: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

/// The text model of a `config.json` of several parts, and what to say of the rest; none where it is of
/// one part.
pub(super) fn part(object: &Object<String, Value>) -> Option<(Object<String, Value>, String)> {
    let whole = object.get("model_type").and_then(Value::as_str).unwrap_or("");
    let known = defaults::part(whole);
    let (name, inner) =
        PARTS.iter().find_map(|name| Some((*name, object.get(*name)?.as_object()?)))?;
    let mut part = inner.clone();
    let mut assumed = Vec::new();
    if let Some(known) = known.filter(|known| known.key == name) {
        if !part.contains_key("model_type") {
            part.insert("model_type".to_owned(), json!(known.kind));
            assumed.push(format!("`model_type` \"{}\"", known.kind));
        }
        // What this model fills in of its text model otherwise than that model's own class.
        if part.get("model_type").and_then(Value::as_str) == Some(&known.kind) {
            for (key, value) in &known.with {
                if !part.contains_key(key) {
                    part.insert(key.clone(), value.clone());
                    assumed.push(format!("`{key}` {value}"));
                }
            }
        }
    }
    // The class of the whole ties its tables, and so says it.
    let own = part.get("tie_word_embeddings").and_then(Value::as_bool);
    let said = object.get("tie_word_embeddings").and_then(Value::as_bool);
    let by_class = || {
        let kind = part.get("model_type").and_then(Value::as_str)?;
        defaults::of(kind)?.get("tie_word_embeddings")?.as_bool()
    };
    let one_table = own.or_else(by_class) == Some(true);
    let tied = match known {
        Some(known) => {
            let own = own.or_else(by_class);
            let whole = known.tied.map(|tied| said.unwrap_or(tied));
            let tied = whole.or(own).unwrap_or(false) || (known.forwards && own == Some(true));
            if said.is_none() && own != Some(tied) {
                assumed.push(format!("`tie_word_embeddings` {tied}"));
            }
            Some(tied)
        }
        None => said.or(own),
    };
    if let Some(tied) = tied {
        part.insert("tie_word_embeddings".to_owned(), json!(tied));
    }
    // The whole says it of its head; what two stacks share, the text model's class says.
    if one_table && tied == Some(false) {
        part.insert(ONE_TABLE.to_owned(), json!(true));
    }
    // `LlavaModel` ends with its text model's last layer.
    if let Some(names) = object.get("architectures").filter(|_| !part.contains_key("architectures"))
    {
        part.insert("architectures".to_owned(), names.clone());
    }
    if let Some(value) = object.get("vocab_size").filter(|_| !part.contains_key("vocab_size")) {
        part.insert("vocab_size".to_owned(), value.clone());
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
        said += &format!("; assumed is, as its class has it, {}", assumed.join(", "));
    }
    Some((part, said))
}
