//! What a user may get wrong about a workload: each is an error that names its field, with a hint.

#![allow(clippy::needless_pass_by_value)]

use proptest::prelude::*;

use crate::common::*;
use serde_json::{Value, json};

/// `job` with one key otherwise.
fn with(path: &str, value: Value) -> Value {
    let mut all = job(json!({}));
    let mut at = &mut all;
    for key in path.split('.') {
        at = &mut at[key];
    }
    *at = value;
    all
}

fn layers(list: Value) -> Value {
    let mut all = job(json!({}));
    all["model"] = json!({"layers": list});
    all
}

fn hugging_face(config: Value) -> Value {
    let mut all = job(json!({}));
    all["model"] = json!({"hugging_face": config});
    all
}

#[test]
fn every_mistake_names_its_field() {
    let llama = json!({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100});
    let mut no_layers = llama.clone();
    no_layers["num_hidden_layers"] = Value::Null;
    let mut fraction = llama.clone();
    fraction["hidden_size"] = json!(64.5);
    let mut heads = llama.clone();
    heads["num_attention_heads"] = json!(5);
    let mut huge = llama.clone();
    huge["hidden_size"] = json!(1u64 << 60);
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        // Layouts that do not divide.
        (
            "dp times tp",
            with("parallelism", json!({"dp": 3, "tp": 2})),
            "workload.parallelism.dp",
            "16 NPUs",
        ),
        ("tp beyond", with("parallelism", json!({"tp": 3})), "workload.parallelism.dp", "3 NPUs"),
        ("tp zero", with("parallelism", json!({"tp": 0})), "workload.parallelism.tp", "at least 1"),
        (
            "tp and heads",
            with("parallelism", json!({"tp": 16})),
            "workload.parallelism.tp",
            "8 attention heads",
        ),
        (
            "pp and layers",
            with("parallelism", json!({"pp": 16, "microbatches": 8})),
            "workload.parallelism.pp",
            "8 layers",
        ),
        (
            "ep without experts",
            with("parallelism", json!({"ep": 2})),
            "workload.parallelism.ep",
            "no experts",
        ),
        (
            "op of a transformer",
            with("parallelism", json!({"op": 4})),
            "workload.parallelism.op",
            "embedding",
        ),
        ("sp alone", with("parallelism", json!({"sp": true})), "workload.parallelism.sp", "tp"),
        ("zero 4", with("parallelism", json!({"zero": 4})), "workload.parallelism.zero", "no such"),
        (
            "microbatches",
            with("parallelism", json!({"microbatches": 3})),
            "workload.batch_per_replica",
            "3 microbatches",
        ),
        (
            "no microbatch",
            with("parallelism", json!({"microbatches": 0})),
            "workload.parallelism.microbatches",
            "zero",
        ),
        (
            "interleaved",
            with("parallelism", json!({"pp": 4, "microbatches": 2, "schedule": "interleaved"})),
            "workload.parallelism.microbatches",
            "groups",
        ),
        (
            "chimera",
            with("parallelism", json!({"pp": 2, "microbatches": 1, "schedule": "chimera"})),
            "workload.parallelism.microbatches",
            "each way",
        ),
        (
            "virtual stages",
            with("parallelism", json!({"pp": 2, "virtual_stages": 2})),
            "workload.parallelism.virtual_stages",
            "one piece",
        ),
        (
            "no virtual stage",
            with("parallelism", json!({"pp": 2, "virtual_stages": 0, "schedule": "interleaved"})),
            "workload.parallelism.virtual_stages",
            "zero",
        ),
        // Places.
        (
            "overlap",
            with("parallelism", json!({"tp": 2, "map": {"tp": ["0[0:2]"], "dp": [0, 1]}})),
            "workload.parallelism.map",
            "overlap",
        ),
        (
            "whole twice",
            with("parallelism", json!({"tp": 4, "map": {"tp": [0], "dp": [0, 1]}})),
            "workload.parallelism.map",
            "overlap",
        ),
        (
            "left over",
            with("parallelism", json!({"tp": 4, "dp": 2, "map": {"tp": [0], "dp": ["1[0:2]"]}})),
            "workload.parallelism.dp",
            "16 NPUs",
        ),
        (
            "no factor",
            with("parallelism", json!({"tp": 3, "map": {"tp": ["0[0:3]"]}})),
            "workload.parallelism.map.tp",
            "no factor",
        ),
        (
            "no place",
            with("parallelism", json!({"map": {"tp": ["inner"]}})),
            "workload.parallelism.map.tp",
            "no place",
        ),
        (
            "no range",
            with("parallelism", json!({"map": {"tp": ["0[0-2]"]}})),
            "workload.parallelism.map.tp",
            "range",
        ),
        (
            "no dimension",
            with("parallelism", json!({"map": {"tp": [7]}})),
            "workload.parallelism.map.tp",
            "dimensions 0 to 1",
        ),
        (
            "size",
            with("parallelism", json!({"tp": 2, "map": {"tp": [0]}})),
            "workload.parallelism.tp",
            "hold 4",
        ),
        // Numbers.
        (
            "month",
            layers(
                json!([{"name": "a", "repeat": 20, "flops": 1, "forward": "80000 s", "backward": "80000 s"}]),
            ),
            "workload.iterations",
            "days",
        ),
        (
            "passes",
            {
                let mut all = with("parallelism", json!({"microbatches": 4_000_000_000u32}));
                all["batch_per_replica"] = json!(4_000_000_000u32);
                all
            },
            "workload.parallelism.microbatches",
            "passes",
        ),
        ("batch", with("batch_per_replica", json!(0)), "workload.batch_per_replica", "zero"),
        (
            "no batch",
            with("batch_per_replica", Value::Null),
            "workload.batch_per_replica",
            "needs it",
        ),
        ("iterations", with("iterations", json!(0)), "workload.iterations", "zero"),
        (
            "efficiency",
            with("compute.efficiency", json!(1.5)),
            "workload.compute.efficiency",
            "peak",
        ),
        ("scale", with("compute.scale", json!(-1.0)), "workload.compute.scale", "factor"),
        ("peak", with("compute.peak", json!("312 GB/s")), "workload.compute.peak", "unit"),
        (
            "device",
            with("compute", json!({"device": "a1000"})),
            "workload.compute.device",
            "no such device",
        ),
        ("no time", with("compute", json!({})), "workload.compute", "how long"),
        (
            "half measured",
            with("compute", json!({"forward": "1 ms"})),
            "workload.compute.backward",
            "both",
        ),
        (
            "straggler",
            with("stragglers", json!([{"ranks": [16], "factor": 2.0}])),
            "workload.stragglers[0].ranks",
            "no such rank",
        ),
        (
            "no factor of a straggler",
            with("stragglers", json!([{"ranks": [1], "factor": 0.0}])),
            "workload.stragglers[0].factor",
            "multiplied",
        ),
        (
            "jitter",
            with("jitter", json!({"deviation": 0.5})),
            "workload.jitter.deviation",
            "negative",
        ),
        // Models.
        ("no heads", with("model.transformer.heads", json!(0)), "workload.model.heads", "needed"),
        ("heads", with("model.transformer.heads", json!(7)), "workload.model.heads", "hidden"),
        (
            "kv heads",
            with("model.transformer.kv_heads", json!(3)),
            "workload.model.kv_heads",
            "heads",
        ),
        (
            "top k",
            with("model.transformer.experts", json!({"count": 2, "top_k": 3})),
            "workload.model.experts.top_k",
            "so many",
        ),
        ("empty", layers(json!([])), "workload.model.layers", "at least one"),
        (
            "no shape",
            layers(json!([{"name": "a"}])),
            "workload.model.layers[0]",
            "exactly one shape",
        ),
        (
            "two shapes",
            layers(json!([{"name": "a", "flops": 1, "dense": {"inputs": 1, "outputs": 1}}])),
            "workload.model.layers[0]",
            "exactly one shape",
        ),
        (
            "zero size",
            layers(json!([{"name": "a", "dense": {"inputs": 0, "outputs": 1}}])),
            "workload.model.layers[0].dense",
            "zero",
        ),
        (
            "kernel",
            layers(
                json!([{"name": "a", "convolution": {"kernel": [3], "channels": [3, 3], "output": [4, 4]}}]),
            ),
            "workload.model.layers[0].convolution",
            "dimensions",
        ),
        (
            "groups",
            layers(
                json!([{"name": "a", "convolution": {"kernel": [3], "channels": [3, 4], "output": [4], "groups": 2}}]),
            ),
            "workload.model.layers[0].convolution",
            "groups",
        ),
        (
            "overflow",
            layers(json!([{"name": "a", "dense": {"inputs": 1u64 << 40, "outputs": 1u64 << 40}}])),
            "workload.model.layers",
            "overflow",
        ),
        (
            "repeat",
            layers(json!([{"name": "a", "repeat": 0, "flops": 1}])),
            "workload.model.layers[0].repeat",
            "no time",
        ),
        (
            "half a time",
            layers(json!([{"name": "a", "flops": 1, "forward": "1 ms"}])),
            "workload.model.layers[0]",
            "both",
        ),
        (
            "trace",
            {
                let mut all = job(json!({}));
                all["model"] = json!({"trace": "a/b"});
                all
            },
            "workload.model",
            "own step graph",
        ),
        (
            "architecture",
            hugging_face(json!({"model_type": "mamba", "architectures": ["MambaForCausalLM"]})),
            "workload.model.hugging_face.model_type",
            "no attention",
        ),
        (
            "no config",
            hugging_face(json!({"a": 1})),
            "workload.model.hugging_face.model_type",
            "no `config.json`",
        ),
        (
            "no size",
            hugging_face(no_layers),
            "workload.model.hugging_face.num_hidden_layers",
            "needs it",
        ),
        (
            "fraction",
            hugging_face(fraction),
            "workload.model.hugging_face.hidden_size",
            "whole number",
        ),
        ("heads of a config", hugging_face(heads), "workload.model.heads", "hidden"),
        ("huge", hugging_face(huge), "workload.model.hidden", "too large"),
        // Forms.
        ("unknown key", with("paralelism", json!({})), "", "paralelism"),
        (
            "negative time",
            layers(json!([{"name": "a", "flops": 1, "forward": "-1 ms", "backward": "1 ms"}])),
            "",
            "negative",
        ),
        ("negative batch", with("batch_per_replica", json!(-1)), "", "invalid value"),
        ("schedule", with("parallelism", json!({"schedule": "zigzag"})), "", "zigzag"),
        ("precision", with("precision", json!("fp12")), "", "fp12"),
    ];
    for (case, value, field, word) in cases {
        let error = refused(value, &[4, 4]);
        assert_eq!(error.field, field, "{case}: {error}; {}", error.hint);
        let said = format!("{error}; {}", error.hint);
        assert!(said.contains(word), "{case}: `{word}` is not in: {said}");
        assert!(field.is_empty() || !error.hint.is_empty(), "{case} has a hint");
    }
}

