"""A fabric of switches and cables as planners see it: its dimensions.

A torus, a HyperX, a HammingMesh and a fat tree are products of dimensions; the core knows how fast
each of them is. A collective is planned on them, and carried out in `dims` on them or in `flows`
and `packets` on the graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from allrail import _core
from allrail.errors import InputError
from allrail.scenario.fabric import Fabric
from allrail.scenario.fields import parse_quantity
from allrail.scenario.graph import GraphFabric


def aggregate(dimension: Mapping[str, Any]) -> float:
    """Return what all links of one NPU on a dimension carry, bytes a second and direction.

    Args:
        dimension: Its `bandwidth` and, if more than one, `links`.
    """
    return parse_quantity("bandwidth", str(dimension["bandwidth"])) * int(dimension.get("links", 1))


def dimensions_of(fabric: Fabric | GraphFabric) -> Fabric:
    """Return a fabric as planners see it: a graph's dimensions.

    Args:
        fabric: Any fabric.

    Raises:
        InputError: The graph is no product of dimensions.
    """
    if isinstance(fabric, Fabric):
        return fabric
    try:
        read = json.loads(_core.graph_dimensions(fabric.model_dump_json()))
    except _core.InputError as error:
        told = json.loads(str(error.args[0]))
        raise InputError(
            told["why"],
            hint=told["hint"],
            field="fabric" if fabric.name != "inline" else "fabric.topology",
            value=told["value"] if fabric.name == "inline" else fabric.name,
        ) from None
    return Fabric(schema_version=1, name=fabric.name, dimensions=tuple(read["dimensions"]))
