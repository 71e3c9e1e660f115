"""A case written out as a scenario file of ours, which gives the same result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allrail.base.files import write_text
from allrail.formats.astra_sim.case import AstraCase

DEFAULTS: dict[str, dict[str, Any]] = {
    "dimension": {"in_network_reduction": False, "contention": "shared"},
    "collective": {"start": "0 ns", "dimensions": None},
}
"""What is left out of the file because it says nothing."""


def scenario_yaml(case: AstraCase) -> str:
    """The case's scenario as YAML.

    Args:
        case: The run.
    """
    import yaml

    tree = dict(case.scenario)
    fabric = dict(tree["fabric"])
    fabric["dimensions"] = [_without(d, DEFAULTS["dimension"]) for d in fabric["dimensions"]]
    tree["fabric"] = fabric
    if "collective" in tree:
        collectives = [_without(c, DEFAULTS["collective"]) for c in tree["collective"]]
        tree["collective"] = collectives[0] if len(collectives) == 1 else collectives
    text = yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=100)
    return f"# Read from ASTRA-sim files: {case.name}\n{text}"


def write_scenario(case: AstraCase, *, path: str | Path) -> None:
    """Write the case as a scenario file, whole or not at all.

    Args:
        case: The run.
        path: The file, which is replaced.

    Raises:
        InputError: It cannot be written.
    """
    write_text(Path(path), scenario_yaml(case))


def _without(tree: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in tree.items() if k not in defaults or v != defaults[k]}
