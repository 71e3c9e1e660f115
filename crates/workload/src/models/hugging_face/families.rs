//! What the code of each family of models fixes, and the keys that dense decoders alone read.

use serde_json::Value;

use super::encoders::{bert, distilbert, t5, vit};
use super::experts::{
    dbrx, deepseek, ernie_experts, glm_experts, gpt_oss, granite_experts, llama4, minimax, mixtral,
    olmo_experts, qwen_experts,
};
use super::{Config, POSITIONS};
use crate::error::WorkloadError;
use crate::models::transformer::{Biases, TransformerSpec};

/// What the code of a family of models fixes.
pub(super) struct Family {
    pub(super) types: &'static [&'static str],
    pub(super) gated: bool,
    /// Parameters of a norm per element.
    pub(super) norm: u64,
    /// Biases where no key says it.
    pub(super) biases: Biases,
    pub(super) tied: bool,
    pub(super) read: fn(&Config<'_>, &mut TransformerSpec) -> Result<(), WorkloadError>,
}

pub(super) const ALL: Biases = Biases { qkv: true, output: true, feed_forward: true, head: false };
pub(super) const NONE: Biases =
    Biases { qkv: false, output: false, feed_forward: false, head: false };
const QKV: Biases = Biases { qkv: true, ..NONE };

const fn family(
    types: &'static [&'static str],
    (gated, norm, biases, tied): (bool, u64, Biases, bool),
    read: fn(&Config<'_>, &mut TransformerSpec) -> Result<(), WorkloadError>,
) -> Family {
    Family { types, gated, norm, biases, tied, read }
}

/// (gated, norm, biases, tied) and what else.
pub(super) static FAMILIES: &[Family] = &[
    family(
        &["llama", "mistral", "ministral", "ministral3", "phi3", "granite", "smollm3", "seed_oss"],
        (true, 1, NONE, false),
        llama,
    ),
    family(&["internlm2", "internlm3", "iquestcoder", "helium"], (true, 1, NONE, false), llama),
    family(&["glm"], (true, 1, NONE, false), llama),
    family(&["glm4"], (true, 1, NONE, false), glm4),
    family(&["ernie4_5"], (true, 1, NONE, true), ernie),
    family(&["arcee", "apertus"], (false, 1, NONE, false), llama),
    family(&["olmo2", "olmo3"], (true, 1, NONE, false), olmo2),
    family(&["exaone4", "hunyuan_v1_dense"], (true, 1, NONE, false), query_key),
    family(&["nemotron"], (false, 2, NONE, false), llama),
    family(&["llama4_text"], (true, 1, NONE, false), llama4),
    family(&["gpt_oss"], (true, 1, ALL, false), gpt_oss),
    family(&["minimax_m2"], (true, 1, NONE, false), minimax),
    family(&["granitemoe"], (true, 1, NONE, true), granite_experts),
    family(&["olmoe", "flex_olmo"], (true, 1, NONE, false), olmo_experts),
    family(&["glm4_moe", "solar_open", "dots1"], (true, 1, NONE, false), glm_experts),
    family(&["ernie4_5_moe"], (true, 1, NONE, true), ernie_experts),
    family(&["dbrx"], (true, 1, NONE, false), dbrx),
    family(&["mixtral", "phimoe"], (true, 1, NONE, false), mixtral),
    family(&["qwen2", "qwen2_vl", "qwen2_5_vl"], (true, 1, QKV, false), qwen),
    family(&["qwen2_vl_text", "qwen2_5_vl_text"], (true, 1, QKV, false), qwen),
    family(&["qwen3", "qwen3_vl_text"], (true, 1, NONE, false), qwen),
    family(&["qwen2_moe"], (true, 1, QKV, false), qwen_experts),
    family(&["qwen3_moe", "qwen3_vl_moe_text"], (true, 1, NONE, false), qwen_experts),
    family(&["gemma"], (true, 1, NONE, true), llama),
    family(&["gemma2", "gemma3_text"], (true, 1, NONE, true), gemma2),
    family(&["stablelm"], (true, 2, NONE, false), stablelm),
    family(&["olmo"], (true, 0, NONE, false), llama),
    family(&["cohere", "cohere2"], (true, 1, NONE, true), cohere),
    family(&["phi"], (false, 2, Biases { head: true, ..ALL }, false), parallel),
    family(
        &["gptj", "codegen"],
        (false, 2, Biases { feed_forward: true, head: true, ..NONE }, false),
        parallel,
    ),
    family(&["gpt_neox"], (false, 2, ALL, false), gpt_neox),
    family(&["gpt2", "openai-gpt"], (false, 2, ALL, true), gpt2),
    family(&["gpt_bigcode"], (false, 2, ALL, true), gpt2),
    family(&["starcoder2"], (false, 2, ALL, true), starcoder),
    family(&["opt"], (false, 2, ALL, true), opt),
    family(&["bloom"], (false, 2, ALL, true), bloom),
    family(&["falcon", "RefinedWeb", "RefinedWebModel"], (false, 2, NONE, true), falcon),
    family(&["mpt"], (false, 1, NONE, true), mpt),
    family(&["gpt_neo"], (false, 2, Biases { qkv: false, ..ALL }, true), gpt2),
    family(&["biogpt"], (false, 2, ALL, true), opt),
    family(&["xglm"], (false, 2, ALL, true), sinusoids),
    family(&["persimmon"], (false, 2, ALL, false), query_key),
    family(
        &["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe_lite"],
        (true, 1, NONE, false),
        deepseek,
    ),
    family(&["bert", "roberta", "xlm-roberta", "camembert"], (false, 2, ALL, true), bert),
    family(&["distilbert"], (false, 2, ALL, true), distilbert),
    family(&["t5", "mt5"], (false, 1, NONE, true), t5),
    family(&["vit"], (false, 2, ALL, false), vit),
];

