//! `config.json` files: their counts of parameters are those that Hugging Face publishes for the
//! checkpoints (the size of `model.safetensors`, buffers aside).

use allrail_workload::models::hugging_face::transformer;
use serde_json::{Value, json};

fn parameters(config: &Value) -> u64 {
    let object = config.as_object().expect("an object");
    let (spec, _) =
        transformer(object, None).unwrap_or_else(|error| panic!("{error}; {}", error.hint));
    spec.model("", None).unwrap_or_else(|error| panic!("{error}; {}", error.hint)).parameters()
}

#[test]
fn parameters_are_the_published_ones() {
    let llama = |h: u64, l: u64, a: u64, kv: u64, f: u64, v: u64| {
        json!({"model_type": "llama", "hidden_size": h, "num_hidden_layers": l,
               "num_attention_heads": a, "num_key_value_heads": kv, "intermediate_size": f,
               "vocab_size": v, "max_position_embeddings": 4096, "tie_word_embeddings": false})
    };
    let mut mistral = llama(4096, 32, 32, 8, 14336, 32000);
    mistral["model_type"] = json!("mistral");
    mistral["sliding_window"] = json!(4096);
    let mut mixtral = mistral.clone();
    mixtral["model_type"] = json!("mixtral");
    mixtral["sliding_window"] = Value::Null;
    mixtral["num_local_experts"] = json!(8);
    mixtral["num_experts_per_tok"] = json!(2);
    let bert = |kind: &str, h: u64, l: u64, v: u64, positions: u64, types: u64, model: &str| {
        json!({"model_type": kind, "architectures": [model], "hidden_size": h,
               "num_hidden_layers": l, "num_attention_heads": h / 64, "intermediate_size": 4 * h,
               "vocab_size": v, "max_position_embeddings": positions, "type_vocab_size": types})
    };
    let gpt2 = |h: u64, l: u64, a: u64| {
        json!({"model_type": "gpt2", "n_embd": h, "n_layer": l, "n_head": a,
               "vocab_size": 50257, "n_positions": 1024, "n_ctx": 1024})
    };
    let opt = json!({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12,
        "num_attention_heads": 12, "ffn_dim": 3072, "vocab_size": 50272,
        "max_position_embeddings": 2048, "do_layer_norm_before": true, "word_embed_proj_dim": 768});
    let opt_350m = json!({"model_type": "opt", "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "ffn_dim": 4096, "vocab_size": 50272,
        "max_position_embeddings": 2048, "do_layer_norm_before": false, "word_embed_proj_dim": 512});
    let bloom = |h: u64, l: u64, a: u64| {
        json!({"model_type": "bloom", "hidden_size": h, "n_layer": l, "n_head": a,
               "vocab_size": 250_880})
    };
    let falcon_7b = json!({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "vocab_size": 65024, "multi_query": true, "parallel_attn": true,
        "new_decoder_architecture": false, "bias": false, "alibi": false});
    let falcon_40b = json!({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "vocab_size": 65024, "parallel_attn": true,
        "new_decoder_architecture": true, "bias": false, "alibi": false,
        "tie_word_embeddings": false});
    let neox = |h: u64, l: u64, a: u64, f: u64, v: u64| {
        json!({"model_type": "gpt_neox", "hidden_size": h, "num_hidden_layers": l,
               "num_attention_heads": a, "intermediate_size": f, "vocab_size": v,
               "max_position_embeddings": 2048, "tie_word_embeddings": false,
               "use_parallel_residual": true})
    };
    let phi_2 = json!({"model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 10240, "vocab_size": 51200,
        "max_position_embeddings": 2048, "tie_word_embeddings": false});
    let phi_3 = json!({"model_type": "phi3", "hidden_size": 3072, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "intermediate_size": 8192,
        "vocab_size": 32064, "max_position_embeddings": 4096, "sliding_window": 2047,
        "tie_word_embeddings": false});
    let gemma = |kind: &str, h: u64, l: u64, a: u64, kv: u64, f: u64| {
        json!({"model_type": kind, "hidden_size": h, "num_hidden_layers": l,
               "num_attention_heads": a, "num_key_value_heads": kv, "head_dim": 256,
               "intermediate_size": f, "vocab_size": 256_000, "max_position_embeddings": 8192})
    };
    let mut qwen2 = llama(3584, 28, 28, 4, 18944, 152_064);
    qwen2["model_type"] = json!("qwen2");
    let mut qwen2_small = llama(896, 24, 14, 2, 4864, 151_936);
    qwen2_small["model_type"] = json!("qwen2");
    qwen2_small["tie_word_embeddings"] = json!(true);
    let mut qwen3 = llama(4096, 36, 32, 8, 12288, 151_936);
    qwen3["model_type"] = json!("qwen3");
    qwen3["head_dim"] = json!(128);
    let qwen3_moe = json!({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151_936, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "tie_word_embeddings": false, "max_position_embeddings": 40960});
    let qwen2_moe = json!({"model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts": 60,
        "num_experts_per_tok": 4, "vocab_size": 151_936, "decoder_sparse_step": 1,
        "tie_word_embeddings": false, "max_position_embeddings": 8192});
    let deepseek_lite = json!({"model_type": "deepseek_v2", "hidden_size": 2048,
        "num_hidden_layers": 27, "num_attention_heads": 16, "num_key_value_heads": 16,
        "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
        "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "q_lora_rank": null, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 102_400,
        "max_position_embeddings": 163_840, "tie_word_embeddings": false});
    let deepseek_v3 = json!({"model_type": "deepseek_v3", "hidden_size": 7168,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
        "moe_layer_freq": 1, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129_280,
        "max_position_embeddings": 163_840, "tie_word_embeddings": false});
    let distilbert = json!({"model_type": "distilbert", "architectures": ["DistilBertModel"],
        "dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522,
        "max_position_embeddings": 512});
    let t5 = json!({"model_type": "t5", "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12,
        "num_layers": 12, "num_decoder_layers": 12, "relative_attention_num_buckets": 32,
        "n_positions": 512, "vocab_size": 32128});
    let starcoder2 = json!({"model_type": "starcoder2", "hidden_size": 3072,
        "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
        "intermediate_size": 12288, "vocab_size": 49152, "use_bias": true,
        "max_position_embeddings": 16384, "sliding_window": 4096});
    let vit = |h: u64, l: u64, side: u64, classes: u64| {
        let labels: serde_json::Map<String, Value> =
            (0..classes).map(|i| (i.to_string(), json!(format!("LABEL_{i}")))).collect();
        let model = if classes > 0 { "ViTForImageClassification" } else { "ViTModel" };
        json!({"model_type": "vit", "architectures": [model], "hidden_size": h,
            "num_hidden_layers": l, "num_attention_heads": h / 64, "intermediate_size": 4 * h,
            "image_size": 224, "patch_size": side, "num_channels": 3, "qkv_bias": true,
            "id2label": labels})
    };
    let gptj = json!({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16,
        "n_inner": null, "vocab_size": 50400, "n_positions": 2048, "tie_word_embeddings": false});
    let cases = [
        ("meta-llama/Llama-2-7b", llama(4096, 32, 32, 32, 11008, 32000), 6_738_415_616),
        ("meta-llama/Llama-2-70b", llama(8192, 80, 64, 8, 28672, 32000), 68_976_648_192),
        ("meta-llama/Meta-Llama-3-8B", llama(4096, 32, 32, 8, 14336, 128_256), 8_030_261_248),
        ("mistralai/Mistral-7B", mistral, 7_241_732_096),
        ("mistralai/Mixtral-8x7B", mixtral, 46_702_792_704),
        ("gpt2", gpt2(768, 12, 12), 124_439_808),
        ("gpt2-xl", gpt2(1600, 48, 25), 1_557_611_200),
        ("bert-base-uncased", bert("bert", 768, 12, 30522, 512, 2, "BertModel"), 109_482_240),
        ("bert-large-uncased", bert("bert", 1024, 24, 30522, 512, 2, "BertModel"), 335_141_888),
        ("bert, masked", bert("bert", 768, 12, 30522, 512, 2, "BertForMaskedLM"), 109_514_298),
        ("roberta-base", bert("roberta", 768, 12, 50265, 514, 1, "RobertaModel"), 124_645_632),
        ("distilbert", distilbert, 66_362_880),
        ("facebook/opt-125m", opt, 125_239_296),
        ("facebook/opt-350m", opt_350m, 331_196_416),
        ("bigscience/bloom-560m", bloom(1024, 24, 16), 559_214_592),
        ("bigscience/bloom", bloom(14336, 70, 112), 176_247_271_424),
        ("tiiuae/falcon-7b", falcon_7b, 6_921_720_704),
        ("EleutherAI/gpt-neox-20b", neox(6144, 44, 64, 24576, 50432), 20_554_567_680),
        ("EleutherAI/pythia-160m", neox(768, 12, 12, 3072, 50304), 162_322_944),
        ("EleutherAI/gpt-j-6b", gptj, 6_050_882_784),
        ("microsoft/phi-2", phi_2, 2_779_683_840),
        ("microsoft/Phi-3-mini-4k", phi_3, 3_821_079_552),
        ("google/gemma-2b", gemma("gemma", 2048, 18, 8, 1, 16384), 2_506_172_416),
        ("google/gemma-7b", gemma("gemma", 3072, 28, 16, 16, 24576), 8_537_680_896),
        ("google/gemma-2-9b", gemma("gemma2", 3584, 42, 16, 8, 14336), 9_241_705_984),
        ("Qwen/Qwen2-7B", qwen2, 7_615_616_512),
        ("Qwen/Qwen2-0.5B", qwen2_small, 494_032_768),
        ("Qwen/Qwen3-8B", qwen3, 8_190_735_360),
        ("Qwen/Qwen3-30B-A3B", qwen3_moe, 30_532_122_624),
        ("Qwen/Qwen1.5-MoE-A2.7B", qwen2_moe, 14_315_784_192),
        ("deepseek-ai/DeepSeek-V2-Lite", deepseek_lite, 15_706_484_224),
        ("deepseek-ai/DeepSeek-V3", deepseek_v3, 671_026_404_352),
        ("t5-base", t5, 222_903_552),
        ("bigcode/starcoder2-3b", starcoder2, 3_030_371_328),
        ("google/vit-base-patch16-224", vit(768, 12, 16, 1000), 86_567_656),
        ("google/vit-base-patch16-224-in21k", vit(768, 12, 16, 0), 86_389_248),
        ("google/vit-large-patch16-224", vit(1024, 24, 16, 1000), 304_326_632),
    ];
    let wrong: Vec<String> = cases
        .iter()
        .map(|(name, config, published)| (name, parameters(config), *published))
        .filter(|(_, ours, published)| ours != published)
        .map(|(name, ours, published)| {
            format!(
                "{name}: {ours}, published {published}, off by {}",
                ours as i64 - published as i64
            )
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
    // Rounded as its card gives it.
    assert_eq!(parameters(&falcon_40b) / 100_000_000, 418);
}

/// Counted by the classes of `transformers` 5.23 on its meta device, from the same sizes.
#[test]
fn parameters_are_those_of_the_classes() {
    let base = |kind: &str, (h, l, a, kv, f, v): (u64, u64, u64, u64, u64, u64), more: &Value| {
        let mut all = json!({"model_type": kind, "hidden_size": h, "num_hidden_layers": l,
            "num_attention_heads": a, "num_key_value_heads": kv, "intermediate_size": f,
            "vocab_size": v, "max_position_embeddings": 4096, "tie_word_embeddings": false});
        for (key, value) in more.as_object().expect("an object") {
            all[key] = value.clone();
        }
        all
    };
    let none = json!({});
    let small = (4096, 32, 32, 32, 11008, 50304);
    let scout = json!({"head_dim": 128, "num_local_experts": 16, "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1, "intermediate_size_mlp": 16384});
    let mut maverick = scout.clone();
    maverick["num_local_experts"] = json!(128);
    maverick["interleave_moe_layer_step"] = json!(2);
    let oss = json!({"head_dim": 64, "num_local_experts": 128, "num_experts_per_tok": 4,
        "attention_bias": true});
    let air = json!({"head_dim": 128, "attention_bias": true, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1, "use_qk_norm": false});
    let ernie = json!({"moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "tie_word_embeddings": true});
    let minimax = json!({"head_dim": 128, "num_local_experts": 256, "num_experts_per_tok": 8});
    let olmoe = json!({"num_experts": 64, "num_experts_per_tok": 8});
    let granite = json!({"num_local_experts": 8, "num_experts_per_tok": 2});
    let seed = json!({"head_dim": 128, "attention_bias": true, "attention_out_bias": false});
    let glm = json!({"head_dim": 128, "attention_bias": true});
    let tied = json!({"tie_word_embeddings": true});
    for (config, published) in [
        (base("llama4_text", (5120, 48, 40, 8, 8192, 202_048), &scout), 107_769_861_120),
        (base("llama4_text", (5120, 48, 40, 8, 8192, 202_048), &maverick), 400_711_848_960),
        (base("gpt_oss", (2880, 36, 64, 8, 2880, 201_088), &oss), 116_829_156_672),
        (base("glm4_moe", (4096, 46, 96, 8, 10944, 151_552), &air), 106_852_245_504),
        (base("ernie4_5_moe", (2560, 28, 20, 4, 12288, 103_424), &ernie), 21_825_437_888),
        (base("minimax_m2", (3072, 62, 48, 8, 1536, 200_064), &minimax), 228_689_748_992),
        (base("olmoe", (2048, 16, 16, 16, 2048, 50304), &olmoe), 13_361_612_800),
        (base("granitemoe", (4096, 32, 32, 32, 11008, 32000), &granite), 37_039_116_288),
        (base("olmo2", small, &none), 6_888_624_128),
        (base("exaone4", (4096, 32, 32, 32, 16384, 102_400), &none), 9_429_069_824),
        (base("glm", (4096, 40, 32, 2, 13696, 151_552), &glm), 9_399_951_360),
        (base("glm4", (4096, 40, 32, 2, 13696, 151_552), &glm), 9_400_279_040),
        (base("seed_oss", (4096, 64, 80, 8, 27648, 155_136), &seed), 28_921_040_896),
        (base("smollm3", (2048, 36, 16, 4, 11008, 128_256), &tied), 3_075_098_624),
        (base("arcee", (2560, 32, 32, 32, 18432, 32000), &none), 4_022_766_080),
        (base("nemotron", (6144, 32, 48, 8, 24576, 256_000), &none), 15_628_775_424),
        (base("persimmon", (4096, 36, 64, 64, 16384, 262_144), &none), 9_397_175_296),
        (
            base(
                "gpt_neo",
                (2048, 24, 16, 16, 8192, 50257),
                &json!({"max_position_embeddings": 2048,
            "tie_word_embeddings": true}),
            ),
            1_315_575_808,
        ),
    ] {
        assert_eq!(parameters(&config), published, "{config}");
    }
    // Its card says 131.6 G.
    let dbrx = json!({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40,
        "vocab_size": 100_352, "max_seq_len": 32768, "attn_config": {"kv_n_heads": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}});
    assert!((parameters(&dbrx) as f64 / 131.6e9 - 1.0).abs() < 0.001);
}

/// Type, class, parameters and keys, written by `benches/hugging_face --cases` from the classes themselves.
const COUNTED: &str = include_str!("hugging_face_counts.jsonl");

/// The counts are those of the library's classes, to the last parameter: of its defaults, and of other sizes
/// and flags.
#[test]
fn parameters_are_those_of_the_library_of_every_type() {
    let mut equal = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for line in COUNTED.lines() {
        let (kind, class, theirs, config): (String, String, u64, Value) =
            serde_json::from_str(line).expect("a line");
        let ours = parameters(&config);
        if ours == theirs {
            equal.insert(kind);
        } else {
            wrong.push(format!("{kind} ({class}): {ours}, the library has {theirs}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(equal.len() >= 160, "{} model types", equal.len());
}

/// What a file says nothing about is as its class has it, of models and of what they are parts of.
#[test]
fn tables_are_tied_by_the_class_and_by_the_whole() {
    let tied = |config: Value| {
        transformer(config.as_object().expect("an object"), None).expect("a model").0.tied
    };
    let sizes = |kind: &str| {
        json!({"model_type": kind, "hidden_size": 64, "num_hidden_layers": 2, "n_embd": 64,
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000})
    };
    for (kind, by_class) in
        [("gemma", true), ("llama", false), ("granite", false), ("smollm3", true), ("cohere", true)]
    {
        assert_eq!(tied(sizes(kind)), by_class, "{kind}");
        let mut said = sizes(kind);
        said["tie_word_embeddings"] = json!(!by_class);
        assert_eq!(tied(said), !by_class, "{kind}");
    }
    // (whole, at its top, its text model, in that, whether the class ties)
    for (whole, top, text, own, expected) in [
        ("qwen2_5_vl", Some(true), "qwen2_5_vl_text", None, true),
        ("qwen2_5_vl", Some(false), "qwen2_5_vl_text", Some(true), true),
        ("mistral3", Some(false), "mistral", Some(true), false),
        ("mistral3", Some(true), "mistral", Some(false), true),
        ("gemma3", None, "gemma3_text", None, true),
        ("gemma3", Some(false), "gemma3_text", Some(true), false),
        ("llava", None, "llama", Some(true), true),
        ("llava", None, "llama", None, false),
        ("llama4", Some(true), "llama4_text", None, false),
        ("a_type_of_tomorrow", Some(true), "llama", None, true),
    ] {
        let mut inner = sizes(text);
        inner["num_local_experts"] = json!(4);
        if let Some(own) = own {
            inner["tie_word_embeddings"] = json!(own);
        }
        let mut config = json!({"model_type": whole, "text_config": inner});
        if let Some(top) = top {
            config["tie_word_embeddings"] = json!(top);
        }
        assert_eq!(tied(config), expected, "{whole} {top:?} {text} {own:?}");
    }
}

/// What is nested leaves sizes to its class; a file on its own says them.
#[test]
fn what_a_text_model_leaves_out_is_its_class_s() {
    let config = json!({"model_type": "llava", "text_config": {"model_type": "llama",
        "vocab_size": 32064}, "architectures": ["LlavaForConditionalGeneration"]});
    let (spec, notes) = transformer(config.as_object().expect("an object"), None).expect("a model");
    assert_eq!((spec.layers, spec.hidden, spec.heads), (32, 4096, 32));
    assert!(notes[1].contains("`hidden_size` 4096"), "{notes:?}");
    let alone = json!({"model_type": "llama", "vocab_size": 32064, "num_hidden_layers": 2});
    let error = transformer(alone.as_object().expect("an object"), None).expect_err("no width");
    assert_eq!(error.field, "workload.model.hugging_face.hidden_size");
}

/// The hint names a type with whose keys the file can be read, and then it is.
#[test]
fn an_unknown_type_is_refused_with_a_hint_that_works() {
    let plain = json!({"model_type": "tomorrow", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 128,
        "vocab_size": 1000});
    let mut experts = plain.clone();
    experts["num_local_experts"] = json!(4);
    experts["num_experts_per_tok"] = json!(2);
    let mut small = experts.clone();
    small["moe_intermediate_size"] = json!(32);
    let gpt = json!({"model_type": "tomorrow", "n_embd": 64, "n_layer": 2, "n_head": 4});
    for (mut config, like) in
        [(plain, "llama"), (experts, "mixtral"), (small, "qwen3_moe"), (gpt, "gpt2")]
    {
        let error = transformer(config.as_object().expect("an object"), None).expect_err("unknown");
        let told = format!("set `model_type` to `{like}`");
        assert!(error.hint.contains(&told), "{}", error.hint);
        config["model_type"] = json!(like);
        assert!(parameters(&config) > 0);
    }
    let hopeless = json!({"model_type": "tomorrow", "depth": 3});
    let error = transformer(hopeless.as_object().expect("an object"), None).expect_err("unknown");
    assert!(!error.hint.contains("set `model_type`"), "{}", error.hint);
}

/// Of types that the library has and no row describes, no other type is named: it would count otherwise.
#[test]
fn a_type_of_the_library_that_is_not_read_is_taken_for_no_other() {
    let sizes = json!({"d_model": 64, "hidden_size": 64, "num_hidden_layers": 2, "encoder_layers": 2,
        "decoder_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000});
    for kind in ["whisper", "albert", "deberta-v2", "led", "longt5", "axk1"] {
        let mut config = sizes.clone();
        config["model_type"] = json!(kind);
        let error = transformer(config.as_object().expect("an object"), None).expect_err("refused");
        assert!(!error.hint.contains("set `model_type`"), "{kind}: {}", error.hint);
        assert!(error.hint.contains("allrail import"), "{kind}: {}", error.hint);
    }
}

/// The hint says where the name stands that is to be changed.
#[test]
fn an_unknown_text_model_is_named_as_such() {
    let mut text = json!({"model_type": "tomorrow", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000});
    let whole = |text: &Value| json!({"model_type": "llava", "text_config": text});
    let error =
        transformer(whole(&text).as_object().expect("an object"), None).expect_err("unknown");
    assert!(error.hint.contains("set its text model's `model_type` to `llama`"), "{}", error.hint);
    text["model_type"] = json!("llama");
    assert!(parameters(&whole(&text)) > 0);
}

/// The head is the whole's, and what two stacks share is the text model's.
#[test]
fn a_head_of_its_own_leaves_stacks_their_table() {
    let text = json!({"model_type": "bart", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128, "vocab_size": 1000, "max_position_embeddings": 64});
    let whole = |tied: bool| {
        parameters(
            &json!({"model_type": "florence2", "text_config": text, "tie_word_embeddings": tied}),
        )
    };
    assert_eq!(whole(false) - whole(true), 64 * 1000);
}

/// Of a model of pictures and words the text model is read, with what its class fixes.
#[test]
fn of_several_parts_the_text_model_is_read() {
    let text = json!({"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
        "intermediate_size": 10240, "sliding_window": 1024});
    let whole = json!({"model_type": "gemma3", "text_config": text, "vision_config": {"a": 1},
        "architectures": ["Gemma3ForConditionalGeneration"]});
    // The published 4.30 G are with 0.42 of the vision tower.
    assert!((parameters(&whole) as f64 / 3.88e9 - 1.0).abs() < 0.005);
    let (_, notes) = transformer(whole.as_object().expect("an object"), None).expect("a model");
    assert_eq!(notes[0], "of its config.json `text_config` is read, and not `vision_config`");
    for assumed in [
        "`num_attention_heads` 8",
        "`num_key_value_heads` 4",
        "`head_dim` 256",
        "`vocab_size` 262208",
        "4096 tokens a sample, of 131072 positions",
    ] {
        assert!(notes[1].contains(assumed), "{}", notes[1]);
    }
    let nested = json!({"model_type": "llava", "tie_word_embeddings": true, "text_config": {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 1000,
        "num_attention_heads": 4, "intermediate_size": 128}});
    let (spec, _) = transformer(nested.as_object().expect("an object"), None).expect("a model");
    assert!(spec.tied, "the whole model says it");
}

#[test]
fn what_is_no_transformer_is_said() {
    for kind in ["jamba", "mamba2", "qwen3_next"] {
        let config = json!({"model_type": kind, "hidden_size": 64});
        let error = transformer(config.as_object().expect("an object"), None).expect_err("refused");
        assert!(error.why.contains("no attention"), "{}", error.why);
    }
}

#[test]
fn what_is_assumed_and_what_is_not_read_is_said() {
    let config = json!({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000,
        "max_position_embeddings": 131_072, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
        "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1, "mystery": {"a": 1}});
    let notes =
        |tokens| transformer(config.as_object().expect("an object"), tokens).expect("a model").1;
    assert_eq!(
        notes(None),
        [
            "its config.json leaves open, and assumed is: 4096 tokens a sample, of 131072 positions \
             (`workload.sequence_length`), `num_key_value_heads` 4, `tie_word_embeddings` false",
            "keys of its config.json that are not read: `mystery`, `num_nextn_predict_layers` (1)",
        ]
    );
    assert!(!notes(Some(2048))[0].contains("tokens a sample"), "the workload says it");
    let mut whole = config.clone();
    for (name, value) in [
        ("max_position_embeddings", json!(2048)),
        ("num_key_value_heads", json!(4)),
        ("tie_word_embeddings", json!(false)),
        ("num_nextn_predict_layers", Value::Null),
        ("mystery", Value::Null),
    ] {
        whole[name] = value;
    }
    let (_, notes) = transformer(whole.as_object().expect("an object"), None).expect("a model");
    assert_eq!(notes, Vec::<String>::new());
}

#[test]
fn a_picture_is_read_as_patches_and_no_tokens_are_assumed() {
    let config = json!({"model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 768,
        "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
        "image_size": 224, "patch_size": 16});
    let (spec, notes) = transformer(config.as_object().expect("an object"), None).expect("a model");
    assert_eq!((spec.sequence_length, spec.patch), (197, Some(768)));
    assert_eq!(notes, Vec::<String>::new());
    let flops = spec.model("", None).expect("layers").forward_flops() as f64;
    // Dosovitskiy et al. (2010.11929): ViT-B/16 has 17.6 G multiply-adds of a picture of 224 x 224.
    assert!((flops / 2.0 / 17.6e9 - 1.0).abs() < 0.01, "{flops:e}");
}

/// A sample longer than the model's positions is counted, and said.
#[test]
fn more_tokens_than_positions_are_said() {
    let long = |config: &Value, tokens| {
        let object = config.as_object().expect("an object");
        let (spec, mut notes) = transformer(object, Some(tokens)).expect("a model");
        notes.extend(spec.model("", Some(tokens)).expect("layers").notes);
        notes.retain(|note| note.contains("positions"));
        notes
    };
    let rotary = json!({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "vocab_size": 1000, "max_position_embeddings": 2048});
    let learned = json!({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4,
        "vocab_size": 1000, "n_positions": 2048});
    for config in [rotary, learned] {
        assert_eq!(long(&config, 2048), Vec::<String>::new());
        assert_eq!(long(&config, 4096), ["4096 tokens a sample, but the model has 2048 positions"]);
    }
}
