"""`allrail.torch.schedule` on a GPU against DDP over gloo: the same parameters, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
from place import Place
from training import Case, compare, scheduled


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Train a model both ways, with two optimizers."""
    del folder
    dist.init_process_group("gloo")
    figures = compare(place, {"native": scheduled(place, "native")}, Case.all())
    if not place.rehearsal:
        figures |= compare(place, {"c10d over gloo": scheduled(place, "c10d")}, Case.all()[:1])
    dist.barrier()
    dist.destroy_process_group()
    return figures
