"""An ASTRA-sim network of either version, and what it means as dimensions of a fabric."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from allrail.base.stdin import stem
from allrail.scenario.astra_sim.notes import Notes
from allrail.scenario.astra_sim.source import Source, near_miss


class Topology(Enum):
    """The basic topologies that ASTRA-sim's analytical backends know."""

    RING = "ring"
    FULLY_CONNECTED = "fully_connected"
    SWITCH = "switch"


TOPOLOGIES = {
    "Ring": Topology.RING,
    "FullyConnected": Topology.FULLY_CONNECTED,
    "Switch": Topology.SWITCH,
}


@dataclass(frozen=True, slots=True)
class AstraDimension:
    """One dimension as the file means it.

    Attributes:
        topology: How its NPUs are joined.
        size: How many NPUs it joins.
        links: Links per NPU; None where the file has no such key (2.x).
        bandwidth: Of one link and direction, GiB/s.
        link_latency: Of one link, ns.
        other_latency: What else a step waits for (the switch), ns.
        message_latency: What a message waits for once, however many links it crosses (network
            cards), ns.
    """

    topology: Topology
    size: int
    links: int | None
    bandwidth: float
    link_latency: float
    other_latency: float = 0.0
    message_latency: float = 0.0

    @property
    def step_latency(self) -> float:
        """From sending a message to a neighbour to its arrival, ns: a switch costs two links."""
        hops = 2 if self.topology is Topology.SWITCH else 1
        return hops * self.link_latency + self.other_latency


@dataclass(frozen=True, slots=True)
class AstraNetwork:
    """A network file.

    Attributes:
        name: The file's name without its ending.
        dimensions: Innermost first.
        source: For errors about it.
    """

    name: str
    dimensions: tuple[AstraDimension, ...]
    source: Source

    @property
    def npus(self) -> int:
        """How many NPUs the dimensions make up together."""
        product = 1
        for dimension in self.dimensions:
            product *= dimension.size
        return product


def fabric_name(path: str | Path) -> str:
    """What the fabric of a file is called.

    Args:
        path: The network file.
    """
    return stem(Path(path)) or "network"


def check_keys(
    tree: Mapping[str, object], known: Collection[str], *, source: Source, notes: Notes
) -> None:
    """Refuse keys of a network that were mistyped; note others that are not known.

    Args:
        tree: Of the file.
        known: The keys of its version.
        source: The file.
        notes: Takes what it asks for and is not modelled.

    Raises:
        InputError: A key is nearly one of those.
    """
    for key in tree:
        if key in known:
            continue
        near = near_miss(key, known)
        if near is not None and near not in tree:
            raise source.error("there is no such key", at=key, hint=f"did you mean `{near}`?")
        notes.add(key, "unknown network key")
