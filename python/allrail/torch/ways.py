"""Ways to exchange gradients. `exchange: auto` tries those that the transport has (`tune.py`).

| way | gradients | the optimizer's step |
|---|---|---|
| `overlap` | cut into pieces, the most urgent first | when the next forward pass needs it |
| `reduce_scatter` | the same; an all-gather yields to every reduce-scatter | the same |
| `barrier` | whole, as they become ready | after all of them |
| `plain` | in buckets over torch.distributed, as `DistributedDataParallel` | the same |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allrail.base.errors import InputError


@dataclass(frozen=True)
class Way:
    """One way to exchange gradients.

    Attributes:
        name: The word in the job file.
        crosses: Whether a step may be made as late as the next forward pass.
        settings: What differs in a node's settings.
        ordered: Whether it goes over process groups of torch.distributed.
        plain: Whether it needs no node at all.
    """

    name: str
    crosses: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    ordered: bool = False
    plain: bool = False


WAYS = (
    Way("overlap", ordered=True),
    Way("reduce_scatter", settings={"order": "gather_late"}),
    Way(
        "barrier",
        crosses=False,
        settings={"tensor": "fifo", "partition": None, "tensor_keys": {}},
    ),
    Way("plain", crosses=False, ordered=True, plain=True),
)
AUTO = "auto"
BUCKETS = (1 << 20, 25 << 20)
"""Of `plain`: the first one, and the others, bytes."""


def ways_of(exchange: str, *, native: bool) -> tuple[Way, ...]:
    """Return the ways that a job file asks for: one, or for `auto` all that the transport has.

    Args:
        exchange: As in the job file.
        native: Whether gradients travel over allrail's own transport.

    Raises:
        InputError: The transport does not have it.
    """
    had = tuple(way for way in WAYS if native or way.ordered)
    if exchange == AUTO:
        return had
    for way in had:
        if way.name == exchange:
            return (way,)
    raise InputError(
        "process groups of torch.distributed launch in one order on all ranks, and none may yield",
        field="exchange",
        value=exchange,
        hint="`transport: native`, or one of "
        + ", ".join(f"`{way.name}`" for way in had)
        + "; with `schedule.tensor.barrier: true` `overlap` ends each pass with all gradients",
    )
