"""What `allrail apply` writes for FSDP2 shards a model so."""

from __future__ import annotations

import runpy

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: `allrail[torch]`")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from allrail.apply import apply  # noqa: E402

try:
    from torch.distributed.fsdp import FSDPModule
except ImportError:  # FSDP2 is public since torch 2.6.
    pytest.skip("this torch has no public FSDP2", allow_module_level=True)
if not hasattr(torch.cpu.Stream, "record_event"):
    pytest.skip("this torch has no FSDP2 on CPUs", allow_module_level=True)

SCENARIO = {
    "schema_version": 1,
    "fabric": {
        "dimensions": [{"kind": "switch", "size": 2, "bandwidth": "10 Gb/s", "latency": "10 us"}]
    },
    "workload": {
        "model": "gpt2_xl",
        "batch_per_replica": 1,
        "precision": "bf16",
        "gradient_precision": "fp32",
        "parallelism": {"zero": 3, "prefetch": 2},
        "compute": {"device": "a100"},
    },
}


def sharded(rank, path):
    shard = runpy.run_path(path)["shard"]
    torch.manual_seed(0)
    blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
    model = nn.Sequential(*blocks)
    shard(model, blocks, device="cpu")
    loss = model(torch.ones(2, 8)).square().sum()
    loss.backward()
    weight = blocks[0].weight
    return (
        all(isinstance(block, FSDPModule) for block in blocks),
        tuple(weight.to_local().shape),
        weight.grad is not None,
        dist.get_world_size(),
    )


def test_the_file_shards_blocks_over_the_replicas(on_ranks, tmp_path):
    apply(SCENARIO, tmp_path, targets=["fsdp"])
    path = str(tmp_path / "fsdp.py")
    found = on_ranks(lambda rank: sharded(rank, path), ranks=2, group=True)
    assert found == [(True, (4, 8), True, 2)] * 2
