"""Megatron-LM: the flags of a layout (names of its `arguments.py`, core 0.12 and later)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allrail.apply.decision import Decision
from allrail.layouts.tools import DP_INSIDE

ABOUT = "the flags of Megatron-LM for the layout"

_RECIPES = {
    "fp8_delayed": ["--fp8-format hybrid", "--fp8-recipe delayed"],
    "fp8_tensorwise": ["--fp8-format hybrid", "--fp8-recipe tensorwise"],
    "mxfp8": ["--fp8-format e4m3", "--fp8-recipe mxfp8"],
    "nvfp4": ["--fp4-format e2m1", "--fp4-recipe nvfp4"],
}
_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: Megatron-LM cannot do it.
    """
    decision.needs("megatron")
    sections = [
        ("ranks", _ranks(decision)),
        ("samples", _samples(decision)),
        ("pipeline", _pipeline(decision)),
        ("states of the optimizer", _states(decision)),
        ("computing", _computing(decision)),
        ("the model", _model(decision)),
    ]
    lines = [
        decision.title(),
        "# torchrun ... pretrain_gpt.py $(grep -v '^#' megatron.args)\n",
    ]
    for name, flags in sections:
        if flags:
            lines += [f"# {name}\n", *(f"{flag}\n" for flag in flags)]
    return {"megatron.args": "".join(lines)}


def _ranks(decision: Decision) -> list[str]:
    degrees, parallelism = decision.degrees, decision.parallelism
    flags = [
        f"--tensor-model-parallel-size {degrees['tp']}",
        f"--pipeline-model-parallel-size {degrees['pp']}",
    ]
    if degrees["cp"] > 1:
        way = "all_gather" if parallelism["context"] == "all_gather" else "p2p"
        flags += [f"--context-parallel-size {degrees['cp']}", f"--cp-comm-type {way}"]
    if degrees["pp"] > 1 and DP_INSIDE not in decision.numberings:
        flags.append("--use-tp-pp-dp-mapping")
    if degrees["ep"] > 1:
        flags.append(f"--expert-model-parallel-size {degrees['ep']}")
    if parallelism["sp"] and degrees["tp"] > 1:
        flags.append("--sequence-parallel")
    if parallelism["async_tp"]:
        flags.append("--tp-comm-overlap")
    return flags


def _samples(decision: Decision) -> list[str]:
    flags = [
        f"--micro-batch-size {decision.micro_batch}",
        f"--global-batch-size {decision.global_batch}",
    ]
    if decision.sequence:
        flags.append(f"--seq-length {decision.sequence}")
    return flags


def _pipeline(decision: Decision) -> list[str]:
    if decision.degrees["pp"] == 1:
        return []
    parallelism = decision.parallelism
    if decision.stages and decision.is_uneven:
        return [f"--pipeline-model-parallel-layout {_layout(decision.layers)}"]
    flags = []
    if parallelism["schedule"] == "interleaved":
        flags.append(
            f"--num-virtual-stages-per-pipeline-rank {decision.pieces // decision.degrees['pp']}"
        )
    if parallelism["ends_as_layers"]:
        flags += [
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ]
    return flags


def _layout(layers: Sequence[int]) -> str:
    parts = ["t" * count for count in layers]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "L"
    return "|".join(parts)


def _states(decision: Decision) -> list[str]:
    parallelism = decision.parallelism
    zero = parallelism["zero"]
    flags = []
    if zero == 1:
        flags.append("--use-distributed-optimizer")
        if parallelism["overlap_parameters"]:
            flags.append("--overlap-param-gather")
    if zero > 1:
        flags += [
            "--use-megatron-fsdp",
            f"--data-parallel-sharding-strategy {_SHARDED[zero]}",
            "--use-distributed-optimizer",
            "--ckpt-format fsdp_dtensor",
            "# Megatron-FSDP wants CUDA_DEVICE_MAX_CONNECTIONS unset, or above 1.",
        ]
    shard = parallelism.get("shard")
    if zero and shard and shard < decision.replicas:
        flags.append(f"--num-distributed-optimizer-instances {decision.replicas // shard}")
    if parallelism["overlap_gradients"]:
        flags.append("--overlap-grad-reduce")
    if (decision.workload.get("gradient_precision") or "") == "bf16":
        flags.append("--grad-reduce-in-bf16")
    return flags


