"""DDP on the backend `allrail` with tensors on the GPU against DDP over gloo, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from place import Place
from torch.nn.parallel import DistributedDataParallel
from training import Case, Training, compare

import allrail.torch.backend  # noqa: F401 - makes the backend known


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Collectives, then training."""
    del folder
    dist.init_process_group("gloo")
    if place.rehearsal:
        import rehearsed  # noqa: F401 - makes the backend known
    group = dist.new_group(backend="rehearsed" if place.rehearsal else "allrail")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    place.delay(5)
    tensor = torch.full((1000,), rank + 1.0, device=place.device)
    dist.all_reduce(tensor, group=group)
    assert (tensor == sum(range(1, ranks + 1))).all(), tensor[:3]
    rows = [torch.empty(3, device=place.device) for _ in range(ranks)]
    dist.all_gather(rows, torch.full((3,), float(rank), device=place.device), group=group)
    assert [int(row[0]) for row in rows] == list(range(ranks)), rows

    def made(case: Case) -> Training:
        model = case.model(place)
        wrapped = DistributedDataParallel(model, process_group=group)
        return Training(wrapped, case.optimizer(model))

    figures = compare(place, {"backend": made}, Case.all())
    dist.barrier()
    dist.destroy_process_group()
    return figures