pub(super) fn llama(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let kind = config.text("model_type");
    let attention = config.flag(&["attention_bias", "qkv_bias"], false);
    spec.biases.qkv |= attention;
    // GLM's output has none.
    let output = attention && !kind.starts_with("glm");
    spec.biases.output |= config.flag(&["attention_out_bias"], output);
    if kind == "apertus" {
        spec.norms.query_key = 2 * spec.head();
    }
    spec.biases.feed_forward |= config.flag(&["mlp_bias"], false);
    spec.window = config.size(&["sliding_window"])?.filter(|window| *window > 0);
    Ok(())
}

fn glm4(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.norms.per_layer = 4;
    llama(config, spec)
}

fn ernie(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    if config.flag(&["use_bias"], false) {
        spec.biases = Biases { head: false, ..ALL };
    }
    llama(config, spec)
}

/// Norms over all heads of queries, and all of keys.
pub(super) fn olmo2(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    llama(config, spec)?;
    // Every fourth layer of OLMo 3 sees all tokens: all are counted.
    spec.window = None;
    let heads = spec.heads.saturating_add(spec.kv_heads.unwrap_or(spec.heads));
    spec.norms.query_key = heads.saturating_mul(spec.head());
    Ok(())
}

/// Norms of a head's queries and keys.
fn query_key(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    llama(config, spec)?;
    spec.window = None;
    if config.flag(&["use_qk_norm", "qk_layernorm"], true) {
        spec.norms.query_key = spec.head().saturating_mul(2 * spec.norms.parameters);
    }
    Ok(())
}

fn sinusoids(_: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.rotary = Some(false);
    Ok(())
}

pub(super) fn qwen(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let attention = config.flag(&["attention_bias"], false);
    spec.biases.qkv |= attention;
    spec.biases.output |= attention;
    let window = config.size(&["sliding_window"])?;
    if config.flag(&["use_sliding_window"], false) {
        spec.window = window;
    }
    let kind = config.text("model_type");
    if kind.starts_with("qwen3") {
        if !kind.contains("_moe") {
            spec.head_size = spec.head_size.or(Some(128));
        }
        spec.norms.query_key = spec.head().saturating_mul(2);
    }
    Ok(())
}

