"""`allrail.torch.schedule` against DDP where both use NCCL; two ranks share the GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
from place import Place
from training import Case, compare, scheduled


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Train a model over allrail's transport and over NCCL's groups."""
    del folder
    place.demand_nccl_of_several()
    dist.init_process_group("nccl")
    ways = {"native": scheduled(place, "native"), "c10d over NCCL": scheduled(place, "c10d")}
    figures = compare(place, ways, Case.all())
    dist.barrier()
    dist.destroy_process_group()
    return figures
