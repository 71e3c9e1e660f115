"""Tensors on a GPU through pinned host memory, between processes that share the GPU.

Each tensor is filled on a stream of its own behind a kernel that lasts, dropped before its exchange
is over, and its memory offered to others meanwhile. Sums are small whole numbers: exact.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
from place import Place

from allrail.runtime.agreement import Agreement
from allrail.torch.native import Native
from allrail.torch.staging import Staged
from allrail.torch.store import store_of_job

SHAPES = ((1,), (1000,), (257, 129), (1 << 20,), (3, 5, 7))
STEPS = 12


def run(place: Place, folder: Path) -> dict[str, Any]:
    """Exchange tensors for some steps; every sum is right."""
    del folder
    store, rank, ranks = store_of_job()
    staged = Staged(Native(rank, ranks, Agreement(store, rank, ranks, "gpu")), place.staging())
    weights = torch.full((10,), rank + 3.0, device=place.device)
    staged.broadcast([weights])
    _demand((weights == 3.0).all(), "a broadcast of rank 0's tensor")
    keys = [
        staged.register(f"tensor {i}", torch.float32, shape, torch.empty(shape).stride(), i)
        for i, shape in enumerate(SHAPES)
    ]
    staged.start()
    begun = time.perf_counter()
    checked = 0
    for step in range(STEPS):
        under_way: list[tuple[int, int, int, torch.Tensor | None]] = []
        for i, (key, shape) in enumerate(zip(keys, SHAPES, strict=True)):
            lacks = (rank, i) == (ranks - 1, step % 5)
            begin = staged.unused if lacks else staged.submit
            with place.other_stream() if (i + step) % 3 == 0 else contextlib.nullcontext():
                tensor = _late(place, shape, 10 * step + i + rank)
                generation = begin(key, tensor)
            dropped = (i + step) % 4 == 0
            under_way.append((i, key, generation, None if dropped else tensor))
            del tensor
            torch.full(shape, -1e9, device=place.device)  # takes memory that was freed too early
        for i, key, generation, kept in under_way:
            staged.wait(key, generation)
            if kept is not None:
                giving = ranks - 1 if i == step % 5 else ranks
                total = sum(10 * step + i + each for each in range(giving))
                _demand((kept == total).all(), f"tensor {i} of step {step}: {kept.flatten()[:3]}")
                checked += 1
    took = time.perf_counter() - begun
    staged.close()
    return {"ranks": ranks, "sums_checked": checked, "ms_per_step": 1e3 * took / STEPS}


def _late(place: Place, shape: tuple[int, ...], value: float) -> torch.Tensor:
    """Return a tensor that gets its value some milliseconds after this returns."""
    tensor = torch.empty(shape, device=place.device)
    place.delay(2)
    return tensor.fill_(value)


def _demand(holds: Any, what: str) -> None:
    if not bool(holds):
        raise AssertionError(f"wrong: {what}")
