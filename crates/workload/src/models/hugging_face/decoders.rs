//! Decoders without experts: a row a type, and what no row can say.

use serde_json::Value;

use super::config::{Config, POSITIONS};
use super::row::Flag::{Any, Key, No, Yes};
use super::row::{BARE, GPT, LLAMA, Positions, QueryKey, Read, Row};
use crate::models::transformer::{Head, TransformerSpec};

/// Attention's three maps in have a bias, and nothing else.
const QKV: [super::row::Flag; 4] = [Yes, No, No, No];

pub(super) static DECODERS: &[Row] = &[
    Row {
        types: &[
            "llama",
            "cwm",
            "exaone",
            "helium",
            "internlm2",
            "internlm3",
            "iquestcoder",
            "granite",
            "smollm3",
            "phi3",
            "ministral3",
        ],
        biases: [
            Any(&["attention_bias", "qkv_bias"]),
            Any(&["attention_bias", "qkv_bias"]),
            Key("mlp_bias"),
            No,
        ],
        ..LLAMA
    },
    Row { types: &["mistral", "ministral"], window: Yes, ..LLAMA },
    Row {
        types: &["hyperclovax"],
        read: |config, spec| {
            spec.norms.per_layer = if config.flag(&["use_post_norm"], false) { 4 } else { 2 };
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["seed_oss"],
        biases: [Key("attention_bias"), Key("attention_out_bias"), Key("mlp_bias"), No],
        ..LLAMA
    },
    Row { types: &["glm"], biases: [Key("attention_bias"), No, No, No], ..LLAMA },
    Row { types: &["glm4"], biases: [Key("attention_bias"), No, No, No], norms: 4, ..LLAMA },
    Row { types: &["glm4v_text", "glm_ocr_text"], biases: QKV, norms: 4, ..LLAMA },
    Row {
        types: &["ernie4_5", "paddleocr_vl_text"],
        biases: [Key("use_bias"), Key("use_bias"), Key("use_bias"), No],
        ..LLAMA
    },
    Row { types: &["arcee"], gated: No, ..LLAMA },
    Row {
        types: &["apertus", "apertus1p5_text"],
        gated: No,
        query_key: QueryKey::Head(Yes),
        read: |_, spec| {
            // Two numbers of its activation function.
            spec.vectors = 2;
            Ok(())
        },
        ..LLAMA
    },
    Row { types: &["olmo2", "olmo3"], query_key: QueryKey::All(Yes), ..LLAMA },
    Row {
        types: &["exaone4", "exaone4_5_text"],
        biases: BARE,
        query_key: QueryKey::Head(Yes),
        ..LLAMA
    },
    Row { types: &["hunyuan_v1_dense"], query_key: QueryKey::Head(Yes), ..LLAMA },
    Row {
        types: &["qwen2", "qwen2_vl_text", "qwen2_5_vl_text"],
        biases: QKV,
        window: Key("use_sliding_window"),
        ..LLAMA
    },
    Row {
        types: &["qwen2_vl", "qwen2_5_vl", "qwen2_5_omni_text"],
        biases: QKV,
        window: Key("use_sliding_window"),
        ..LLAMA
    },
    Row {
        types: &["qwen3", "qwen3_vl_text"],
        biases: [Key("attention_bias"), Key("attention_bias"), No, No],
        query_key: QueryKey::Head(Yes),
        window: Key("use_sliding_window"),
        ..LLAMA
    },
    Row { types: &["gemma"], ..LLAMA },
    Row { types: &["gemma2"], norms: 4, ..LLAMA },
    Row { types: &["vaultgemma"], ..LLAMA },
    Row { types: &["gemma3_text"], norms: 4, query_key: QueryKey::Head(Yes), ..LLAMA },
    Row { types: &["nemotron", "jais2"], gated: No, norm: 2, ..LLAMA },
    Row {
        types: &["stablelm"],
        norm: 2,
        biases: [Key("use_qkv_bias"), No, No, No],
        parallel: Key("use_parallel_residual"),
        read: |config, spec| {
            // A norm for each head, without biases.
            if config.flag(&["qk_layernorm"], false) {
                let heads = spec.heads.saturating_add(spec.kv_heads.unwrap_or(spec.heads));
                spec.norms.query_key = heads.saturating_mul(spec.head());
            }
            Ok(())
        },
        ..LLAMA
    },
    Row { types: &["olmo"], norm: 0, ..LLAMA },
    Row {
        types: &["nanochat"],
        gated: No,
        norm: 0,
        biases: [Key("attention_bias"), Key("attention_bias"), No, No],
        ..LLAMA
    },
    Row {
        types: &["cohere", "cohere2"],
        parallel: Yes,
        query_key: QueryKey::All(Key("use_qk_norm")),
        ..LLAMA
    },
    Row { types: &["granite_swa"], read: sinks, ..LLAMA },
    Row {
        types: &["bitnet"],
        read: |_, spec| {
            // A norm of what attention returns, and one within the feed-forward part.
            let inner = spec.feed_forward.unwrap_or(4 * spec.hidden.min(1 << 40));
            spec.vectors = spec.hidden.saturating_add(inner);
            Ok(())
        },
        ..LLAMA
    },
    Row {
        types: &["diffllama"],
        read: |_, spec| {
            spec.vectors = spec.head().saturating_mul(4);
            Ok(())
        },
        ..LLAMA
    },
    Row { types: &["minicpm3", "youtu"], latent: true, ..LLAMA },
    Row {
        types: &["modernbert-decoder"],
        biases: [
            Key("attention_bias"),
            Key("attention_bias"),
            Key("mlp_bias"),
            Key("decoder_bias"),
        ],
        read: super::encoders::modern,
        ..LLAMA
    },
    Row {
        types: &["phi"],
        norm: 2,
        gated: No,
        biases: [Yes; 4],
        parallel: Yes,
        query_key: QueryKey::Head(Key("qk_layernorm")),
        ..LLAMA
    },
    Row {
        types: &["gptj", "codegen"],
        gated: No,
        norm: 2,
        biases: [No, No, Yes, Yes],
        parallel: Yes,
        ..LLAMA
    },
    Row {
        types: &["gpt_neox"],
        biases: [Key("attention_bias"), Key("attention_bias"), Yes, No],
        positions: Positions::Rotary,
        read: |config, spec| {
            // Both parts have a norm of their own, side by side or not.
            spec.parallel_blocks = config.flag(&["use_parallel_residual"], true);
            Ok(())
        },
        ..GPT
    },
    Row { types: &["gpt2", "openai-gpt", "gpt-sw3", "gpt_bigcode"], read: gpt2, ..GPT },
    Row { types: &["gpt_neo"], biases: [No, Yes, Yes, No], ..GPT },
    Row {
        types: &["starcoder2"],
        biases: [Key("use_bias"), Key("use_bias"), Key("use_bias"), No],
        positions: Positions::Rotary,
        window: Yes,
        ..GPT
    },
    Row {
        types: &["opt"],
        biases: [Key("enable_bias"), Key("enable_bias"), Key("enable_bias"), No],
        positions: Positions::Learned(2),
        read: opt,
        ..GPT
    },
    Row { types: &["biogpt"], positions: Positions::Learned(2), ..GPT },
    Row {
        types: &["bloom"],
        end_norms: [Yes, Yes],
        positions: Positions::Fixed,
        read: bloom,
        ..GPT
    },
    Row {
        types: &["falcon", "RefinedWeb", "RefinedWebModel"],
        biases: [Key("bias"), Key("bias"), Key("bias"), No],
        positions: Positions::Rotary,
        read: falcon,
        ..GPT
    },
    Row { types: &["mpt"], norm: 1, biases: BARE, positions: Positions::Fixed, read: mpt, ..GPT },
    Row { types: &["xglm"], positions: Positions::Fixed, ..GPT },
    Row {
        types: &["persimmon"],
        positions: Positions::Rotary,
        query_key: QueryKey::Head(Key("qk_layernorm")),
        ..GPT
    },
    Row { types: &["ctrl"], biases: [Yes; 4], positions: Positions::Fixed, ..GPT },
    Row {
        types: &["bert-generation"],
        end_norms: [Yes, No],
        biases: [Yes; 4],
        read: |_, spec| {
            if !spec.tied && spec.head == Head::Language {
                spec.others = spec.vocabulary;
            }
            Ok(())
        },
        ..GPT
    },
];

/// A learned number of each head, beside the tokens that it sees.
pub(super) fn sinks(_: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.vectors = spec.heads;
    Ok(())
}

fn gpt2(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    match config.text("model_type") {
        "gpt_bigcode" if config.flag(&["multi_query"], true) => spec.kv_heads = Some(1),
        "gpt_bigcode" => spec.kv_heads = None,
        // Norms behind both parts, and none behind the last layer.
        "openai-gpt" => spec.norms.last = false,
        _ => {}
    }
    Ok(())
}

fn opt(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.embedding_size = config.size(&["word_embed_proj_dim"])?;
    spec.norms.last = config.flag(&["do_layer_norm_before"], true)
        && !config.flag(&["_remove_final_layer_norm"], false);
    if !config.flag(&["layer_norm_elementwise_affine"], true) {
        spec.norms.parameters = 0;
    }
    Ok(())
}

fn bloom(_: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    // Its class knows no other width.
    spec.feed_forward = None;
    Ok(())
}

fn falcon(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    let new = config.flag(&["new_decoder_architecture"], false);
    if !new {
        spec.kv_heads = config.flag(&["multi_query"], true).then_some(1);
    }
    spec.parallel_blocks = new || config.flag(&["parallel_attn"], true);
    if spec.parallel_blocks {
        let norms = config.size(&["num_ln_in_parallel_attn"])?;
        spec.norms.per_layer = if new { norms.unwrap_or(2) } else { 1 };
    }
    spec.rotary = config.flag(&["alibi"], false).then_some(false);
    Ok(())
}

fn mpt(config: &Config<'_>, spec: &mut TransformerSpec) -> Read {
    spec.feed_forward =
        config.size(&["expansion_ratio"])?.map(|ratio| spec.hidden.saturating_mul(ratio));
    let attention = config.get("attn_config").map(|(_, value)| value);
    let heads = attention.and_then(|keys| keys.get("kv_n_heads")).and_then(Value::as_u64);
    spec.kv_heads = heads;
    // ALiBi, or rotary positions.
    let turned = attention.and_then(|keys| keys.get("rope")).and_then(Value::as_bool);
    spec.rotary = Some(turned.unwrap_or(false));
    // Other code than the library's has biases.
    if config.get("no_bias").is_some_and(|(_, value)| *value == false)
        && config.get("auto_map").is_some()
    {
        let all = &mut spec.biases;
        (all.qkv, all.output, all.feed_forward) = (true, true, true);
        spec.norms.parameters = 2;
    }
    config.get(POSITIONS[0]);
    Ok(())
}
