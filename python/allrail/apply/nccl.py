"""NCCL: a file for its tuner plugin, and settings of the environment, each with why.

The file is that of NCCL's own example plugin (`ext-tuner/example`): collective, sizes, algorithm,
protocol, channels, nodes, ranks. NCCL runs one algorithm over all dimensions of a communicator;
that of the outermost of these is written, where most of the time goes.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from allrail.apply.decision import Decision, Inapplicable

ABOUT = "a file for NCCL's tuner plugin, and settings of its environment"

_ALL = ("allreduce", "allgather", "reducescatter")
_ALGORITHMS = {
    "ring": ("ring", _ALL),
    "double_binary_tree": ("tree", _ALL[:1]),
    "in_network": ("nvls", _ALL),
}
"""Ours; NCCL's name, and what it does by it. What it has not is left to it."""

_MOST = 4_294_967_295
"""All sizes, as its README has it."""

_AXES = ("tp", "dp")
"""Whose collectives these are."""


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: It has decided nothing that NCCL can be told.
    """
    rows, left = _rows(decision)
    settings = _settings(decision, tuned=bool(rows))
    if not rows and not settings:
        raise Inapplicable(
            "the scenario names no algorithm that NCCL has: `schedule.algorithms` is left out"
            if not left
            else f"NCCL has no {', '.join(sorted(left))}"
        )
    found = {}
    if rows:
        found["nccl_tuner.csv"] = (
            decision.title()
            + "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n"
            + "".join(f"{row}\n" for row in rows)
        )
    head = decision.title()
    head += "# set -a; . ./nccl.env; set +a\n"
    found["nccl.env"] = head + "".join(
        f"# {why}\n{name}={value}\n" for name, value, why in settings
    )
    return found


def _rows(decision: Decision) -> tuple[list[str], set[str]]:
    """Rows of the tuner's file, and algorithms that NCCL has not."""
    named = decision.schedule.get("algorithms")
    if not named:
        return [], set()
    names = [named] * max(1, len(decision.dimensions)) if isinstance(named, str) else list(named)
    rows, left = [], set()
    for axis in _AXES:
        size = decision.degrees[axis]
        if size < 2:
            continue
        name = names[_outermost(decision, axis)]
        if name not in _ALGORITHMS:
            left.add(f"`{name}`")
            continue
        algorithm, operations = _ALGORITHMS[name]
        rows += [f"{one},0,{_MOST},{algorithm},simple,-1,-1,{size}" for one in operations]
    return list(dict.fromkeys(rows)), left


def _outermost(decision: Decision, axis: str) -> int:
    """The outermost dimension that an axis lies on."""
    places = decision.parallelism.get("map", {}).get(axis)
    if places:
        return max(int(str(place).partition("[")[0]) for place in places)
    sizes = [int(one["size"]) for one in decision.dimensions]
    inner = 1 if axis == "tp" else decision.npus // decision.degrees[axis]
    reached = accumulate(sizes, mul)
    span = inner * decision.degrees[axis]
    return next((at for at, ranks in enumerate(reached) if ranks >= span), 0)


def _settings(decision: Decision, *, tuned: bool) -> list[tuple[str, str, str]]:
    settings = []
    if tuned:
        settings += [
            (
                "NCCL_TUNER_PLUGIN",
                "libnccl-tuner-example.so",
                "NCCL's example plugin (ext-tuner/example, `make`), which reads the file below.",
            ),
            ("NCCL_TUNER_CONFIG_FILE", "nccl_tuner.csv", "Which algorithm for which ranks."),
        ]
    if any(one.get("in_network_reduction") for one in decision.dimensions[:1]):
        settings.append(
            ("NCCL_NVLS_ENABLE", "1", "The innermost switch reduces: NVLink SHARP is counted on.")
        )
    degrees, parallelism = decision.degrees, decision.parallelism
    overlaps = parallelism["sp"] or degrees["cp"] > 1
    if degrees["tp"] > 1 and overlaps and parallelism["zero"] < 3:
        settings.append(
            (
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "1",
                "Kernels start in the program's order, communication before what hides it.",
            )
        )
    return settings
