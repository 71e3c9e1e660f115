"""A fabric of switches and cables as planners see it: its dimensions.

A torus, a HyperX, a HammingMesh, a mesh and a fat tree are products of dimensions; the core knows which and how
fast each is. A collective is planned on them, and carried out in `dims` on them or in `flows` and
`packets` on the graph.
"""

from __future__ import annotations

import json

from allrail import _core
from allrail.errors import InputError
from allrail.scenario.fabric import Fabric
from allrail.scenario.graph import GraphFabric


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
