"""The knobs of a scenario: what its schedulers read, each with a ladder of values.

Which knobs there are follows from the core's tables (a tensor scheduler or coordination names the
keys that it reads), so a new policy brings its own. Ladders go by factors of two, as sizes and
times act by their magnitude.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.scenario import Scenario, fields
from allrail.scenario.algorithms import AUTO
from allrail.scenario.policies import keys_of


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob.

    Attributes:
        path: As `--set` takes it.
        values: What it may be, in order.
    """

    path: str
    values: tuple[Any, ...]


def _sizes(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{2**power} KiB" for power in range(first, last + 1))


_LADDERS: dict[str, tuple[Any, ...]] = {
    "partition": _sizes(7, 16),
    "credit": _sizes(8, 18),
    "bucket": _sizes(10, 18),
    "threshold": _sizes(10, 18),
    "cycle": tuple(f"{125 * 2**power} us" for power in range(8)),
    "send_ahead": _sizes(4, 11),
    "chunks": tuple(2**power for power in range(8)),
}
"""By key: from what only latency would feel to what no tensor fills."""


_FAR_APART: dict[str, tuple[Any, ...]] = {
    "partition": ("4 MiB", "16 MiB", "64 MiB"),
    "chunks": (4, 16),
}
"""For few trials. Parts of the small models that policies were published with cut a large one's
gradients into a hundred thousand, which take longer here and on the network alike."""
_CREDITS = (1, 4)
"""Of partitions: how many are under way."""


def ladder(key: str) -> tuple[Any, ...]:
    """Return what a key may be, in order.

    Args:
        key: Of a policy, of the schedule, or of a node.
    """
    return _LADDERS[key]


def knobs(scenario: Scenario) -> tuple[Knob, ...]:
    """Return the knobs of a scenario.

    Args:
        scenario: With a workload.

    Raises:
        InputError: It has none.
    """
    if scenario.workload is None:
        raise InputError(
            "it has no workload, and only training steps are tuned",
            hint="`allrail compare` compares policies and chunks of a collective",
            field="workload",
        )
    found: list[Knob] = []
    tables: tuple[tuple[str, fields.Table], ...] = (
        ("tensor", "tensor_policies"),
        ("coordination", "coordinations"),
    )
    for key, table in tables:
        chosen = getattr(scenario.schedule, key)
        policy = None if chosen is None else chosen["policy"]
        found += [
            Knob(f"schedule.{key}.{name}", _LADDERS[name])
            for name in (keys_of(table, policy) if policy else ())
            if name in _LADDERS
        ]
    return (*found, Knob("schedule.chunks", ladder("chunks")))


def as_written(scenario: Scenario, sets: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes with a policy and its keys in one: a file may name a policy alone.

    Args:
        scenario: What is changed.
        sets: Values by the paths of knobs.
    """
    found: dict[str, Any] = {}
    for path, value in sets.items():
        head, _, key = path.rpartition(".")
        own = getattr(scenario.schedule, head.rpartition(".")[2], None)
        if own is None:
            found[path] = value
        else:
            found[head] = {**found.get(head, own), key: value}
    return found


def size(space: tuple[Knob, ...]) -> int:
    """Return how many combinations there are.

    Args:
        space: The knobs.
    """
    return prod(len(knob.values) for knob in space)


def schedules(dimensions: int) -> Iterator[list[dict[str, Any]]]:
    """Yield changes of `schedule` that exclude each other, knob by knob, values far apart.

    Args:
        dimensions: Of the fabric.
    """
    rows = json.loads(_core.policies())
    yield [{"policy": row["name"]} for row in rows if not row["expensive"]]
    # What a dimension's kind does not do is refused, and left out.
    rows = json.loads(_core.algorithms())
    named = [{"algorithms": [row["name"]] * dimensions} for row in rows]
    yield [{"algorithms": AUTO}, *named]
    yield [{"chunks": count} for count in _FAR_APART["chunks"]]
    yield [
        {"tensor": {"policy": row["name"], **more}}
        for row in json.loads(_core.tensor_policies())
        # Layers of a layout are a chain, on which such an order is another policy's.
        if not row["by_graph"]
        for more in _parts(row["reads"])
    ]


def _parts(reads: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What a tensor scheduler is tried with: sizes of parts where it cuts, else as it comes."""
    if "partition" not in reads:
        yield {}
        return
    for size in _FAR_APART["partition"]:
        number, unit = size.split()
        if "credit" in reads:
            allowed = (f"{int(number) * count} {unit}" for count in _CREDITS)
            yield from ({"partition": size, "credit": credit} for credit in allowed)
        else:
            yield {"partition": size}
