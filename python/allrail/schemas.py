"""The JSON schemas of the files that allrail reads."""

from __future__ import annotations

import json
from typing import Any

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(of: str) -> dict[str, Any]:
    """Return one JSON schema.

    Args:
        of: `scenario`, `fabric` or `plan`.

    Raises:
        KeyError: There is no such schema.
    """
    if of == "plan":
        from allrail import _core

        tree: dict[str, Any] = json.loads(_core.plan_schema())
        return tree
    from allrail.scenario import Fabric, Scenario

    models: dict[str, type[Scenario | Fabric]] = {"scenario": Scenario, "fabric": Fabric}
    return {"$schema": DIALECT, **models[of].model_json_schema()}
