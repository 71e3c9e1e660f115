"""Claims of HammingMesh's text about moving and placing jobs, each beside what it gives.

What follows from counts alone is in `arithmetic`.

A job that moves sends the memory of its NPUs; the paper says that 64 GiB leave in under 80 ms. At
the 800 GB/s that an NPU injects, 64 GiB take 85.9 ms; 64 GB take 80.0. It also says that the
largest job finds its boards in under a second on a mesh of a million: a time of this machine.
"""

from __future__ import annotations

import time

from allrail.scenario import GraphFabric
from allrail.simulation.placement import place
from allrail_reproduce.hammingmesh import arithmetic
from allrail_reproduce.hammingmesh.published import PLACEMENT
from allrail_reproduce.published import less_than
from allrail_reproduce.rows import Row

MEMORY = 64 * 2**30
"""Bytes of an NPU."""
INJECTION = 800e9
"""Bytes/s of an NPU, 16 planes of 400 Gb/s."""

_UNITS = "64 GiB at 800 GB/s; 64 GB take 80.0 ms: the claim counts in GB"


SIDE = 1000
"""Boards of a row and of a column."""
MILLION = {
    "name": "a million boards",
    "topology": "hammingmesh",
    "board": [2, 2],
    "grid": [SIDE, SIDE],
    "switch_radix": 64,
    "planes": 1,
    "link": {"bandwidth": "400 Gb/s", "latency": "60 ns"},
}


def rows(*, jobs: bool) -> list[Row]:
    """Every claim beside what its numbers give.

    Args:
        jobs: Whether a job is placed, too.
    """
    moved = Row(
        "64 GiB of an NPU sent away",
        1e3 * MEMORY / INJECTION,
        less_than(80.0, PLACEMENT),
        "ms",
        within=0.0,
        how="size over injection",
        why=_UNITS,
    )
    counted = [moved, *arithmetic.rows()]
    return [*counted, _placed()] if jobs else counted


def _placed() -> Row:
    """One job of all boards on an empty mesh."""
    fabric = GraphFabric.model_validate(MILLION)
    begin = time.perf_counter()
    place(fabric, mix=[(SIDE * SIDE, 1)], count=1, unit="boards")
    took = time.perf_counter() - begin
    case, how = f"a job of {SIDE}x{SIDE} boards placed", "the whole mesh; a time of this machine"
    return Row(case, took, less_than(1.0, PLACEMENT), "s", within=0.0, how=how)
