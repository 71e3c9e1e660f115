"""System files: how collectives are cut into chunks, scheduled and carried out.

1.0: `.txt`, one `key: value` a line. 2.x: `.json` with the same keys and lists per dimension.
What ASTRA-sim takes where a key is missing is taken here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.base.stdin import suffix
from allrail.formats.astra_sim.customs import PER_NODE, read_customs
from allrail.formats.astra_sim.implementations import Implementation, read_implementation
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import (
    LONGEST_DELAY,
    Source,
    near_miss,
    read_lines,
    read_tree,
)
from allrail.scenario.places import Place

IMPLEMENTATION_KEYS = {
    "all_reduce": "all-reduce-implementation",
    "reduce_scatter": "reduce-scatter-implementation",
    "all_gather": "all-gather-implementation",
    "all_to_all": "all-to-all-implementation",
}
"""Which key says how a kind of collective is carried out."""

COLLECTIVE_ORDERS = {"LIFO": "lifo", "FIFO": "fifo"}
PRIORITISED = COLLECTIVE_ORDERS | {"EXPLICIT": "explicit"}
"""2.x: by the `comm_priority` of nodes."""
BY_SIZE = ("SCF", "smallestFirst")
"""They serve small chunks first, by rules of their own."""

ORDERS = {"FIFO": "fifo", **dict.fromkeys(BY_SIZE, "astra_sim")}
OTHER_ORDERS = ("RG", "lessRemainingPhaseFirst")
POLICIES = {
    "baseline": "baseline",
    "ascending": "baseline",
    "onlineGreedy": "baseline",
    "themis": "themis",
    "offlineGreedy": "themis",
    "roundRobin": "round_robin",
}
OTHER_POLICIES = {
    "themisFlex": "themis",
    "offlineGreedyFlex": "themis",
}
BY_LOADS = ("themis", "offlineGreedy", "themisFlex", "offlineGreedyFlex")
"""They look at the loads of dimensions, which start at zero."""

APART = (*BY_LOADS, "onlineGreedy")
"""They scatter and gather on the last dimension in two stages; `onlineGreedy` does no more."""

MODELLED = (
    *IMPLEMENTATION_KEYS.values(),
    "scheduling-policy",
    "endpoint-delay",
    "active-chunks-per-dimension",
    "preferred-dataset-splits",
    "collective-optimization",
    "intra-dimension-scheduling",
    "inter-dimension-scheduling",
    "gap-denominator",
    "local-mem-bw",
)
SILENT = (
    "boost-mode",
    "seprate-log",
    "trace-enabled",
    "replay-only",
    "track-local-mem",
    "local-mem-trace-filename",
    "peak-perf",
    "roofline-enabled",
    "direct-collective-window",
)
"""They change how ASTRA-sim runs or what it writes, not what it models; or are asked for apart; or
its code never reads them."""

CUSTOM = (
    *(f"{key}-custom" for key in IMPLEMENTATION_KEYS.values()),
    PER_NODE,
)
"""2.x: collectives as traces of their own."""

NOT_MODELLED = {
    "local-reduction-delay": ("1", "the delay of a reduction"),
    "model-shared-bus": ("0", "the bus of an NPU"),
    "L": ("0", "the bus of an NPU"),
    "o": ("0", "the bus of an NPU"),
    "g": ("0", "the bus of an NPU"),
    "G": ("0", "the bus of an NPU"),
    "packet-routing": ("software", "routing of all-to-all"),
}
"""What is not modelled: the value that asks for nothing, and a remark."""


@dataclass(frozen=True, slots=True)
class AstraSystem:
    """A system file.

    Attributes:
        collective_order: Which of several waiting collectives is served first.
        endpoint_delay: Added to each message, ns.
        active_chunks: How many stages a dimension runs at once.
        splits: Into how many chunks a collective is cut.
        local_bw_aware: Whether an all-reduce scatters on the way out and gathers on the way back.
        order: Which of several waiting chunks a dimension serves first.
        by_size: Whether it is the smallest chunk by ASTRA-sim's rules.
        policy: Which dimension a chunk visits next.
        by_loads: Whether it looks at what the dimensions have been given.
        apart: Whether an all-reduce scatters and gathers on the last dimension in two stages.
        threshold: Themis' divisor.
        memory: Bandwidth of an NPU's memory, GB/s; None where the file has none.
        peak: Of an NPU, TFLOP/s, where compute nodes are timed by the roofline; else None.
        implementations: One list per kind of collective that the file has.
        customs: Traces of collectives, by kind and by node; see `customs`.
        source: For errors about it.
    """

    collective_order: str
    endpoint_delay: float
    active_chunks: int
    splits: int
    local_bw_aware: bool
    order: str
    by_size: bool
    policy: str
    by_loads: bool
    apart: bool
    threshold: int
    memory: float | None
    peak: float | None
    implementations: dict[str, tuple[Implementation, ...]]
    customs: dict[str, Any]
    source: Source


def read_system(path: str | Path, *, notes: Notes) -> AstraSystem:
    """Read a system file of either version.

    Args:
        path: The file; `.json` is 2.x, everything else 1.0.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: Anything in it is wrong.
    """
    is_second = suffix(Path(path)) == ".json"
    values, source = read_tree(path) if is_second else _read_text(path)
    for key, value in values.items():
        _check_key(key, value, values, source, notes)
    policy = _choice(values, "inter-dimension-scheduling", POLICIES | OTHER_POLICIES, source)
    order = _choice(
        values, "intra-dimension-scheduling", ORDERS | dict.fromkeys(OTHER_ORDERS, "fifo"), source
    )
    for key, others in (
        ("inter-dimension-scheduling", OTHER_POLICIES),
        ("intra-dimension-scheduling", dict.fromkeys(OTHER_ORDERS, "FIFO")),
    ):
        name = values.get(key)
        if not is_second and isinstance(name, str) and name in others:
            notes.add(f"{key}: {name}", f"`{others[name]}` is run instead")
    optimization = _choice(
        values, "collective-optimization", {"baseline": "", "localBWAware": "yes"}, source
    )
    orders = PRIORITISED if is_second else COLLECTIVE_ORDERS
    return AstraSystem(
        collective_order=_choice(values, "scheduling-policy", orders, source) or "lifo",
        endpoint_delay=_delay(values, "endpoint-delay", 10.0, source),
        active_chunks=_count(values, "active-chunks-per-dimension", 1, source),
        splits=_count(values, "preferred-dataset-splits", 1, source),
        local_bw_aware=bool(optimization),
        order=order or "fifo",
        by_size=values.get("intra-dimension-scheduling") in BY_SIZE,
        policy=policy or "baseline",
        by_loads=values.get("inter-dimension-scheduling") in BY_LOADS,
        apart=values.get("inter-dimension-scheduling") in APART,
        threshold=_count(values, "gap-denominator", 16, source),
        memory=_memory(values, source),
        peak=_peak(values, source),
        implementations={
            kind: _implementations(values[key], key, source)
            for kind, key in IMPLEMENTATION_KEYS.items()
            if key in values
        },
        customs=read_customs(values, kinds=IMPLEMENTATION_KEYS, system=path, source=source),
        source=source,
    )


def _read_text(path: str | Path) -> tuple[dict[str, object], Source]:
    lines, source = read_lines(path)
    values: dict[str, object] = {}
    for number, line in lines:
        key, colon, value = (part.strip() for part in line.partition(":"))
        place = Place(source.file, number)
        if not colon or not key or " " in key:
            raise source.error(
                "it is not `key: value`", line=number, value=line, hint="write one key a line"
            )
        if not value:
            raise source.error(
                "the key has no value", at=key, line=number, hint=f"write `{key}: VALUE`"
            )
        if key in values:
            raise source.error("the key stands twice", at=key, line=number, hint="keep one of them")
        values[key] = value
        source.places.known[(key,)] = place
    return values, source


def _check_key(
    key: str, value: object, values: dict[str, object], source: Source, notes: Notes
) -> None:
    if key in MODELLED or key in SILENT or key in CUSTOM:
        return
    if key in NOT_MODELLED:
        nothing, remark = NOT_MODELLED[key]
        if str(value) not in (nothing, "0"):
            notes.add(key, remark)
        return
    near = near_miss(key, (*MODELLED, *NOT_MODELLED, *CUSTOM))
    if near is not None and near not in values:
        raise source.error(
            "there is no such key", at=key, value=value, hint=f"did you mean `{near}`?"
        )
    notes.add(key, "unknown system key")


def _choice(
    values: dict[str, object], key: str, table: dict[str, str], source: Source
) -> str | None:
    """What the table says about the value of `key`; None if the file does not have it."""
    return source.choice(values[key], table, at=key) if key in values else None


def _count(values: dict[str, object], key: str, default: int, source: Source) -> int:
    return source.count(values[key], at=key) if key in values else default


def _delay(values: dict[str, object], key: str, default: float, source: Source) -> float:
    if key not in values:
        return default
    return source.number(values[key], at=key, unit="ns", at_least=0, at_most=LONGEST_DELAY)


def _memory(values: dict[str, object], source: Source) -> float | None:
    if "local-mem-bw" not in values:
        return None
    found = source.number(
        values["local-mem-bw"], at="local-mem-bw", unit="GB/s", at_least=0, at_most=1e15
    )
    # The core takes 1 PB/s at most, which is no time beside any network.
    return min(found, 1e6) or None


def _peak(values: dict[str, object], source: Source) -> float | None:
    if str(values.get("roofline-enabled", 0)) == "0" or "peak-perf" not in values:
        return None
    return source.number(
        values["peak-perf"], at="peak-perf", unit="TFLOP/s", at_least=1e-3, at_most=1e9
    )


def _implementations(value: object, key: str, source: Source) -> tuple[Implementation, ...]:
    names = value.split("_") if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise source.error(
            "it is not a list of collective implementations",
            at=key,
            value=value,
            hint="one per dimension, joined by `_` (1.0) or in a list (2.x)",
        )
    return tuple(
        read_implementation(name, at=(key, i), source=source) for i, name in enumerate(names)
    )
