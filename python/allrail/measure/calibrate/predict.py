"""What a collective takes on a calibrated fabric, as the tool ran it that was measured.

    t(S) = model(part, S) · fit(table, S) / model(part of that table, S)

The model is the simulator under the default schedule, or the library's own algorithms where tables
show them (`library.py`). The second factor is how far the model is from the nearest table of the
fabric at that size: protocols switch by size, which a dimension of one rate and one latency has
not. Beyond the sizes of a table that of its first or last size counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.measure.calibrate import library
from allrail.measure.calibrate.fit import Fit, Piece
from allrail.scenario import load_scenario
from allrail.scenario.algorithms import AUTO
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import parse_quantity
from allrail.simulation.api import simulate

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives of nccl-tests that the simulator has, as nccl-tests run them."""
CHUNKS = 64
"""Of the default schedule."""


@dataclass(frozen=True, slots=True)
class Own:
    """What a library's own algorithms reach.

    Attributes:
        rates: Of each dimension, bytes a µs of one rank.
        latencies: Of each dimension, µs a step.
        between: The first dimension that joins machines; None for one machine.
        algorithms: Which run; the fastest counts.
    """

    rates: tuple[float, ...]
    latencies: tuple[float, ...]
    between: int | None
    algorithms: tuple[str, ...] = library.ALGORITHMS

    def time_us(self, collective: str, part: Sequence[int], size: int) -> float:
        """Return the time of a collective, µs.

        Args:
            collective: As of `AROUND`.
            part: How many of its ranks differ on each dimension.
            size: Bytes, as nccl-tests count them.
        """
        return library.time_us(
            collective,
            part,
            self.rates,
            self.latencies,
            size,
            between=self.between,
            algorithms=self.algorithms,
        )


def predict_us(fabric: Mapping[str, Any], collective: str, part: Sequence[int], size: int) -> float:
    """Return what a collective takes as the tool ran it that was measured.

    Args:
        fabric: As `calibrate network` writes it, with its `library`.
        collective: As of `AROUND`.
        part: How many of its ranks differ on each dimension.
        size: Bytes, as nccl-tests count them.
    """
    dimensions, measured = fabric["dimensions"], fabric["library"]
    own = _own(dimensions, measured)

    def model(of: Sequence[int], name: str, at: int) -> float:
        if not measured.get("dimensions") and name in OPERATIONS:
            return default_us(name, of, dimensions, at)
        return own.time_us(name, of, at)

    table = _nearest(measured["tables"], collective, part)
    if collective in library.POINT and table["collective"] != collective:
        # Messages of their own: tools send them straight, and no table shows what is lost.
        return own.time_us(collective, part, size)
    told = model(part, collective, size)
    pieces = tuple(
        Piece(_bytes(one["first"]), _bytes(one["last"]), one["fixed_us"], one["us_per_byte"])
        for one in table["pieces"]
    )
    if pieces[0].first == pieces[-1].last:
        # One size tells how fast that is, and nothing of others.
        return told
    at = min(max(size, pieces[0].first), pieces[-1].last)
    return (
        told * Fit(pieces, (), 0.0, ()).time_us(at) / model(table["part"], table["collective"], at)
    )


def tree_of(fabric: Fabric) -> dict[str, Any]:
    """Return what `predict_us` needs of a fabric that was read.

    Args:
        fabric: With its `library`.
    """
    library = fabric.library
    return {
        "dimensions": [one.model_dump(exclude_defaults=True) for one in fabric.dimensions],
        "library": None if library is None else library.model_dump(),
    }


def part_of(sizes: Sequence[int], ranks: int, hosts: int | None = None) -> tuple[int, ...]:
    """Return on which dimensions of a fabric so many neighbouring ranks lie.

    Args:
        sizes: Of the fabric's dimensions, the innermost first.
        ranks: How many.
        hosts: On how many machines; None fills one after the other.
    """
    if hosts and len(sizes) > 1 and ranks % hosts == 0 and ranks // hosts <= sizes[0]:
        found, left = [ranks // hosts], hosts
    else:
        found, left = [math.gcd(sizes[0], ranks)], ranks // math.gcd(sizes[0], ranks)
    for size in sizes[1:-1]:
        found.append(math.gcd(size, left))
        left //= found[-1]
    return (*found, left) if len(sizes) > 1 else (ranks,)


def _own(dimensions: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]) -> Own:
    told = measured.get("dimensions") or dimensions
    rates = tuple(parse_quantity("bandwidth", str(one["bandwidth"])) / 1e6 for one in told)
    steps = tuple(parse_quantity("time", str(one["latency"])) / 1e6 for one in told)
    between = measured.get("between", 1 if len(told) > 1 else None)
    return Own(rates, steps, between, tuple(measured.get("algorithms") or library.ALGORITHMS))


