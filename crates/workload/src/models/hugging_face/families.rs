//! What the code of each family of models fixes, and the keys that it alone reads.

use serde_json::Value;

use super::{Config, EXPERTS, POSITIONS, wrong};
use crate::error::WorkloadError;
use crate::models::transformer::{Biases, ExpertsSpec, Head, LatentSpec, Norms, TransformerSpec};

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

const ALL: Biases = Biases { qkv: true, output: true, feed_forward: true, head: false };
const NONE: Biases = Biases { qkv: false, output: false, feed_forward: false, head: false };
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
    family(&["llama", "mistral", "phi3", "granite"], (true, 1, NONE, false), llama),
    family(&["mixtral", "phimoe"], (true, 1, NONE, false), mixtral),
    family(&["qwen2"], (true, 1, QKV, false), qwen),
    family(&["qwen3"], (true, 1, NONE, false), qwen),
    family(&["qwen2_moe"], (true, 1, QKV, false), qwen_experts),
    family(&["qwen3_moe"], (true, 1, NONE, false), qwen_experts),
    family(&["gemma"], (true, 1, NONE, true), llama),
    family(&["gemma2", "gemma3_text"], (true, 1, NONE, true), gemma2),
    family(&["stablelm"], (true, 2, NONE, false), stablelm),
    family(&["olmo"], (true, 0, NONE, false), llama),
    family(&["cohere"], (true, 1, NONE, true), cohere),
    family(&["phi"], (false, 2, Biases { head: true, ..ALL }, false), parallel),
    family(
        &["gptj"],
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
    family(&["deepseek_v2", "deepseek_v3"], (true, 1, NONE, false), deepseek),
    family(&["bert", "roberta", "xlm-roberta", "camembert"], (false, 2, ALL, true), bert),
    family(&["distilbert"], (false, 2, ALL, true), distilbert),
    family(&["t5", "mt5"], (false, 1, NONE, true), t5),
    family(&["vit"], (false, 2, ALL, false), vit),
];

fn llama(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let attention = config.flag(&["attention_bias"], false);
    spec.biases.qkv |= attention;
    spec.biases.output |= attention;
    spec.biases.feed_forward |= config.flag(&["mlp_bias"], false);
    spec.window = config.size(&["sliding_window"])?.filter(|window| *window > 0);
    Ok(())
}

fn mixtral(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    llama(config, spec)?;
    spec.experts = Some(ExpertsSpec {
        count: config.small(EXPERTS)?,
        top_k: Some(config.small(&["num_experts_per_tok"])?),
        ..ExpertsSpec::default()
    });
    if config.text("model_type") == "phimoe" {
        spec.norms.parameters = 2;
        spec.biases.head = config.flag(&["lm_head_bias"], false);
    }
    Ok(())
}

fn qwen(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let attention = config.flag(&["attention_bias"], false);
    spec.biases.qkv |= attention;
    spec.biases.output |= attention;
    let window = config.size(&["sliding_window"])?;
    if config.flag(&["use_sliding_window"], false) {
        spec.window = window;
    }
    if config.text("model_type").starts_with("qwen3") {
        spec.norms.query_key = spec.head_size.unwrap_or(128).saturating_mul(2);
        spec.head_size = spec.head_size.or(Some(128));
    }
    Ok(())
}