/// Numbers that break what is not bounded.
fn number() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![
        0,
        1,
        2,
        3,
        8,
        64,
        1000,
        1 << 14,
        1 << 20,
        (1 << 31) - 1,
        (1 << 32) - 1,
        1 << 40,
        1 << 63,
        u64::MAX,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_number_makes_a_panic(n in prop::collection::vec(number(), 24), sp in any::<bool>()) {
        let transformer = json!({"transformer": {"layers": n[0].min(64), "hidden": n[1],
            "heads": n[2], "kv_heads": n[3], "head_size": n[4], "feed_forward": n[5],
            "vocabulary": n[6], "positions": n[7], "sequence_length": n[8],
            "experts": {"count": n[9].min(u64::from(u32::MAX)), "top_k": n[10] % 3, "shared": n[11]},
            "latent": {"key_value": n[12], "rotary": n[13]}}});
        let layers = json!({"layers": [
            {"name": "a", "dense": {"inputs": n[0], "outputs": n[1], "positions": n[2]}},
            {"name": "b", "convolution": {"kernel": [n[3]], "channels": [n[4], n[5]],
                                          "output": [n[6]], "normalised_channels": n[7]}},
            {"name": "c", "lstm": {"inputs": n[8], "hidden": n[9], "steps": n[10]}},
            {"name": "d", "embedding": {"rows": n[11], "width": n[12], "lookups": n[13]}},
            {"name": "e", "flops": n[14], "parameters": n[15], "output": n[16],
             "repeat": n[17] % 5}]});
        let dlrm = json!({"dlrm": {"tables": n[0], "rows": n[1], "width": n[2], "lookups": n[3],
            "bottom": [n[4], n[5]], "top": [n[6], n[7]]}});
        let config = json!({"hugging_face": {"model_type": "deepseek_v3", "hidden_size": n[0],
            "num_hidden_layers": n[1] % 100, "num_attention_heads": n[2], "vocab_size": n[3],
            "intermediate_size": n[4], "moe_intermediate_size": n[5], "n_routed_experts": n[6],
            "n_shared_experts": n[7], "num_experts_per_tok": n[8], "kv_lora_rank": n[9],
            "qk_rope_head_dim": n[10], "qk_nope_head_dim": n[11], "v_head_dim": n[12]}});
        for model in [transformer, layers, dlrm, config] {
            let value = json!({"model": model, "batch_per_replica": n[18] & 0xFFFF_FFFF,
                "parallelism": {"tp": n[19] % 5, "pp": n[20] % 5, "sp": sp,
                                "microbatches": n[21].min(64)},
                "iterations": n[22] & 0xFFFF_FFFF, "compute": {"device": "a100"}});
            if let Ok(workload) = serde_json::from_value(value) {
                let _ = allrail_workload::build(&workload, &[4, n[23].min(64) as u32]);
            }
        }
    }
}
