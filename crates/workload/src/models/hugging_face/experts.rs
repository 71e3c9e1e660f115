//! Experts and latent attention, by the keys of a file.

use serde_json::Value;

use super::config::{Config, EXPERTS, wrong};
use super::row::{ExpertsRow, Read, Shared};
use crate::models::transformer::{ExpertsSpec, IndexSpec, LatentSpec, TransformerSpec};

const TOP_K: &[&str] =
    &["num_experts_per_tok", "moe_k", "moe_topk", "num_experts_per_token", "top_k_experts"];

/// Queries, keys and values through a narrow waist (DeepSeek-V2), and which tokens are seen (V3.2).
pub(super) fn latent(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    let rotary = config.needed(&["qk_rope_head_dim"])?;
    let index = match config.size(&["index_n_heads"])? {
        Some(heads) => Some(IndexSpec {
            heads,
            size: config.needed(&["index_head_dim"])?,
            tokens: config.needed(&["index_topk"])?,
        }),
        None => None,
    };
    spec.latent = Some(LatentSpec {
        query: config.size(&["q_lora_rank"])?,
        key_value: config.needed(&["kv_lora_rank"])?,
        rotary,
        index,
    });
    spec.kv_heads = None;
    let size = config.needed(&["qk_nope_head_dim"])?.checked_add(rotary);
    spec.head_size = Some(size.unwrap_or(u64::MAX));
    spec.value_size = Some(config.needed(&["v_head_dim"])?);
    Ok(())
}

/// The experts of a model, or none where the file has none.
pub(super) fn experts(config: &Config<'_>, spec: &mut TransformerSpec, row: ExpertsRow) -> Read {
    let Some(count) = config.size(EXPERTS)?.filter(|count| *count > 0) else { return Ok(()) };
    let inner = config.needed(row.inner)?.min(1 << 22);
    let shared = match row.shared {
        Shared::None => 0,
        Shared::One => inner,
        Shared::Count(names) => config.size(names)?.unwrap_or(0).min(1 << 20) * inner,
        Shared::Width(name) => config.size(&[name])?.unwrap_or(0),
    };
    let every = match row.every {
        [] => None,
        names => config.size(names)?.map(|every| u32::try_from(every).unwrap_or(u32::MAX)),
    };
    let first_dense = match config.size(row.first_dense)? {
        Some(first) => u32::try_from(first).unwrap_or(u32::MAX),
        None => 0,
    };
    spec.experts = Some(ExpertsSpec {
        count: u32::try_from(count).unwrap_or(u32::MAX),
        top_k: Some(match row.visits {
            Some(visits) => visits,
            None => config.small(TOP_K)?,
        }),
        feed_forward: Some(inner),
        shared,
        shared_gate: row.shared_gate && shared > 0,
        every,
        first_dense,
        router_bias: row.router_bias,
        biases: Some(row.biases),
    });
    patterns(config, spec)
}

/// Lists that say layer by layer where experts are; they go before everything else.
fn patterns(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    let list = |name: &str| config.get(name).and_then(|(_, value)| value.as_array());
    let numbers = |list: &[Value]| -> Vec<u32> {
        list.iter().filter_map(|one| u32::try_from(one.as_u64()?).ok()).collect()
    };
    let dense = if let Some(kinds) = list("mlp_layer_types") {
        (0..).zip(kinds).filter(|(_, kind)| *kind == "dense").map(|(i, _)| i).collect()
    } else if let Some(kinds) = list("moe_layer_freq") {
        (0..).zip(kinds).filter(|(_, kind)| kind.as_u64() == Some(0)).map(|(i, _)| i).collect()
    } else if let Some(with) = list("moe_layers") {
        let with = numbers(with);
        (0..spec.layers.min(1 << 14)).filter(|i| !with.contains(i)).collect()
    } else {
        if let Some(only) = list("mlp_only_layers") {
            spec.dense_layers = numbers(only);
        }
        return Ok(());
    };
    spec.dense_layers = dense;
    if let Some(experts) = &mut spec.experts {
        (experts.every, experts.first_dense) = (None, 0);
    }
    Ok(())
}

/// Modules that predict one more token each.
pub(super) fn next_tokens(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    if config.get("num_nextn_predict_layers").is_some_and(|(_, value)| !value.is_null()) {
        spec.next_tokens = config.small(&["num_nextn_predict_layers"])?;
    }
    Ok(())
}

/// Every layer behind the first dense ones has experts.
pub(super) fn each_layer(config: &Config<'_>, name: &'static str) -> Read {
    match config.value(&[name]) {
        Some((name, value)) if value.is_number() && value != 1 => {
            let hint = "describe the model as `transformer` instead";
            Err(wrong(name, value, "only 1 is read", hint))
        }
        _ => Ok(()),
    }
}
