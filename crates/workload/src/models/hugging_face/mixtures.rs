//! Decoders with experts: a row a type, and what no row can say.

use serde_json::Value;

use super::config::{Config, wrong};
use super::experts::{each_layer, next_tokens};
use super::row::Flag::{Key, No, Yes};
use super::row::{BARE, EXPERTS, ExpertsRow, Flag, LLAMA, QueryKey, Read, Row, Shared};
use crate::models::transformer::{ExpertsSpec, TransformerSpec};

const INNER: &[&str] = &["moe_intermediate_size"];
const FIRST: &[&str] = &["first_k_dense_replace"];
const ATTENTION: [Flag; 4] = [Key("attention_bias"), Key("attention_bias"), No, No];
const MAPS: [Flag; 4] = [Key("attention_bias"), Key("attention_bias"), Key("mlp_bias"), No];

/// Experts of a width of their own.
const SMALL: ExpertsRow = ExpertsRow { inner: INNER, ..EXPERTS };
const DEEPSEEK: ExpertsRow = ExpertsRow {
    shared: Shared::Count(&["n_shared_experts", "num_shared_experts"]),
    first_dense: FIRST,
    ..SMALL
};

pub(super) static MIXTURES: &[Row] = &[
    Row { types: &["mixtral"], biases: BARE, window: Yes, experts: Some(EXPERTS), ..LLAMA },
    Row {
        types: &["phimoe"],
        norm: 2,
        biases: [Key("attention_bias"), Key("attention_bias"), No, Key("lm_head_bias")],
        experts: Some(EXPERTS),
        ..LLAMA
    },
    Row {
        types: &["qwen2_moe"],
        biases: [Key("qkv_bias"), No, No, No],
        window: Key("use_sliding_window"),
        experts: Some(QWEN2),
        ..LLAMA
    },
    Row {
        types: &["qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text"],
        biases: ATTENTION,
        query_key: QueryKey::Head(Yes),
        window: Key("use_sliding_window"),
        experts: Some(ExpertsRow { every: &["decoder_sparse_step"], ..SMALL }),
        ..LLAMA
    },
    Row {
        types: &["flint"],
        biases: ATTENTION,
        query_key: QueryKey::Head(Yes),
        experts: Some(ExpertsRow {
            shared: Shared::Width("shared_expert_intermediate_size"),
            every: &["decoder_sparse_step"],
            ..SMALL
        }),
        read: super::decoders::sinks,
        ..LLAMA
    },
    Row {
        types: &["mellum"],
        biases: ATTENTION,
        query_key: QueryKey::Head(Yes),
        experts: Some(SMALL),
        ..LLAMA
    },
    Row {
        types: &["kolibri1"],
        biases: BARE,
        norms: 4,
        query_key: QueryKey::Head(Yes),
        experts: Some(ExpertsRow {
            shared: Shared::Width("shared_expert_intermediate_size"),
            ..SMALL
        }),
        ..LLAMA
    },
    Row {
        types: &["deepseek_v2"],
        biases: MAPS,
        latent: true,
        experts: Some(DEEPSEEK),
        read: deepseek,
        ..LLAMA
    },
    Row {
        types: &[
            "deepseek_v3",
            "deepseek_v32",
            "kimi_k2",
            "glm4_moe_lite",
            "glm_moe_dsa",
            "sarvam_mla",
            "mistral4",
        ],
        biases: ATTENTION,
        latent: true,
        experts: Some(DEEPSEEK),
        read: deepseek,
        ..LLAMA
    },
    Row {
        types: &["llama4_text"],
        biases: [Key("attention_bias"), Key("attention_bias"), No, No],
        experts: Some(ExpertsRow {
            shared: Shared::One,
            every: &["interleave_moe_layer_step"],
            ..EXPERTS
        }),
        read: |config, spec| {
            spec.feed_forward = config.size(&["intermediate_size_mlp"])?.or(spec.feed_forward);
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["gpt_oss"],
        biases: [Key("attention_bias"), Key("attention_bias"), Yes, No],
        experts: Some(ExpertsRow { router_bias: true, biases: true, ..EXPERTS }),
        read: super::decoders::sinks,
        ..LLAMA
    },
    Row {
        types: &["minimax_m2"],
        biases: BARE,
        query_key: QueryKey::All(Yes),
        experts: Some(EXPERTS),
        ..LLAMA
    },
    Row { types: &["granitemoe"], biases: ATTENTION, experts: Some(EXPERTS), ..LLAMA },
    Row {
        types: &["granitemoeshared"],
        biases: ATTENTION,
        experts: Some(ExpertsRow { shared: Shared::Width("shared_intermediate_size"), ..EXPERTS }),
        ..LLAMA
    },
    Row {
        types: &["granitemoe_swa"],
        biases: ATTENTION,
        experts: Some(ExpertsRow { shared: Shared::Width("shared_intermediate_size"), ..EXPERTS }),
        read: super::decoders::sinks,
        ..LLAMA
    },
    Row {
        types: &["olmoe", "flex_olmo"],
        biases: ATTENTION,
        query_key: QueryKey::All(Yes),
        experts: Some(EXPERTS),
        ..LLAMA
    },
    Row {
        types: &["glm4_moe", "sarvam_moe", "glm4v_moe_text"],
        biases: [Key("attention_bias"), No, No, No],
        query_key: QueryKey::Head(Key("use_qk_norm")),
        rounded: true,
        experts: Some(DEEPSEEK),
        read: next_tokens,
        ..LLAMA
    },
    Row {
        types: &["solar_open"],
        biases: [Key("attention_bias"), No, No, No],
        experts: Some(DEEPSEEK),
        ..LLAMA
    },
    Row {
        types: &["dots1"],
        biases: ATTENTION,
        query_key: QueryKey::Head(Yes),
        experts: Some(DEEPSEEK),
        ..LLAMA
    },
    Row {
        types: &["exaone_moe"],
        biases: BARE,
        query_key: QueryKey::Head(Yes),
        experts: Some(DEEPSEEK),
        ..LLAMA
    },
    Row {
        types: &["hy_v3"],
        biases: MAPS,
        query_key: QueryKey::Head(Yes),
        experts: Some(DEEPSEEK),
        ..LLAMA
    },
    Row {
        types: &["hunyuan_v1_moe"],
        query_key: QueryKey::Head(Yes),
        experts: Some(ExpertsRow { shared: Shared::One, ..EXPERTS }),
        ..LLAMA
    },
    Row {
        types: &["afmoe"],
        biases: ATTENTION,
        norms: 4,
        query_key: QueryKey::Head(Yes),
        experts: Some(ExpertsRow {
            shared: Shared::Count(&["num_shared_experts"]),
            first_dense: &["num_dense_layers"],
            router_bias: true,
            ..SMALL
        }),
        read: |_, spec| {
            spec.gate = spec.heads.saturating_mul(spec.head());
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["beam"],
        biases: ATTENTION,
        norms: 4,
        query_key: QueryKey::Head(Yes),
        experts: Some(SMALL),
        read: |_, spec| {
            spec.gate = spec.heads.saturating_mul(spec.head());
            spec.vectors = spec.heads;
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["laguna"],
        biases: ATTENTION,
        query_key: QueryKey::Head(Yes),
        experts: Some(ExpertsRow {
            shared: Shared::Width("shared_expert_intermediate_size"),
            router_bias: true,
            ..SMALL
        }),
        read: laguna,
        ..LLAMA
    },
    Row {
        types: &["ernie4_5_moe"],
        biases: [Key("use_bias"); 4],
        experts: Some(ExpertsRow {
            shared: Shared::Count(&["moe_num_shared_experts"]),
            first_dense: &["moe_layer_start_index"],
            router_bias: true,
            ..SMALL
        }),
        read: ernie,
        ..LLAMA
    },
    Row {
        types: &["aria_text"],
        biases: MAPS,
        experts: Some(ExpertsRow { shared: Shared::Count(&["moe_num_shared_experts"]), ..EXPERTS }),
        ..LLAMA
    },
    Row {
        types: &["cohere2_moe"],
        biases: ATTENTION,
        parallel: Yes,
        experts: Some(ExpertsRow {
            shared: Shared::Count(&["num_shared_experts"]),
            first_dense: FIRST,
            ..EXPERTS
        }),
        read: |config, spec| {
            spec.feed_forward =
                config.size(&["prefix_dense_intermediate_size"])?.or(spec.feed_forward);
            Ok(())
        },
        ..LLAMA
    },
    Row { types: &["dbrx"], biases: BARE, norm: 1, read: dbrx, ..LLAMA },
];

const QWEN2: ExpertsRow = ExpertsRow {
    shared: Shared::Width("shared_expert_intermediate_size"),
    shared_gate: true,
    every: &["decoder_sparse_step"],
    ..SMALL
};

fn deepseek(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    each_layer(config, "moe_layer_freq")?;
    next_tokens(config, spec)
}

fn laguna(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    let heads = config.get("num_attention_heads_per_layer").and_then(|(_, value)| value.as_array());
    if let Some(other) =
        heads.and_then(|all| all.iter().find(|one| one.as_u64() != Some(spec.heads)))
    {
        let hint = "describe the model as `transformer` instead";
        let why = "layers of different heads are not read";
        return Err(wrong("num_attention_heads_per_layer", other, why, hint));
    }
    // One number a head gates what attention returns, or one an element.
    let per_head = config.text("gating") == "per-head" || config.flag(&["gating"], false);
    spec.gate = if per_head { spec.heads } else { spec.heads.saturating_mul(spec.head()) };
    Ok(())
}

fn ernie(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    each_layer(config, "moe_layer_interval")?;
    // -1 is the last layer.
    let last = config.value(&["moe_layer_end_index"]).and_then(|(_, value)| value.as_u64());
    if let (Some(last), Some(experts)) = (last, spec.experts)
        && last < u64::from(spec.layers)
    {
        let first = u64::from(experts.first_dense);
        spec.dense_layers =
            (0..spec.layers.min(1 << 14)).filter(|i| u64::from(*i) > last.max(first)).collect();
    }
    Ok(())
}

/// Sizes in objects of their own.
fn dbrx(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
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
