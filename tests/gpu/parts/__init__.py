"""The parts of the check, a module each with `run(place, folder)`, in the order of `PARTS`."""

from __future__ import annotations

PARTS = {
    "staging": (4, "tensors through pinned host memory, on streams that run late"),
    "schedule": (2, "`schedule` against DDP over gloo, bit for bit"),
    "schedule_nccl": (2, "`schedule` against DDP over NCCL, and `transport=c10d` over NCCL"),
    "backend": (2, "backend `allrail` under DDP with tensors on the GPU"),
    "mixed": (2, "`cpu:allrail,cuda:nccl`"),
    "calibrate": (1, "`allrail calibrate device` and the file that it writes"),
    "predict": (1, "predicted against measured steps of a transformer, eager and compiled"),
}
"""Ranks of each part, and what it checks."""
