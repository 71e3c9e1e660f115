"""NCCL: settings of the environment, each with why, and a file for its tuner plugin.

An algorithm that a scenario names is `NCCL_ALGO`: which protocol (LL, LL128, Simple) carries a size
stays NCCL's to choose, since nothing was measured of it. Where algorithms are left open (`auto`),
rows of the plugin's file are the sizes at which a dimension was measured to switch (`fastest`), for
communicators that are on it alone. A row has to name a protocol, so it begins where NCCL's own
tuner (`calibrate/nccl`) takes Simple for the algorithm; what is smaller is left to NCCL.

The file is that of NCCL's example plugin (`plugins/tuner/example`; `ext-tuner/example` before):
collective, sizes, algorithm, protocol, channels, nodes, ranks, operations in a pipeline, registered
buffers. As it stands that plugin answers one channel wherever a row says -1, and where no row fits,
and NCCL takes that (`enqueue.cc`); so the file of settings says how to build it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from allrail.measure.calibrate.nccl import cluster_of, fastest, ways
from allrail.scenario.algorithms import AUTO
from allrail.scenario.fields import parse_quantity
from allrail.targets.decision import Decision, Inapplicable

ABOUT = "a file for NCCL's tuner plugin, and settings of its environment"

_ALL = ("allreduce", "allgather", "reducescatter")
_ALGORITHMS = {
    "ring": ("ring", _ALL),
    "double_binary_tree": ("tree", _ALL[:1]),
    "in_network": ("nvls", _ALL),
}
"""Ours; NCCL's name, and what it does by it. What it has not is left to it."""

_EVERYWHERE = _ALGORITHMS["ring"][0]
"""What NCCL has for every collective and communicator."""

_COLLECTIVES = dict(zip(("all_reduce", "all_gather", "reduce_scatter"), _ALL, strict=True))
"""Ours, and NCCL's."""

_MOST = 2**64 - 1
"""All sizes: the plugin reads a `size_t`."""

_AXES = ("tp", "dp")
"""Whose collectives these are."""

_BUILD = """\
NCCL's example plugin reads the file below. As it stands it answers one channel for all that says
# -1. In plugins/tuner/example: sed -i 's/nChannels = 1;/nChannels = 0;/' plugin.c && make"""

_SIZES = tuple(2**power for power in range(10, 33))
"""At which protocols are compared, bytes."""


@dataclass(slots=True)
class _Said:
    """What a scenario says of algorithms.

    Attributes:
        rows: Of the plugin's file.
        smaller: Comments: what was measured and is left to NCCL, with its protocols.
        named: By NCCL's collective, its names of algorithms that run.
        unknown: Algorithms that NCCL has not.
    """

    rows: list[str] = field(default_factory=list)
    smaller: list[str] = field(default_factory=list)
    named: dict[str, list[str]] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


def files(decision: Decision) -> dict[str, str]:
    """Return the text of files by name.

    Args:
        decision: What a scenario has decided.

    Raises:
        Inapplicable: It has decided nothing that NCCL can be told.
    """
    said = _said(decision)
    settings = _settings(decision, said)
    if not said.rows and not settings:
        if said.smaller:
            raise Inapplicable("what was measured runs in LL or LL128, which are left to NCCL")
        raise Inapplicable(
            "the scenario names no algorithm that NCCL has: `schedule.algorithms` is left out, or"
            " open where nothing was measured"
            if not said.unknown
            else f"NCCL has no {', '.join(sorted(said.unknown))}"
        )
    found = {}
    if said.rows:
        found["nccl_tuner.csv"] = (
            decision.title()
            + "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,"
            + "numPipeOps,regBuff\n"
            + "".join(f"{row}\n" for row in [*said.rows, *said.smaller])
        )
    head = decision.title()
    head += "# set -a; . ./nccl.env; set +a\n"
    found["nccl.env"] = head + "".join(
        f"# {why}\n{name}={value}\n" for name, value, why in settings
    )
    return found


