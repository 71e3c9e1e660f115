//! A transformer by its Hugging Face `config.json`.
//!
//! Families differ in what they call a size and in what they leave to code: whether the feed-forward
//! part is gated, which maps have biases, what the norms learn. Sizes are looked up under all their
//! names; what is left to code is in [`FAMILIES`], as the classes of `transformers` have it. The
//! tests hold the counts of parameters against published ones.
//!
//! Where neither the workload nor the file limits the tokens of a sample, 4,096 are taken.

use serde_json::{Map as Object, Value};

use super::transformer::{Biases, ExpertsSpec, Head, LatentSpec, Norms, TransformerSpec};
use crate::error::WorkloadError;

/// What the code of a family of models fixes.
struct Family {
    types: &'static [&'static str],
    gated: bool,
    /// Parameters of a norm per element.
    norm: u64,
    /// Biases where no key says it.
    biases: Biases,
    tied: bool,
    read: fn(&Config<'_>, &mut TransformerSpec) -> Result<(), WorkloadError>,
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
static FAMILIES: &[Family] = &[
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
];

/// A `config.json`.
struct Config<'a>(&'a Object<String, Value>);

fn wrong(field: &str, value: impl ToString, why: &str, hint: &str) -> WorkloadError {
    WorkloadError::new(format!("workload.model.hugging_face.{field}"), value, why, hint)
}

impl Config<'_> {
    fn value(&self, names: &[&str]) -> Option<(&str, &Value)> {
        let found = names.iter().find_map(|name| self.0.get_key_value(*name));
        found.map(|(name, value)| (name.as_str(), value)).filter(|(_, value)| !value.is_null())
    }

    fn size(&self, names: &[&str]) -> Result<Option<u64>, WorkloadError> {
        let Some((name, value)) = self.value(names) else { return Ok(None) };
        let whole = value.as_u64().or_else(|| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            value.as_f64().filter(|v| *v >= 0.0 && v.fract() == 0.0 && *v < 1e15).map(|v| v as u64)
        });
        match whole {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(name, value, "it is not a whole number", "such as 4096")),
        }
    }

    fn needed(&self, names: &[&str]) -> Result<u64, WorkloadError> {
        self.size(names)?.ok_or_else(|| {
            let known = format!("it is also looked for as {}", names.join(", "));
            wrong(names[0], "absent", "a model of this type needs it", &known)
        })
    }

    fn small(&self, names: &[&str]) -> Result<u32, WorkloadError> {
        let number = self.needed(names)?;
        u32::try_from(number).map_err(|_| wrong(names[0], number, "it is too large", "such as 32"))
    }

    fn flag(&self, names: &[&str], otherwise: bool) -> bool {
        self.value(names).and_then(|(_, value)| value.as_bool()).unwrap_or(otherwise)
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or("")
    }

    /// The first of `architectures`.
    fn architecture(&self) -> &str {
        let first = self.0.get("architectures").and_then(|list| list.get(0));
        first.and_then(Value::as_str).unwrap_or("")
    }

    /// Refuses a key that changes the model in a way that is not read.
    fn refuse(&self, name: &str, why: &str) -> Result<(), WorkloadError> {
        let empty = match self.0.get(name) {
            None | Some(Value::Null | Value::Bool(false)) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(_) => false,
        };
        if empty {
            return Ok(());
        }
        Err(wrong(name, &self.0[name], why, "describe the model as `transformer` instead"))
    }
}

const HIDDEN: &[&str] = &["hidden_size", "n_embd", "d_model", "dim"];
const LAYERS: &[&str] = &["num_hidden_layers", "n_layer", "num_layers", "n_layers"];
const HEADS: &[&str] = &["num_attention_heads", "n_head", "num_heads", "n_heads"];
const KV_HEADS: &[&str] = &["num_key_value_heads", "num_kv_heads", "n_head_kv"];
const FEED_FORWARD: &[&str] =
    &["intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim", "ffn_hidden_size"];
const POSITIONS: &[&str] =
    &["max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"];
const EXPERTS: &[&str] = &["num_local_experts", "num_experts", "n_routed_experts"];

/// The transformer that a `config.json` describes.
///
/// # Errors
/// Its architecture is not known, a size is missing or no number, or a key changes the model in a
/// way that is not read.
pub fn transformer(object: &Object<String, Value>) -> Result<TransformerSpec, WorkloadError> {
    let config = Config(object);
    let kind = config.text("model_type");
    let found = FAMILIES.iter().find(|family| family.types.contains(&kind));
    let Some(family) = found else { return Err(unknown(&config)) };
    let positions = config.size(POSITIONS)?;
    let mut spec = TransformerSpec {
        layers: config.small(LAYERS)?,
        hidden: config.needed(HIDDEN)?,
        heads: config.needed(HEADS)?,
        kv_heads: config.size(KV_HEADS)?,
        head_size: config.size(&["head_dim", "d_kv"])?,
        feed_forward: config.size(FEED_FORWARD)?,
        gated: family.gated,
        vocabulary: config.needed(&["vocab_size"])?,
        sequence_length: positions.unwrap_or(4096).min(4096),
        tied: config.flag(&["tie_word_embeddings"], family.tied),
        biases: family.biases,
        norms: Norms { parameters: family.norm, ..Norms::default() },
        ..TransformerSpec::default()
    };
    (family.read)(&config, &mut spec)?;
    Ok(spec)
}

fn unknown(config: &Config<'_>) -> WorkloadError {
    let kind = config.text("model_type");
    if kind.is_empty() && !config.0.contains_key("architectures") {
        return wrong(
            "model_type",
            "absent",
            "this is no `config.json` of a transformer",
            "it needs `model_type`, such as \"llama\"",
        );
    }
    let mut known: Vec<&str> = FAMILIES.iter().flat_map(|f| f.types).copied().collect();
    known.sort_unstable();
    let nested = if config.0.contains_key("text_config") {
        "it has a `text_config`: give that part alone; "
    } else {
        ""
    };
    wrong(
        "model_type",
        kind,
        &format!("the architecture ({}) is not known", config.architecture()),
        &format!("{nested}known are {}; or describe it as `transformer`", known.join(", ")),
    )
}

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
    if config.flag(&["use_sliding_window"], false) {
        spec.window = config.size(&["sliding_window"])?;
    }
    if config.text("model_type").starts_with("qwen3") {
        spec.norms.query_key = 2 * spec.head_size.unwrap_or(128);
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
        spec.norms.query_key = 2 * spec.head_size.unwrap_or(256);
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
    spec.positions = config.needed(POSITIONS)? + 2;
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
    Ok(())
}

fn mpt(config: &Config<'_>, spec: &mut TransformerSpec) -> Result<(), WorkloadError> {
    if !config.flag(&["no_bias"], true) {
        spec.biases = ALL;
        spec.norms.parameters = 2;
    }
    spec.feed_forward = config.size(&["expansion_ratio"])?.map(|ratio| ratio.min(64) * spec.hidden);
    let attention = config.0.get("attn_config");
    let heads = attention.and_then(|keys| keys.get("kv_n_heads")).and_then(Value::as_u64);
    spec.kv_heads = heads;
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
