"""The flags by which Megatron-LM builds the model that a scenario has: sizes, positions, experts.

What the sizes of a scenario do not say is taken from where it is known: the base of rotary
positions from a Hugging Face configuration, or from the preset. Parts of a model that Megatron-LM
lacks are named in comments: they are left out there, and were counted in the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.scenario.models import rotary_of
from allrail.targets.decision import Decision

_BASE = 10_000
"""Megatron-LM's own base of rotary positions, where the model's is not known."""


def flags(decision: Decision, sizes: Mapping[str, Any]) -> list[str]:
    """Return the flags of the model, and comments.

    Args:
        decision: What a scenario has decided.
        sizes: Of its transformer.
    """
    return [
        *_sizes(sizes),
        *_attention(sizes),
        *_positions(decision, sizes),
        *_experts(decision, sizes),
        *_left_out(sizes),
    ]


def _sizes(sizes: Mapping[str, Any]) -> list[str]:
    found = [
        f"--num-layers {sizes['layers']}",
        f"--hidden-size {sizes['hidden']}",
        f"--num-attention-heads {sizes['heads']}",
        f"--vocab-size {sizes['vocabulary']}",
    ]
    if sizes.get("feed_forward"):
        found.append(f"--ffn-hidden-size {sizes['feed_forward']}")
    if sizes.get("gated"):
        found.append("--swiglu")
    if sizes.get("norms", {}).get("parameters", 2) == 1:
        found.append("--normalization RMSNorm")
    if not any(_biases(sizes)):
        found.append("--disable-bias-linear")
        if sizes["biases"].get("qkv", True):
            found.append("--add-qkv-bias")
    if not sizes.get("tied"):
        found.append("--untie-embeddings-and-output-weights")
    dropout = sizes.get("dropout", 0)
    found += [f"--attention-dropout {dropout}", f"--hidden-dropout {dropout}"]
    if sizes.get("next_tokens"):
        found.append(f"--mtp-num-layers {sizes['next_tokens']}")
    return found


def _biases(sizes: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether attention's output and the feed-forward part have biases: one switch there."""
    said = sizes.get("biases", {})
    return said.get("output", True), said.get("feed_forward", True)


def _attention(sizes: Mapping[str, Any]) -> list[str]:
    latent = sizes.get("latent")
    found = []
    if latent:
        turned = latent.get("rotary", 0)
        found += [
            "--multi-latent-attention",
            *([f"--q-lora-rank {latent['query']}"] if latent.get("query") else []),
            f"--kv-lora-rank {latent['key_value']}",
            f"--qk-head-dim {sizes['head_size'] - turned}",
            f"--qk-pos-emb-head-dim {turned}",
            f"--v-head-dim {sizes['value_size']}",
        ]
    else:
        groups = sizes.get("kv_heads")
        if groups and groups != sizes["heads"]:
            found += ["--group-query-attention", f"--num-query-groups {groups}"]
        if sizes.get("head_size"):
            found.append(f"--kv-channels {sizes['head_size']}")
    if sizes.get("norms", {}).get("query_key"):
        found.append("--qk-layernorm")
    if sizes.get("window"):
        found.append(f"--window-size {sizes['window']},0")
    return found


def _positions(decision: Decision, sizes: Mapping[str, Any]) -> list[str]:
    """How many positions there are, and how the model tells them apart."""
    learned = int(sizes.get("positions") or 0)
    known = rotary_of(decision.scenario.workload.model if decision.scenario.workload else {})
    most = max(learned or int(known.get("positions") or 0), decision.sequence or 0)
    found = [f"--max-position-embeddings {most}"]
    turned = sizes.get("rotary")
    if turned is None:
        turned = not learned and not sizes.get("relative_positions")
    if learned:
        return [*found, "--position-embedding-type learned_absolute"]
    if sizes.get("relative_positions"):
        return [*found, "--position-embedding-type relative"]
    if not turned:
        return [*found, "--position-embedding-type none"]
    found.append("--position-embedding-type rope")
    base = known.get("base")
    if base is None:
        found.append(f"# The base of rotary positions is not known: {_BASE} is Megatron-LM's own.")
    found.append(f"--rotary-base {int(base or _BASE)}")
    if known.get("share"):
        found.append(f"--rotary-percent {known['share']}")
    if known.get("factor"):
        found += (
            [f"--rotary-scaling-factor {known['factor']}"]
            if sizes.get("latent")
            else ["--use-rope-scaling", f"--rope-scaling-factor {known['factor']}"]
        )
    return found


def _experts(decision: Decision, sizes: Mapping[str, Any]) -> list[str]:
    experts = sizes.get("experts")
    if not experts:
        return []
    chosen = experts.get("top_k") or 1
    found = [
        f"--num-experts {experts['count']}",
        f"--moe-router-topk {chosen}",
        "--moe-token-dispatcher-type alltoall",
        "--moe-grouped-gemm",
    ]
    if chosen == 1:
        # A softmax over one value has no gradient.
        found.append("--moe-router-pre-softmax")
    if experts.get("feed_forward"):
        found.append(f"--moe-ffn-hidden-size {experts['feed_forward']}")
    if experts.get("shared"):
        found.append(f"--moe-shared-expert-intermediate-size {experts['shared']}")
        if experts.get("shared_gate"):
            found.append("--moe-shared-expert-gate")
    which = _layers_with_experts(int(sizes["layers"]), experts)
    if which:
        found.append(f"--moe-layer-freq {which}")
    room = decision.parallelism.get("capacity_factor")
    if room:
        found += [
            f"--moe-expert-capacity-factor {room}",
            "--moe-pad-expert-input-to-capacity",
        ]
    return found


def _layers_with_experts(layers: int, experts: Mapping[str, Any]) -> str:
    """As `--moe-layer-freq` has it; empty where all have."""
    dense, every = int(experts.get("first_dense") or 0), int(experts.get("every") or 1)
    if every == 1:
        return f"([0]*{dense}+[1]*{layers - dense})" if dense else ""
    which = [int(at >= dense and (at + 1) % every == 0) for at in range(layers)]
    if not dense and layers % every == 0:
        return f"([0]*{every - 1}+[1]*1)*{layers // every}"
    return "[" + ",".join(map(str, which)) + "]"


def _left_out(sizes: Mapping[str, Any]) -> list[str]:
    """Comments that name what of the model Megatron-LM has not."""
    norms, missing = sizes.get("norms", {}), []
    if sizes.get("rotary") is False and not sizes.get("positions"):
        missing.append("how it tells positions apart (such as ALiBi)")
    if sizes.get("parallel_blocks"):
        missing.append("attention beside the feed-forward part")
    if norms.get("per_layer", 2) not in (1, 2):
        missing.append(f"{norms['per_layer']} norms a layer")
    if norms.get("embedding"):
        missing.append("the norm behind the embedding")
    if sizes.get("biases", {}).get("head"):
        missing.append("the head's bias")
    if sizes.get("embedding_size"):
        missing.append("an embedding of another width")
    if len(set(_biases(sizes))) > 1:
        missing.append("biases in the feed-forward part or in attention's output alone")
    return [f"# Not in Megatron-LM, and left out: {', '.join(missing)}."] if missing else []
