"""ASTRA-sim's names of collective algorithms, and the algorithm of ours that each one means.

A name per dimension, joined by `_` (1.0) or in a list (2.x). What a message gets, in the
congestion-unaware backend: all links of a `Ring` or a `Switch`, the links to one peer of a
`FullyConnected` dimension; several messages of one step do not share them, and a message's time is
whole nanoseconds. A dimension that is counted so carries `contention: none`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from allrail.base.errors import did_you_mean
from allrail.formats.astra_sim.network import AstraDimension, Topology
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source
from allrail.scenario.fields import table

ONE_WAY = {"ring": "ring_unidirectional", "oneRing": "ring_unidirectional"}
"""What a name means where its messages have the links of one direction only."""

ONE_TREE = {"binary_trees": "binary_tree"}
"""1.0: every chunk takes the same tree."""

BY_BLOCK = {"all_to_all": {"ring_unidirectional": "ring_by_block"}}
"""By kind of collective, what a ring's messages are: an all-to-all's blocks leave one by one."""

NAMES = {
    "ring": "ring",
    "direct": "direct",
    "halvingDoubling": "halving_doubling_near",
    "doubleBinaryTree": "binary_trees",
    "oneRing": "ring",
    "oneDirect": "direct",
    "oneHalvingDoubling": "halving_doubling_near",
}

EVERYONE = 1 << 30
"""A window as wide as any dimension: one message to each other NPU."""

WINDOWED = re.compile(r"(direct|oneDirect)(-?[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Implementation:
    """An algorithm on one dimension.

    Attributes:
        name: As the file spells it.
        algorithm: Ours.
        whole: Whether the name means one algorithm over all NPUs (`one...`), not one a dimension.
        window: Of `direct`, how many messages of an NPU are under way; `EVERYONE` if it says none,
            None of the others.
    """

    name: str
    algorithm: str
    whole: bool
    window: int | None = None


def read_implementation(
    name: object, *, at: tuple[str | int, ...], source: Source
) -> Implementation:
    """What a name means.

    Args:
        name: As the file spells it.
        at: Its path in the file.
        source: The file.

    Raises:
        InputError: There is no such algorithm, or a window lets nothing leave.
    """
    text = name if isinstance(name, str) else ""
    window = None
    windowed = WINDOWED.fullmatch(text)
    if windowed is not None:
        text, number = windowed[1], int(windowed[2] or -1)
        if number == 0 or number < -1:
            raise source.error(
                "with such a window no message leaves",
                at=at,
                value=name,
                hint=f"write `{text}1` or more, or `{text}` for all at once",
            )
        window = EVERYONE if number == -1 else number
    if text not in NAMES:
        raise source.error(
            "it is not a collective implementation of ASTRA-sim",
            at=at,
            value=name,
            hint=did_you_mean(str(name), NAMES, others="it is one of"),
        )
    return Implementation(str(name), NAMES[text], text.startswith("one"), window)


def window_of(
    used: Iterable[tuple[Implementation, AstraDimension]],
    *,
    npus: int,
    network_model: str,
    notes: Notes,
) -> dict[str, int]:
    """The `fabric.window` of these algorithms: one for all, the narrowest that is asked for.

    As wide as the others it only matters where messages of a step do not come at one time: where
    they share links, or take different ways.

    Args:
        used: What runs on dimensions of more than one NPU.
        npus: Of the job: a window is never wider.
        network_model: Ours that carries it.
        notes: Takes several windows, of which one is modelled.
    """
    asked = {
        one.window
        for one, dimension in used
        if one.window is not None
        and (
            one.window != EVERYONE
            or network_model == "links"
            or dimension.topology is Topology.RING
        )
    }
    if not asked:
        return {}
    if len(asked) > 1:
        notes.add("several windows of `direct`", f"{min(asked)} is taken for all")
    return {"window": min(*asked, npus)}


def of_kind(algorithm: str, kind: str) -> str:
    """The algorithm of ours that sends what one does for a kind of collective.

    Args:
        algorithm: From `on_dimension`.
        kind: What the collective does.
    """
    return BY_BLOCK.get(kind, {}).get(algorithm, algorithm)


def operations_of(algorithm: str) -> list[str]:
    """Which operations one of our algorithms does.

    Args:
        algorithm: Its name.
    """
    return list(_row(algorithm)["operations"])


def is_staged(algorithm: str) -> bool:
    """Whether `dims` counts one of our algorithms as the congestion-unaware backend does.

    Args:
        algorithm: Its name.
    """
    return bool(_row(algorithm)["without_contention"])


def _row(algorithm: str) -> dict[str, Any]:
    return next(row for row in table("algorithms") if row["name"] == algorithm)


def on_dimension(
    implementation: Implementation, *, dimension: AstraDimension, network_model: str, aware: bool
) -> tuple[str, int, str]:
    """How one of our dimensions gives an algorithm's messages what ASTRA-sim gives them.

    Args:
        implementation: The algorithm.
        dimension: The dimension that it runs on.
        network_model: Ours that carries it: stages in `dims`, messages in `links`.
        aware: Whether the backend is the congestion-aware one.

    Returns:
        The name of our algorithm, the links per NPU, and the dimension's `contention`.
    """
    algorithm = implementation.algorithm
    one_way = ONE_WAY.get(implementation.name, algorithm)
    if not aware and (network_model == "links" or _row(algorithm)["without_contention"]):
        # A message has all links of a ring or a switch; on a ring that is both directions at once.
        default = dimension.size - 1 if dimension.topology is Topology.FULLY_CONNECTED else 1
        name = one_way if network_model == "links" else algorithm
        return name, dimension.links or default, "none"
    if dimension.topology is Topology.RING and dimension.links is None:
        # 2.x gives each direction one link and lets an algorithm use one of them.
        return one_way, 2, "shared"
    if dimension.topology is Topology.FULLY_CONNECTED:
        # A message of a ring crosses one link to one peer, whole.
        return one_way, dimension.links or dimension.size - 1, "shared"
    if dimension.topology is Topology.SWITCH:
        return one_way, dimension.links or 1, "shared"
    return algorithm, dimension.links or 1, "shared"