def _bytes(text: str) -> int:
    return int(parse_quantity("size", text))


def _nearest(
    tables: Sequence[Mapping[str, Any]], collective: str, part: Sequence[int]
) -> Mapping[str, Any]:
    """The table whose shape is nearest; of equals, the one of the same collective."""

    def distance(table: Mapping[str, Any]) -> tuple[float, bool]:
        apart = sum(
            abs(math.log(one / other)) for one, other in zip(part, table["part"], strict=True)
        )
        return apart, table["collective"] != collective

    return min(tables, key=distance)


def default_us(
    collective: str, part: Sequence[int], dimensions: Sequence[Mapping[str, Any]], size: int
) -> float:
    """Return µs of a collective under the default schedule, on a part of some dimensions.

    Args:
        collective: As of `AROUND`.
        part: How many of its ranks differ on each dimension.
        dimensions: Of the fabric.
        size: Bytes, as nccl-tests count them.
    """
    on = [
        {**dimension, "size": one}
        for dimension, one in zip(dimensions, part, strict=True)
        if one > 1
    ]
    return run(collective, on, size, chunks=chunks_of(size, math.prod(part)))


class Stages:
    """The simulator under the default schedule, for many rates: a scenario is checked once.

    Args:
        collective: As of `OPERATIONS`.
        part: How many of its ranks differ on each dimension.
        more: Further keys of every dimension.
    """

    def __init__(self, collective: str, part: Sequence[int], more: Mapping[str, Any]) -> None:
        self._on = [place for place, one in enumerate(part) if one > 1]
        self._ranks = math.prod(part)
        dimensions = [
            {"kind": "switch", "size": part[place], "bandwidth": "1 GB/s", "latency": "0 s", **more}
            for place in self._on
        ]
        scenario = load_scenario(
            {
                "schema_version": 1,
                "fabric": {"dimensions": dimensions},
                "collective": {"kind": collective, "size": f"{self._ranks} B"},
                "schedule": {"chunks": 1},
            }
        )
        self._tree = json.loads(scenario.to_json())
        # A search turns one dimension after the other, and most rows are of some dimensions alone.
        self._known: dict[tuple[str, ...], float] = {}

    def time_us(self, rates: Sequence[float], latencies: Sequence[float], size: int) -> float:
        """Return the time of a size, µs.

        Args:
            rates: Of each dimension, bytes a µs of one rank.
            latencies: Of each dimension, µs a step.
            size: Bytes, as nccl-tests count them.
        """
        bandwidths = [f"{rates[place] * 1e6:.0f} B/s" for place in self._on]
        delays = [f"{latencies[place] * 1e6:.0f} ps" for place in self._on]
        key = (str(size), *bandwidths, *delays)
        if key not in self._known:
            dimensions = self._tree["fabric"]["dimensions"]
            for one, bandwidth, latency in zip(dimensions, bandwidths, delays, strict=True):
                one |= {"bandwidth": bandwidth, "latency": latency}
            self._tree["collective"][0]["size"] = f"{max(1, size)} B"
            self._tree["schedule"]["chunks"] = chunks_of(size, self._ranks)
            told = json.loads(_core.simulate(json.dumps(self._tree)))
            self._known[key] = float(told["time_us"])
        return self._known[key]


def chunks_of(size: int, ranks: int) -> int:
    """Return into how many chunks the default schedule cuts a collective; each rank has a byte.

    Args:
        size: Bytes, as nccl-tests count them.
        ranks: How many take part.
    """
    return max(1, min(CHUNKS, size // ranks))


def run(
    operation: str,
    dimensions: list[dict[str, Any]],
    size: int,
    *,
    chunks: int = 1,
    algorithms: str | Sequence[str] | None = None,
) -> float:
    """Return µs that the simulator says of a collective.

    Args:
        operation: As of `AROUND`.
        dimensions: Of the fabric.
        size: Bytes, as nccl-tests count them.
        chunks: Into how many it is cut.
        algorithms: As in a scenario's schedule; as the fabric was measured, if left out.
    """
    result = simulate(
        {
            "schema_version": 1,
            "fabric": {"dimensions": dimensions},
            "collective": {"kind": operation, "size": f"{max(1, size)} B"},
            "schedule": {"chunks": chunks, "algorithms": algorithms or _measured(dimensions)},
        }
    )
    return float(result.time_us)


def _measured(dimensions: list[dict[str, Any]]) -> str | None:
    """Whether a fabric says what is the fastest."""
    return AUTO if any(one.get("fastest") for one in dimensions) else None
