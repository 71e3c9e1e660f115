"""The knobs of a scenario: what its schedulers read, each with a ladder of values.

Which knobs there are follows from the core's tables (a tensor scheduler or coordination names the
keys that it reads), so a new policy brings its own. Ladders go by factors of two, as sizes and
times act by their magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from allrail.base.errors import InputError
from allrail.scenario import Scenario, fields
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