def _said(decision: Decision) -> _Said:
    """What the scenario says of the algorithms of each axis."""
    named, said = decision.schedule.get("algorithms"), _Said()
    if not named:
        return said
    names = [named] * max(1, len(decision.dimensions)) if isinstance(named, str) else list(named)
    for axis in _AXES:
        size = decision.degrees[axis]
        if size < 2:
            continue
        outermost = _outermost(decision, axis)
        name = names[outermost]
        if name == AUTO:
            if size <= int(decision.dimensions[outermost]["size"]):
                _measured(decision, outermost, size, said)
        elif name not in _ALGORITHMS:
            said.unknown.add(f"`{name}`")
        else:
            algorithm, operations = _ALGORITHMS[name]
            for operation in operations:
                ours = said.named.setdefault(operation, [])
                ours += [algorithm] * (algorithm not in ours)
    return said


def _measured(decision: Decision, place: int, ranks: int, said: _Said) -> None:
    """Rows of the sizes at which a dimension was measured to switch."""
    dimension = decision.dimensions[place]
    for operation, points in (dimension.get("fastest") or {}).items():
        ours = _COLLECTIVES.get(operation)
        for point, start, end in _ranges(points):
            algorithm, operations = _ALGORITHMS.get(point["algorithm"], ("", ()))
            if ours not in operations:
                said.unknown.add(f"`{point['algorithm']}`")
                continue
            least = max(start, _simple_from(decision, place, ranks, operation, algorithm))
            if least <= end:
                row = f"{ours},{least},{end},{algorithm},simple,-1,-1,{ranks},-1,-1"
                said.rows += [row] * (row not in said.rows)
            if least > start:
                upto = min(least - 1, end)
                said.smaller.append(
                    f"# {ours} of {start} to {upto} bytes, {ranks} ranks: {algorithm} was the"
                    " fastest, in LL or LL128; left to NCCL"
                )


def _ranges(
    points: Sequence[Mapping[str, str]],
) -> Iterator[tuple[Mapping[str, str], int, int]]:
    """Each point with its first and its last size, bytes."""
    starts = [0, *(parse_quantity("size", point["from"]) for point in points[1:])]
    ends = [*(start - 1 for start in starts[1:]), _MOST]
    yield from zip(points, starts, ends, strict=True)


def _simple_from(decision: Decision, place: int, ranks: int, operation: str, algorithm: str) -> int:
    """From how many bytes on NCCL's tuner takes Simple for an algorithm; beyond all if never."""
    if algorithm == "nvls":  # it has no other
        return 0
    dimensions = (
        [decision.dimensions[0], decision.dimensions[place]] if place else [decision.dimensions[0]]
    )
    cluster = cluster_of(dimensions, ranks, hosts=ranks if place else None, calibrated=True)
    own = [way for way in ways(cluster, operation) if way.algorithm == algorithm]
    least = _MOST + 1
    for size in reversed(_SIZES):
        if not own or fastest(own, size)[1].protocol != "Simple":
            break
        least = size
    return least


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


def _settings(decision: Decision, said: _Said) -> list[tuple[str, str, str]]:
    settings = []
    if said.named:
        settings.append(
            (
                "NCCL_ALGO",
                _algorithms(said.named),
                "As the scenario names them; protocols (LL, LL128, Simple) are NCCL's choice.",
            )
        )
    if said.rows:
        settings += [
            (
                "NCCL_TUNER_PLUGIN",
                "libnccl-tuner-example.so",
                _BUILD,
            ),
            ("NCCL_TUNER_CONFIG_FILE", "nccl_tuner.csv", "Which algorithm for which ranks."),
        ]
    if any(one.get("in_network_reduction") for one in decision.dimensions[:1]):
        settings.append(
            ("NCCL_NVLS_ENABLE", "1", "The innermost switch reduces: NVLink SHARP is counted on.")
        )
    if decision.wants_one_connection:
        settings.append(
            (
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "1",
                "Kernels start in the program's order, communication before what hides it.",
            )
        )
    return settings


def _algorithms(named: Mapping[str, Sequence[str]]) -> str:
    """As `NCCL_ALGO` has it."""
    if all(own == [_EVERYWHERE] for own in named.values()):
        return _EVERYWHERE.capitalize()  # every version of NCCL takes it for all collectives
    # A communicator whose switches do not sum needs another one.
    lists = {
        one: [*own, *([_EVERYWHERE] if "nvls" in own and _EVERYWHERE not in own else [])]
        for one, own in named.items()
    }
    text = ";".join(f"{one}:{','.join(own)}" for one, own in lists.items())
    return f'"{text}"'
