"""NCCL: a file for its tuner plugin, and settings of the environment, each with why.

The file is that of NCCL's own example plugin (`ext-tuner/example`): collective, sizes, algorithm,
protocol, channels, nodes, ranks. NCCL runs one algorithm over all dimensions of a communicator;
that of the outermost of these is written, where most of the time goes. Where algorithms are left
open (`auto`), rows are the sizes at which that dimension was measured to switch (`fastest`), for
communicators that are on it alone; the rest is left to NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import mul

from allrail.apply.decision import Decision, Inapplicable
from allrail.scenario.algorithms import AUTO
from allrail.scenario.fields import parse_quantity

ABOUT = "a file for NCCL's tuner plugin, and settings of its environment"

_ALL = ("allreduce", "allgather", "reducescatter")
_ALGORITHMS = {
    "ring": ("ring", _ALL),
    "double_binary_tree": ("tree", _ALL[:1]),
    "in_network": ("nvls", _ALL),
}
"""Ours; NCCL's name, and what it does by it. What it has not is left to it."""

_COLLECTIVES = dict(zip(("all_reduce", "all_gather", "reduce_scatter"), _ALL, strict=True))
"""Ours, and NCCL's."""

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
            "the scenario names no algorithm that NCCL has: `schedule.algorithms` is left out, or"
            " open where nothing was measured"
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
    rows, left = list[str](), set[str]()
    for axis in _AXES:
        size = decision.degrees[axis]
        if size < 2:
            continue
        outermost = _outermost(decision, axis)
        name = names[outermost]
        if name == AUTO:
            dimension = decision.dimensions[outermost]
            alone = size <= int(dimension["size"])
            points = dimension.get("fastest") or {} if alone else {}
            rows += [row for key in points for row in _by_size(key, points[key], size, left)]
            continue
        if name not in _ALGORITHMS:
            left.add(f"`{name}`")
            continue
        algorithm, operations = _ALGORITHMS[name]
        rows += [f"{one},0,{_MOST},{algorithm},simple,-1,-1,{size}" for one in operations]
    return list(dict.fromkeys(rows)), left


def _by_size(
    operation: str, points: Sequence[Mapping[str, str]], ranks: int, left: set[str]
) -> Iterator[str]:
    """Rows of what was measured; algorithms that NCCL has not go to `left`."""
    ours = _COLLECTIVES.get(operation)
    starts = [0, *(parse_quantity("size", point["from"]) for point in points[1:])]
    ends = [*(start - 1 for start in starts[1:]), _MOST]
    for point, start, end in zip(points, starts, ends, strict=True):
        algorithm, operations = _ALGORITHMS.get(point["algorithm"], ("", ()))
        if ours in operations:
            yield f"{ours},{start},{end},{algorithm},simple,-1,-1,{ranks}"
        else:
            left.add(f"`{point['algorithm']}`")


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