fn qwen_experts(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    qwen(config, spec)?;
    config.refuse("mlp_only_layers", "which layers have experts is not regular")?;
    let shared = config.size(&["shared_expert_intermediate_size"])?.unwrap_or(0);
    spec.experts = Some(ExpertsSpec {
        count: config.small(EXPERTS)?,
        top_k: Some(config.small(&["num_experts_per_tok"])?),
        feed_forward: Some(config.needed(&["moe_intermediate_size"])?),
        shared,
        shared_gate: shared > 0,
        every: config.size(&["decoder_sparse_step"])?.and_then(|every| u32::try_from(every).ok()),
        ..ExpertsSpec::default()
    });
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

fn deepseek(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    if config.size(&["moe_layer_freq"])?.unwrap_or(1) != 1 {
        let value = config.needed(&["moe_layer_freq"])?;
        let hint = "describe the model as `transformer` instead";
        return Err(wrong("moe_layer_freq", value, "only 1 is read", hint));
    }
    let rotary = config.needed(&["qk_rope_head_dim"])?;
    spec.latent = Some(LatentSpec {
        query: config.size(&["q_lora_rank"])?,
        key_value: config.needed(&["kv_lora_rank"])?,
        rotary,
    });
    spec.kv_heads = None;
    let size = config.needed(&["qk_nope_head_dim"])?.checked_add(rotary);
    spec.head_size = Some(size.unwrap_or(u64::MAX));
    spec.value_size = Some(config.needed(&["v_head_dim"])?);
    if config.value(&["num_nextn_predict_layers"]).is_some() {
        spec.next_tokens = config.small(&["num_nextn_predict_layers"])?;
    }
    let inner = config.needed(&["moe_intermediate_size"])?.min(1 << 22);
    spec.experts = Some(ExpertsSpec {
        count: config.small(EXPERTS)?,
        top_k: Some(config.small(&["num_experts_per_tok"])?),
        feed_forward: Some(inner),
        shared: config.size(&["n_shared_experts"])?.unwrap_or(0).min(1 << 20) * inner,
        first_dense: match config.value(&["first_k_dense_replace"]) {
            Some(_) => config.small(&["first_k_dense_replace"])?,
            None => 0,
        },
        router_bias: config.text("model_type") == "deepseek_v3",
        ..ExpertsSpec::default()
    });
    Ok(())
}

/// What follows an encoder.
fn encoder_head(config: &Config<'_>) -> Head {
    let name = config.architecture();
    if name.ends_with("ForPreTraining") {
        Head::Pretraining
    } else if name.ends_with("ForMaskedLM") || name.ends_with("WithLMHead") {
        Head::Masked
    } else if name.contains("For") {
        Head::None
    } else {
        Head::Pooler
    }
}

fn bert(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.positions = config.needed(POSITIONS)?;
    spec.token_types = config.size(&["type_vocab_size"])?.unwrap_or(2);
    spec.norms = Norms { embedding: true, last: false, ..Norms::default() };
    spec.head = encoder_head(config);
    spec.biases.head = true;
    Ok(())
}

fn distilbert(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.positions = config.needed(POSITIONS)?;
    spec.norms = Norms { embedding: true, last: false, ..Norms::default() };
    spec.head = match encoder_head(config) {
        Head::Masked => Head::Masked,
        _ => Head::None,
    };
    spec.biases.head = true;
    Ok(())
}

fn vit(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    let (image, side) = (config.needed(&["image_size"])?, config.needed(&["patch_size"])?);
    if side == 0 || image < side || image > 1 << 16 {
        let hint = "patches of 16 x 16 pixels cover a picture of 224 x 224";
        return Err(wrong("patch_size", side, "no patch fits the picture", hint));
    }
    let colours = config.size(&["num_channels"])?.unwrap_or(3).min(1 << 20);
    spec.patch = Some(side * side * colours);
    // A learned token stands before the patches.
    spec.token_types = 1;
    spec.positions = (image / side).pow(2) + 1;
    spec.sequence_length = spec.positions;
    spec.biases.qkv = config.flag(&["qkv_bias"], true);
    let name = config.architecture();
    (spec.head, spec.vocabulary) = if name.ends_with("ForImageClassification") {
        let labels = config.get("id2label").and_then(|(_, names)| names.as_object());
        let labels = labels.map(|names| names.len() as u64);
        spec.biases.head = true;
        (Head::Classifier, labels.or(config.size(&["num_labels"])?).unwrap_or(2))
    } else if name.contains("For") {
        let hint = "describe the model as `transformer` instead";
        return Err(wrong("architectures", name, "what follows its last layer is not read", hint));
    } else {
        (Head::Pooler, 0)
    };
    Ok(())
}

fn t5(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    spec.decoder_layers = match config.value(&["num_decoder_layers"]) {
        Some(_) => config.small(&["num_decoder_layers"])?,
        None => spec.layers,
    };
    spec.gated = config.text("feed_forward_proj").starts_with("gated");
    let buckets = config.size(&["relative_attention_num_buckets"])?.unwrap_or(32);
    spec.relative_positions = 2 * buckets.min(1 << 20);
    if config.size(POSITIONS)?.is_none() {
        spec.sequence_length = 512;
    }
    Ok(())
}
