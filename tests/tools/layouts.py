"""Layouts of many kinds, for the tests that hand what `apply` writes to the tools themselves."""

from __future__ import annotations

from math import prod

COMPILED, GRAPH = ({"launch": one} for one in ("compiled", "graph"))
PIPE = {"tp": 8, "sp": True, "global_batch": 512}
WORKLOAD = ("global_batch", "micro_batch", "sequence_length", "precision", "gradient_precision")


def layout(model, npus, compute=None, *, flat=False, **keys):
    """A scenario of `npus` ranks, on one dimension if `flat`; `dp` is what remains of them."""
    one = {"kind": "switch", "size": npus, "bandwidth": "50 GB/s", "latency": "5 us"}
    top = {key: keys.pop(key) for key in WORKLOAD if key in keys}
    degrees = prod(keys.get(axis, 1) for axis in ("tp", "pp", "cp", "ep"))
    return {
        "schema_version": 1,
        "fabric": {"dimensions": [one]} if flat else "dgx-h100",
        "workload": {
            "model": model,
            "global_batch": npus,
            "micro_batch": 1,
            "precision": "bf16",
            "gradient_precision": "fp32",
            "parallelism": {"dp": npus // degrees, **keys},
            # No layout is refused for its memory: the tools do not look at it.
            "compute": {"device": "h100", "memory": "9 TB", **(compute or {})},
            **top,
        },
    }


LLAMA = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "vocab_size": 32003}
LLAMA |= {"num_attention_heads": 32, "num_key_value_heads": 4, "intermediate_size": 5632}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
TIED = LLAMA | {"tie_word_embeddings": True, "rope_theta": 5e5, "rope_scaling": SCALED}
TIED |= {"max_position_embeddings": 131072, "head_dim": 64}
GLM = LLAMA | {"model_type": "glm", "partial_rotary_factor": 0.5, "head_dim": 128}
GLM |= {"attention_bias": True, "num_hidden_layers": 40, "max_position_embeddings": 8192}
V3 = {"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61} | {
    "num_attention_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "rope_theta": 10000,
}

BUCKETS = {"tensor": {"policy": "ddp", "bucket": "100 MB", "first_bucket": "100 MB"}}

MEGATRON = [
    layout("llama3_8b", 64, zero=1, global_batch=128),
    {**layout("llama3_8b", 64, zero=1), "schedule": BUCKETS},
    layout("llama3_8b", 64, zero=1, gradient_precision="bf16"),
    layout("llama3_8b", 64, zero=1, overlap_gradients=False),
    layout("llama3_8b", 64, zero=1, overlap_parameters=False, precision="fp32"),
    layout("llama3_8b", 64, zero=0, precision="fp16", gradient_precision="fp16"),
    layout("llama3_8b", 64, zero=1, precision="fp16"),
    layout("llama3_8b", 64, zero=2),
    layout("llama3_8b", 64, zero=3, cp=4, shard=8, sequence_length=32768),
    layout("llama3_8b", 64, zero=1, cp=4, context="all_gather", sequence_length=32768),
    layout("llama3_8b", 64, zero=1, tp=2, sp=True, async_tp=True, pp=2),
    layout("llama3_8b", 64, zero=1, pp=4, schedule="interleaved", overlap_messages=False),
    layout("llama3_8b", 64, zero=1, pp=2, schedule="interleaved", virtual_stages=4),
    layout("llama3_8b", 64, zero=1, tp=4, compute=GRAPH, recompute="full"),
    layout("llama3_8b", 64, zero=1, compute={"launch": "graphed_attention"}),
    *(
        layout("llama3_8b", 64, zero=1, compute={"recipe": recipe, "device": "b200"})
        for recipe in ("fp8_delayed", "fp8_tensorwise", "mxfp8", "nvfp4")
    ),
    layout("llama3_70b", 512, zero=1, pp=4, **PIPE),
    layout("llama3_70b", 512, zero=1, pp=4, stages=[19, 21, 21, 19], **PIPE),
    layout("llama3_405b", 512, zero=1, pp=8, **PIPE),
    layout("llama3_405b", 512, zero=1, pp=8, ends_as_layers=True, recompute="full", **PIPE),
    layout(
        "llama3_405b",
        512,
        zero=1,
        pp=8,
        schedule="interleaved",
        virtual_stages=4,
        ends_as_layers=True,
        **PIPE,
    ),
    layout("gpt3_175b", 512, pp=8, recompute="selective", **PIPE),
    layout("gpt3_175b", 512, pp=8, schedule="interleaved", virtual_stages=3, **PIPE),
    layout("gpt2", 8, global_batch=64, micro_batch=8),
    layout("mpt_7b", 64, zero=3),
    layout("bloom", 384, tp=4, pp=12, global_batch=512, micro_batch=2),
    layout("qwen3_8b", 64, tp=4, sp=True, zero=1),
    layout("mixtral_8x7b", 64, tp=2, ep=8, sp=True, zero=1, capacity_factor=1.25),
    layout("qwen3_30b_a3b", 64, ep=8, pp=4, zero=1, schedule="interleaved", global_batch=256),
    layout("gpt_oss_20b", 64, ep=8, zero=1),
    layout("gpt3_moe", 64, ep=16),
    layout("llama4_scout", 64, tp=8, ep=8, sp=True, zero=1),
    layout("llama4_maverick", 512, pp=2, ep=32, zero=1, **PIPE),
    layout("deepseek_v3", 512, pp=8, ep=64, zero=1, global_batch=512),
    layout("kimi_k2", 512, pp=8, tp=2, ep=32, sp=True, zero=1, expert_nodes=2, global_batch=512),
    layout({"hugging_face": V3}, 512, pp=8, ep=32, zero=1, global_batch=512),
    layout({"hugging_face": V3}, 512, pp=8, ep=32, schedule="interleaved", global_batch=512),
    layout({"hugging_face": TIED}, 64, tp=2, sp=True, pp=2, sequence_length=8192),
    layout({"hugging_face": GLM}, 64, tp=4, sp=True),
]

