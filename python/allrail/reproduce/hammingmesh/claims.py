"""Claims of HammingMesh's text that follow from arithmetic: memory sent away, injection, bisection.

A job that moves sends the memory of its NPUs; the paper says that 64 GiB leave in under 80 ms. At
the 800 GB/s that an NPU injects, 64 GiB take 85.9 ms; 64 GB take 80.0.
"""

from __future__ import annotations

from allrail.reproduce.hammingmesh.published import PLACEMENT
from allrail.reproduce.published import less_than
from allrail.reproduce.rows import Row

MEMORY = 64 * 2**30
"""Bytes of an NPU."""
INJECTION = 800e9
"""Bytes/s of an NPU, 16 planes of 400 Gb/s."""

_UNITS = "64 GiB at 800 GB/s; 64 GB take 80.0 ms: the claim counts in GB"


def rows() -> list[Row]:
    """Every claim beside what its numbers give."""
    return [
        Row(
            "64 GiB of an NPU sent away",
            1e3 * MEMORY / INJECTION,
            less_than(80.0, PLACEMENT),
            "ms",
            within=0.0,
            how="size over injection",
            why=_UNITS,
        )
    ]
