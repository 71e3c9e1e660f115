"""Megatron-LM: the flags of a layout, as its `arguments.py` of August 2026 (core 0.19) takes them.

What Megatron-LM refuses is in `layouts/tools.py`; what it is told of the model in
`megatron_model.py`. A long test has Megatron-LM's own parser, validation and configurations read
what is written here.
"""

from __future__ import annotations

from collections.abc import Sequence

from allrail import _core
from allrail.search.layouts.tools import DP_INSIDE
from allrail.targets import megatron_model
from allrail.targets.decision import Decision, Inapplicable

ABOUT = "the flags of Megatron-LM for the layout"

_RECIPES = {
    "fp8_delayed": ["--fp8-format hybrid", "--fp8-recipe delayed"],
    "fp8_tensorwise": ["--fp8-format hybrid", "--fp8-recipe tensorwise"],
    "mxfp8": ["--fp8-format e4m3", "--fp8-recipe mxfp8"],
    "nvfp4": ["--fp4-format e2m1", "--fp4-recipe nvfp4"],
}
_GRAPHS = {
    # One graph of a whole step cannot look at a loss before it is over.
    "graph": ["--cuda-graph-impl full_iteration", "--no-check-for-nan-in-loss-and-grad"],
    "graphed_attention": ["--cuda-graph-impl transformer_engine", "--cuda-graph-modules attn"],
}
"""By `compute.launch`."""
_OPTIMIZERS = {
    "momentum": ["--optimizer sgd", "--sgd-momentum 0.9"],
    "sgd": ["--optimizer sgd", "--sgd-momentum 0.0"],
}
_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: Megatron-LM cannot do it.
    """
    decision.needs("megatron")
    sizes = decision.transformer
    if sizes is None:
        raise Inapplicable("Megatron-LM trains transformers, and this model is given otherwise")
    sections = [
        ("ranks", _ranks(decision)),
        ("samples", _samples(decision)),
        ("pipeline", _pipeline(decision)),
        ("states of the optimizer", _states(decision)),
        ("computing", _computing(decision)),
        ("the model", megatron_model.flags(decision, sizes)),
    ]
    before = "CUDA_DEVICE_MAX_CONNECTIONS=1 " if decision.wants_one_connection else ""
    lines = [
        decision.title(),
        f"# {before}torchrun ... pretrain_gpt.py $(grep -v '^#' megatron.args) ...\n",
        "# The last dots are yours: data, tokenizer, learning rate, --train-iters.\n",
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
    nodes = parallelism.get("expert_nodes")
    if nodes:
        flags += [
            f"--moe-router-num-groups {_nodes_of_experts(decision)}",
            f"--moe-router-group-topk {nodes}",
        ]
    return flags


def _nodes_of_experts(decision: Decision) -> int:
    """Over how many places of the first dimension the experts of a layer lie."""
    inner = int(decision.dimensions[0]["size"]) if decision.dimensions else 1
    within = max(1, inner // (decision.degrees["tp"] * decision.degrees["cp"]))
    return max(1, decision.degrees["ep"] // within)


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
    flags = []
    interleaved = parallelism["schedule"] == "interleaved"
    if interleaved and not parallelism["overlap_messages"]:
        flags.append("--no-overlap-p2p-communication")
    if decision.stages and decision.is_uneven:
        ahead = int((decision.transformer or {}).get("next_tokens") or 0)
        return [*flags, f"--pipeline-model-parallel-layout {_layout(decision.layers, ahead)}"]
    if interleaved:
        flags.append(
            f"--num-virtual-stages-per-pipeline-rank {decision.pieces // decision.degrees['pp']}"
        )
    if parallelism["ends_as_layers"]:
        flags += [
            "--account-for-embedding-in-pipeline-split",
            "--account-for-loss-in-pipeline-split",
        ]
    return flags


def _layout(layers: Sequence[int], ahead: int) -> str:
    """Blocks (t), what predicts further tokens (m), embedding (E) and loss (L) of each piece."""
    parts = ["t" * count for count in layers]
    parts[0], parts[-1] = "E" + parts[0], parts[-1] + "m" * ahead + "L"
    return "|".join(parts)


def _states(decision: Decision) -> list[str]:
    parallelism = decision.parallelism
    zero = parallelism["zero"]
    flags = []
    if zero == 1:
        flags.append("--use-distributed-optimizer")
        if parallelism["overlap_parameters"] and parallelism["overlap_gradients"]:
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
    precision = decision.workload["precision"]
    summed = decision.workload.get("gradient_precision") or precision
    if parallelism["overlap_gradients"]:
        flags += ["--overlap-grad-reduce", *_buckets(decision, summed)]
    if (precision, summed) == ("bf16", "bf16"):
        flags.append("--grad-reduce-in-bf16")
    if (precision, summed) == ("fp16", "fp32"):
        flags.append("--accumulate-allreduce-grads-in-fp32")
    return flags


def _buckets(decision: Decision, summed: str) -> list[str]:
    """The size of a bucket, in elements, where the scenario has buckets."""
    # Its Megatron-FSDP, and later stages of a pipeline, have no such buckets.
    plain = decision.degrees["pp"] == 1 and decision.parallelism["zero"] < 2
    if not (plain and decision.reads("bucket")):
        return []

    size = _core.parse_quantity("size", decision.tensor.get("bucket", "25 MiB"))
    flags = [f"--ddp-bucket-size {-(-size // _BYTES[summed])}"]
    if "first_bucket" not in decision.tensor:
        flags.append(
            "# Its first bucket is as large as the others; the scenario's closes at 1 MiB."
        )
    return flags


def _computing(decision: Decision) -> list[str]:
    workload, parallelism = decision.workload, decision.parallelism
    precision = workload["precision"]
    flags = [f"--{precision}"] if precision in ("fp16", "bf16") else []
    recipe = workload["compute"]["recipe"]
    if recipe != "plain":
        flags += _RECIPES[recipe]
    flags += _OPTIMIZERS.get(workload["optimizer"], [])
    if parallelism["recompute"] == "full":
        flags += [
            "--recompute-granularity full",
            "--recompute-method uniform",
            "--recompute-num-layers 1",
        ]
    elif parallelism["recompute"] == "selective":
        flags += ["--recompute-granularity selective", "--recompute-modules core_attn"]
    return flags + _GRAPHS.get(workload["compute"]["launch"], [])