fn gemma2(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    // Its layers alternate between a window and all tokens: all are counted.
    spec.norms.per_layer = 4;
    if config.text("model_type") == "gemma3_text" {
        spec.norms.query_key = spec.head_size.unwrap_or(256).saturating_mul(2);
    }
    spec.head_size = spec.head_size.or(Some(256));
    Ok(())
}

fn stablelm(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    config.refuse("qk_layernorm", "its norms of queries and keys are not read")?;
    spec.biases.qkv = config.flag(&["use_qkv_bias"], false);
    spec.parallel_blocks = config.flag(&["use_parallel_residual"], false);
    if spec.parallel_blocks {
        spec.norms.per_layer = 1;
    }
    Ok(())
}

fn cohere(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    config.refuse("use_qk_norm", "its norms of queries and keys are not read")?;
    llama(config, spec)?;
    spec.parallel_blocks = true;
    spec.norms.per_layer = 1;
    Ok(())
}

fn parallel(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    config.refuse("qk_layernorm", "its norms of queries and keys are not read")?;
    spec.parallel_blocks = true;
    spec.norms.per_layer = 1;
    Ok(())
}

fn gpt_neox(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.parallel_blocks = config.flag(&["use_parallel_residual"], true);
    if !config.flag(&["attention_bias"], true) {
        (spec.biases.qkv, spec.biases.output) = (false, false);
    }
    Ok(())
}

fn gpt2(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.positions = config.size(POSITIONS)?.unwrap_or(1024);
    if config.text("model_type") == "gpt_bigcode" && config.flag(&["multi_query"], true) {
        spec.kv_heads = Some(1);
    }
    Ok(())
}

fn starcoder(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    if !config.flag(&["use_bias"], true) {
        spec.biases = NONE;
    }
    spec.window = config.size(&["sliding_window"])?;
    Ok(())
}

fn opt(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    // Two positions are kept for padding.
    spec.positions = config.needed(POSITIONS)?.saturating_add(2);
    spec.embedding_size = config.size(&["word_embed_proj_dim"])?;
    spec.norms.last = config.flag(&["do_layer_norm_before"], true)
        && !config.flag(&["_remove_final_layer_norm"], false);
    if !config.flag(&["enable_bias"], true) {
        spec.biases = NONE;
    }
    Ok(())
}

fn bloom(_: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.norms.embedding = true;
    // ALiBi.
    spec.rotary = Some(false);
    Ok(())
}

fn falcon(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let new = config.flag(&["new_decoder_architecture"], false);
    if !new {
        spec.kv_heads = config.flag(&["multi_query"], true).then_some(1);
    }
    spec.parallel_blocks = new || config.flag(&["parallel_attn"], true);
    if spec.parallel_blocks {
        let norms = config.size(&["num_ln_in_parallel_attn"])?;
        spec.norms.per_layer = norms.unwrap_or(if new { 2 } else { 1 });
    }
    if config.flag(&["bias"], false) {
        spec.biases = ALL;
    }
    spec.rotary = config.flag(&["alibi"], false).then_some(false);
    Ok(())
}

fn mpt(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    if !config.flag(&["no_bias"], true) {
        spec.biases = ALL;
        spec.norms.parameters = 2;
    }
    spec.feed_forward =
        config.size(&["expansion_ratio"])?.map(|ratio| spec.hidden.saturating_mul(ratio));
    let attention = config.get("attn_config").map(|(_, value)| value);
    let heads = attention.and_then(|keys| keys.get("kv_n_heads")).and_then(Value::as_u64);
    spec.kv_heads = heads;
    // ALiBi, or learned positions.
    let turned = attention.and_then(|keys| keys.get("rope")).and_then(Value::as_bool);
    spec.rotary = Some(turned.unwrap_or(false));
    Ok(())
}
