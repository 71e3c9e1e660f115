//! Keys that decoders with experts read.

use serde_json::Value;

use super::families::{llama, olmo2, qwen};
use super::{Config, EXPERTS, FEED_FORWARD, wrong};
use crate::error::WorkloadError;
use crate::models::transformer::{ExpertsSpec, LatentSpec, TransformerSpec};

type Read = Result<(), WorkloadError>;

const TOP_K: &[&str] = &["num_experts_per_tok", "moe_k"];

pub(super) fn mixtral(
    config: &Config<'_>,
    spec: &mut TransformerSpec,
) -> Result<(), WorkloadError> {
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

pub(super) fn qwen_experts(
    config: &Config<'_>,
    spec: &mut TransformerSpec,
) -> Result<(), WorkloadError> {
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

pub(super) fn deepseek(
    config: &Config<'_>,
    spec: &mut TransformerSpec,
) -> Result<(), WorkloadError> {
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
    next_tokens(config, spec)?;
    let inner = config.needed(&["moe_intermediate_size"])?.min(1 << 22);
    spec.experts = Some(ExpertsSpec {
        count: config.small(EXPERTS)?,
        top_k: Some(config.small(&["num_experts_per_tok"])?),
        feed_forward: Some(inner),
        shared: shared(config, "n_shared_experts", Some(inner))?,
        first_dense: first_dense(config, "first_k_dense_replace")?,
        router_bias: config.text("model_type") != "deepseek_v2",
        ..ExpertsSpec::default()
    });
    Ok(())
}

/// The experts that most families have: a count, how many a token visits, one's inner width.
fn experts(config: &Config<'_>, inner: &[&str]) -> Result<ExpertsSpec, WorkloadError> {
    Ok(ExpertsSpec {
        count: config.small(EXPERTS)?,
        top_k: Some(config.small(TOP_K)?),
        feed_forward: Some(config.needed(inner)?.min(1 << 22)),
        ..ExpertsSpec::default()
    })
}

/// How many parts that all tokens visit, as one width.
fn shared(config: &Config<'_>, name: &str, inner: Option<u64>) -> Result<u64, WorkloadError> {
    Ok(config.size(&[name])?.unwrap_or(0).min(1 << 20) * inner.unwrap_or(0))
}

/// Experts and a shared one in every so many layers, and another width of the others.
pub(super) fn llama4(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    llama(config, spec)?;
    let one = experts(config, FEED_FORWARD)?;
    let every = match config.value(&["interleave_moe_layer_step"]) {
        Some(_) => config.small(&["interleave_moe_layer_step"])?,
        None => 1,
    };
    config.get("moe_layers");
    spec.feed_forward = config.size(&["intermediate_size_mlp"])?.or(spec.feed_forward);
    spec.experts =
        Some(ExpertsSpec { shared: one.feed_forward.unwrap_or(0), every: Some(every), ..one });
    Ok(())
}

/// Every map has a bias. Its layers alternate between a window and all tokens: all are counted.
pub(super) fn gpt_oss(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.biases.head = false;
    spec.biases.qkv = config.flag(&["attention_bias"], true);
    spec.biases.output = spec.biases.qkv;
    spec.experts = Some(ExpertsSpec { router_bias: true, ..experts(config, FEED_FORWARD)? });
    Ok(())
}

pub(super) fn minimax(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    olmo2(config, spec)?;
    config.flag(&["use_qk_norm"], true);
    spec.experts = Some(experts(config, FEED_FORWARD)?);
    Ok(())
}

pub(super) fn granite_experts(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    llama(config, spec)?;
    spec.experts = Some(experts(config, FEED_FORWARD)?);
    Ok(())
}

pub(super) fn olmo_experts(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    olmo2(config, spec)?;
    spec.experts = Some(experts(config, FEED_FORWARD)?);
    Ok(())
}

pub(super) fn glm_experts(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    llama(config, spec)?;
    spec.window = None;
    let norms = config.text("model_type") == "dots1";
    if config.flag(&["use_qk_norm"], norms) {
        spec.norms.query_key = spec.head().saturating_mul(2);
    }
    let one = experts(config, &["moe_intermediate_size"])?;
    spec.experts = Some(ExpertsSpec {
        shared: shared(config, "n_shared_experts", one.feed_forward)?,
        first_dense: first_dense(config, "first_k_dense_replace")?,
        router_bias: true,
        ..one
    });
    next_tokens(config, spec)
}

pub(super) fn ernie_experts(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    llama(config, spec)?;
    if config.flag(&["use_bias"], false) {
        spec.biases = super::families::ALL;
    }
    let one = experts(config, &["moe_intermediate_size"])?;
    let interval = config.size(&["moe_layer_interval"])?.unwrap_or(1);
    if interval > 1 {
        let hint = "describe the model as `transformer` instead";
        return Err(wrong("moe_layer_interval", interval, "only 1 is read", hint));
    }
    spec.experts = Some(ExpertsSpec {
        shared: shared(config, "moe_num_shared_experts", one.feed_forward)?,
        first_dense: first_dense(config, "moe_layer_start_index")?,
        router_bias: true,
        ..one
    });
    Ok(())
}

/// Sizes in objects of their own.
pub(super) fn dbrx(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    let number = |part: &str, name: &str| {
        let keys = config.get(part).map(|(_, value)| value);
        keys.and_then(|keys| keys.get(name)).and_then(Value::as_u64)
    };
    let needed = |name: &str| {
        number("ffn_config", name).ok_or_else(|| {
            wrong("ffn_config", name, "a model of this type needs it there", "such as 16")
        })
    };
    let count = needed("moe_num_experts")?;
    spec.kv_heads = number("attn_config", "kv_n_heads");
    spec.experts = Some(ExpertsSpec {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        top_k: Some(u32::try_from(needed("moe_top_k")?).unwrap_or(u32::MAX)),
        feed_forward: Some(needed("ffn_hidden_size")?),
        ..ExpertsSpec::default()
    });
    Ok(())
}

fn first_dense(config: &Config<'_>, name: &'static str) -> Result<u32, WorkloadError> {
    config.value(&[name]).map_or(Ok(0), |_| config.small(&[name]))
}

fn next_tokens(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    if config.value(&["num_nextn_predict_layers"]).is_some() {
        spec.next_tokens = config.small(&["num_nextn_predict_layers"])?;
    }
    Ok(())
}
