"""`cpu:allrail,cuda:nccl`: one group, tensors of the host over allrail, those of GPUs over NCCL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from place import NotHere, Place

import allrail.torch.backend  # noqa: F401 - makes the backend known


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Collectives on the host and on the GPU."""
    del folder
    dist.init_process_group("cpu:allrail" if place.rehearsal else "cpu:allrail,cuda:nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tensor = torch.full((1000,), rank + 1.0)
    dist.all_reduce(tensor)
    assert (tensor == sum(range(1, ranks + 1))).all(), tensor[:3]
    figures: dict[str, Any] = {"cpu": "ok", "cuda": "not in a rehearsal"}
    if not place.rehearsal:
        alone = dist.new_group([rank], use_local_synchronization=True)
        own = torch.full((1000,), 7.0, device=place.device)
        dist.all_reduce(own, group=alone)
        torch.cuda.synchronize()
        assert (own == 7.0).all(), own[:3]
        figures["cuda"] = "groups of one rank"
        try:
            place.demand_nccl_of_several()
            shared = torch.full((1000,), rank + 1.0, device=place.device)
            dist.all_reduce(shared)
            torch.cuda.synchronize()
            assert (shared == sum(range(1, ranks + 1))).all(), shared[:3]
            figures["cuda"] = f"{ranks} ranks"
        except NotHere as reason:
            figures["cuda"] += f"; {reason}"
    dist.barrier() if place.rehearsal else dist.all_reduce(torch.zeros(1))
    dist.destroy_process_group()
    return figures
