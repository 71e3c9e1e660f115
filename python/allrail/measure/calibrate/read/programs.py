"""What nccl-tests' programs are called, and what their mistakes mean: for its text and its JSON."""

from __future__ import annotations

import re

COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "sendrecv",
    "reduce": "reduce",
}
"""Our collectives by what a program's name starts with."""

PROGRAM = re.compile(r"\b(" + "|".join(COLLECTIVES) + r")(?:_perf|_bench)")
"""A program's name; its group is a key of `COLLECTIVES`."""

MISTAKES = "a network that makes mistakes is no basis: find the cause, run it again"
"""The hint where a result was wrong."""

_FORCED = re.compile(
    r"\bNCCL_ALGO(?:=|\s+set by environment to\s+)[\"']?(?P<name>[A-Za-z]+)(?![A-Za-z,:;^])"
)


def algorithm_of(line: str) -> str | None:
    """Return the algorithm that a line says NCCL was made to run, in lower case.

    A list of several, or one that excludes some, leaves the choice to NCCL and gives None.

    Args:
        line: Of a log, a command or an environment.
    """
    found = _FORCED.search(line)
    return found["name"].lower() if found else None
