"""The JSON schemas of the files that allrail reads."""

from __future__ import annotations

import json
from typing import Any

from allrail import _core
from allrail.base.arguments import checked
from allrail.base.errors import InputError, did_you_mean
from allrail.results.answer import Told
from allrail.runtime.job import job_schema
from allrail.scenario import Fabric, GraphFabric, Scenario
from allrail.scenario.graph import topologies

DIALECT = "https://json-schema.org/draft/2020-12/schema"


SCHEMAS = ("scenario", "fabric", "plan", "job")


@checked
def schema(what: str = "scenario") -> Told:
    """Return the JSON schema of a file that allrail reads.

    Args:
        what: `scenario`, `fabric`, `plan` or `job`.

    Returns:
        The schema, a mapping.

    Raises:
        InputError: There is no such schema.

    Example:
        `allrail.schema("scenario")["properties"].keys()`
    """
    if what not in SCHEMAS:
        raise InputError(
            "there is no such schema",
            field="what",
            value=what,
            hint=did_you_mean(what, SCHEMAS),
        )
    return Told(_schema(what))


def _schema(of: str) -> dict[str, Any]:
    if of == "plan":
        tree: dict[str, Any] = json.loads(_core.plan_schema())
        return tree
    if of == "job":
        return job_schema()
    models = {"scenario": Scenario.model_json_schema, "fabric": _fabric}
    return {"$schema": DIALECT, **models[of]()}


def _fabric() -> dict[str, Any]:
    """A fabric of dimensions, or one of the core's topologies with its keys."""
    dimensions = Fabric.model_json_schema()
    definitions = dimensions.pop("$defs")
    common = GraphFabric.model_json_schema()["properties"]
    graphs: list[dict[str, Any]] = []
    for tag, row in topologies().items():
        keys = row["schema"]
        definitions |= keys.get("$defs", {})
        graph = {
            "title": tag,
            "description": row["about"],
            "type": "object",
            "properties": {**common, "topology": {"const": tag}, **keys["properties"]},
            "required": ["topology", *keys.get("required", ())],
            "additionalProperties": False,
        }
        graphs.append(graph)
        if row["file"]:
            file = {"type": "string", "description": "A file with its nodes and links."}
            properties = {**graph["properties"], "file": file}
            graphs.append({**graph, "properties": properties, "required": ["topology", "file"]})
    return {"title": "Fabric", "anyOf": [dimensions, *graphs], "$defs": definitions}
