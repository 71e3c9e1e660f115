"""PyTorch's FSDP2: what is sharded over whom, what is given back when, what is fetched ahead."""

from __future__ import annotations

from allrail.targets.decision import Decision

ABOUT = "a function that shards a model's blocks by FSDP2 and sets its prefetches"

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "bfloat16"}


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: FSDP2 cannot do it.
    """
    decision.needs("fsdp")
    parallelism, workload = decision.parallelism, decision.workload
    replicas = decision.replicas
    shard = parallelism.get("shard") or replicas
    reshard = parallelism["zero"] == 3 and parallelism["reshard"]
    ahead = parallelism.get("prefetch") or 1
    base = _DTYPES[workload["precision"]]
    reduced = _DTYPES[workload.get("gradient_precision") or workload["precision"]]
    mesh = (
        f'init_device_mesh(device, ({replicas // shard}, {shard}), mesh_dim_names=("replicate", '
        '"shard"))'
        if shard < replicas
        else f'init_device_mesh(device, ({replicas},), mesh_dim_names=("shard",))'
    )
    others = ", ".join(f"{axis} {decision.degrees[axis]}" for axis in ("tp", "pp", "cp"))
    whole = all(decision.degrees[axis] == 1 for axis in ("tp", "pp", "cp"))
    note = "" if whole else f"# Within {others}: pass the mesh of the replicas.\n"
    text = f'''{decision.title()}{note}
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

AHEAD = {ahead}
"""How many blocks ahead parameters are gathered."""


def shard(model, blocks, *, mesh=None, device="cuda"):
    """Shard a model over {shard} of {replicas} replicas.

    Args:
        model: The whole model.
        blocks: Its layers, in the order of the forward pass, such as `model.layers`.
        mesh: Of the replicas; made if None.
        device: Where the model is.
    """
    mesh = mesh or {mesh}
    policy = MixedPrecisionPolicy(param_dtype=torch.{base}, reduce_dtype=torch.{reduced})
    blocks = list(blocks)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward={reshard})
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward={reshard})
    for at, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[at + 1 : at + 1 + AHEAD])
        block.set_modules_to_backward_prefetch(blocks[max(0, at - AHEAD) : at][::-1])
    return model
'''
    return {"fsdp.py": text}