def _computing(decision: Decision) -> list[str]:
    workload, parallelism = decision.workload, decision.parallelism
    precision = workload["precision"]
    flags = [f"--{precision}"] if precision in ("fp16", "bf16") else []
    recipe = workload["compute"]["recipe"]
    if recipe != "plain":
        flags += _RECIPES[recipe]
    if parallelism["recompute"] == "full":
        flags += [
            "--recompute-granularity full",
            "--recompute-method uniform",
            "--recompute-num-layers 1",
        ]
    elif parallelism["recompute"] == "selective":
        flags += ["--recompute-granularity selective", "--recompute-modules core_attn"]
    if decision.graphs:
        flags.append("--cuda-graph-impl local")
    return flags


def _model(decision: Decision) -> list[str]:
    sizes = decision.transformer
    if sizes is None:
        return []
    flags = [
        f"--num-layers {sizes['layers']}",
        f"--hidden-size {sizes['hidden']}",
        f"--num-attention-heads {sizes['heads']}",
    ]
    if sizes.get("feed_forward"):
        flags.append(f"--ffn-hidden-size {sizes['feed_forward']}")
    groups = sizes.get("kv_heads")
    if groups and groups != sizes["heads"]:
        flags += ["--group-query-attention", f"--num-query-groups {groups}"]
    if sizes.get("gated"):
        flags.append("--swiglu")
    if sizes.get("norms", {}).get("parameters", 2) == 1:
        flags.append("--normalization RMSNorm")
    latent = sizes.get("latent")
    if latent:
        turned = latent.get("rotary", 0)
        flags += [
            "--multi-latent-attention",
            *([f"--q-lora-rank {latent['query']}"] if latent.get("query") else []),
            f"--kv-lora-rank {latent['key_value']}",
            f"--qk-head-dim {sizes['head_size'] - turned}",
            f"--qk-pos-emb-head-dim {turned}",
            f"--v-head-dim {sizes['value_size']}",
        ]
    elif sizes.get("head_size"):
        flags.append(f"--kv-channels {sizes['head_size']}")
    if not any(sizes.get("biases", {"qkv": True}).values()):
        flags.append("--disable-bias-linear")
    if not sizes.get("positions") and not sizes.get("relative_positions"):
        flags.append("--position-embedding-type rope")
    if not sizes.get("tied"):
        flags.append("--untie-embeddings-and-output-weights")
    flags += [
        f"--attention-dropout {sizes.get('dropout', 0)}",
        f"--hidden-dropout {sizes.get('dropout', 0)}",
    ]
    if sizes.get("next_tokens"):
        flags.append(f"--mtp-num-layers {sizes['next_tokens']}")
    return flags + _experts(decision, sizes.get("experts"))


def _experts(decision: Decision, experts: dict[str, Any] | None) -> list[str]:
    if not experts:
        return []
    flags = [
        f"--num-experts {experts['count']}",
        f"--moe-router-topk {experts.get('top_k') or 1}",
        "--moe-token-dispatcher-type alltoall",
        "--moe-grouped-gemm",
    ]
    if experts.get("feed_forward"):
        flags.append(f"--moe-ffn-hidden-size {experts['feed_forward']}")
    if experts.get("shared"):
        flags.append(f"--moe-shared-expert-intermediate-size {experts['shared']}")
    dense = experts.get("first_dense")
    if dense:
        with_experts = int((decision.transformer or {})["layers"]) - dense
        flags.append(f"--moe-layer-freq ([0]*{dense}+[1]*{with_experts})")
    room = decision.parallelism.get("capacity_factor")
    if room:
        flags.append(f"--moe-expert-capacity-factor {room}")
    return flags
