"""A fabric of switches and cables as planners see it: its dimensions.

A torus, a HyperX, a HammingMesh and a fat tree are products of dimensions; the core knows how fast
each of them is. Of another network all NPUs, or domains of them, are one dimension, of which only a
simulation knows how fast it is: the core counts every algorithm's messages over the cables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import parse_quantity, table
from allrail.scenario.graph import GraphFabric


def aggregate(dimension: Mapping[str, Any]) -> float:
    """Return what all links of one NPU on a dimension carry, bytes a second and direction.

    Headers of packets are not among them, as in the core.

    Args:
        dimension: Its `bandwidth`, and `links`, `packet`, `payload`, `header` where it has them.
    """
    rate = parse_quantity("bandwidth", str(dimension["bandwidth"])) * int(dimension.get("links", 1))
    payload, header = framing(dimension)
    return rate * payload / (payload + header) if header else rate


def framing(dimension: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many bytes a packet of a dimension carries, and how many are its headers.

    Args:
        dimension: Its `packet`, `payload` and `header`, where it has them.
    """
    known = next((one for one in table("packets") if one["name"] == dimension.get("packet")), {})

    def count(key: str) -> int:
        own = parse_quantity("size", str(dimension.get(key) or "0 B"))
        return own or int(known.get(key, 0))

    return count("payload"), count("header")


def dimensions_of(fabric: Fabric | GraphFabric, *, counted: bool = False) -> Fabric:
    """Return a fabric as planners see it: a graph's dimensions.

    Args:
        fabric: Any fabric.
        counted: Whether a dimension will do whose bandwidth bounds what its cables carry, as in
            scenarios, which count these.

    Raises:
        InputError: The graph is no product of dimensions.
    """
    if isinstance(fabric, Fabric):
        return fabric
    try:
        read = json.loads(_core.graph_dimensions(fabric.model_dump_json(), counted))
    except _core.InputError as error:
        told = json.loads(str(error.args[0]))
        raise InputError(
            told["why"],
            hint=told["hint"],
            field="fabric" if fabric.name != "inline" else "fabric.topology",
            value=told["value"] if fabric.name == "inline" else fabric.name,
        ) from None
    return Fabric(schema_version=1, name=fabric.name, dimensions=tuple(read["dimensions"]))


def within(
    dimensions: Sequence[dict[str, Any]], ranks: int, hosts: int | None = None
) -> list[dict[str, Any]]:
    """Return the dimensions that so many neighbouring NPUs of a fabric are on.

    Args:
        dimensions: Of the fabric, the innermost first.
        ranks: How many.
        hosts: On how many machines; None fills one after the other.

    Raises:
        InputError: There are not so many, or they fill no part of the fabric.
    """
    if hosts and hosts > 1 and len(dimensions) > 1 and ranks % hosts == 0:
        each = ranks // hosts
        if each < int(dimensions[0]["size"]):
            machine = [{**dimensions[0], "size": each}] if each > 1 else []
            return machine + within(dimensions[1:], hosts)
    found, left = [], ranks
    for one in dimensions:
        if left == 1:
            break
        taken = max(part for part in range(1, int(one["size"]) + 1) if left % part == 0)
        if taken > 1:
            found.append({**one, "size": taken})
        left //= taken
    if left != 1:
        sizes = " x ".join(str(one["size"]) for one in dimensions)
        raise InputError(
            "so many ranks are no part of the fabric",
            field="ranks",
            value=str(ranks),
            hint=f"it has {sizes} NPUs; a file of it with a longer `size` of the last has more",
        )
    return found