# It numbers stages outside of replicas: `flat` where that is another dimension.
TORCHTITAN = [
    layout("llama3_8b", 64, zero=3, global_batch=128),
    layout("llama3_8b", 64, zero=3, shard=8, global_batch=256, micro_batch=2, compute=COMPILED),
    layout("llama3_8b", 64, zero=3, reshard=False),
    layout("llama3_8b", 64, zero=2, recompute="alternate"),
    layout("llama3_8b", 64, zero=2, recompute="full", precision="fp32"),
    layout("llama3_8b", 64, zero=0),
    layout("llama3_8b", 64, zero=0, tp=2, sp=True),
    layout("llama3_8b", 64, zero=3, tp=2),
    layout("llama3_8b", 64, zero=3, tp=8, sp=True, async_tp=True, compute=COMPILED),
    layout("llama3_8b", 64, zero=3, cp=4, sequence_length=32768),
    layout("llama3_8b", 64, zero=3, cp=4, context="all_gather", sequence_length=32768),
    layout("llama3_8b", 64, zero=2, pp=4, schedule="zero_bubble", global_batch=256, flat=True),
    layout(
        "llama3_8b", 64, zero=2, pp=4, schedule="gpipe", global_batch=256, micro_batch=2, flat=True
    ),
    layout("llama3_8b", 64, zero=3, compute={"recipe": "fp8_rowwise", "launch": "compiled"}),
    layout("llama3_8b", 64, zero=3, compute={"recipe": "fp8_tensorwise", "launch": "graph"}),
    layout("llama3_70b", 256, zero=3, pp=4, recompute="full", **PIPE),
    layout("llama3_70b", 256, zero=2, pp=4, schedule="interleaved", virtual_stages=2, **PIPE),
    layout("llama3_70b", 256, zero=2, pp=4, schedule="interleaved", virtual_stages=4, **PIPE),
    layout("llama3_70b", 256, zero=2, pp=4, schedule="interleaved", virtual_stages=3, **PIPE),
    layout("llama3_70b", 256, zero=2, pp=4, stages=[19, 21, 21, 19], **PIPE),
    layout("llama3_70b", 256, zero=0, pp=4, ends_as_layers=True, **PIPE),
    layout("qwen3_30b_a3b", 64, zero=3, ep=8),
    layout("deepseek_v3", 512, zero=2, pp=8, ep=32, global_batch=512, flat=True),
]
"""Of models that torchtitan has; it does not read their sizes from flags."""

REGISTERED = {
    "llama3_8b": ("llama3", "llama3_8b"),
    "llama3_70b": ("llama3", "llama3_70b"),
    "qwen3_30b_a3b": ("qwen3", "qwen3_30b_a3b"),
    "deepseek_v3": ("deepseek_v3", "deepseek_v3_671b"),
}
"""By our name: torchtitan's package of the model, and a configuration that it has registered."""
