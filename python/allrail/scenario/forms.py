"""What kind of file a tree of keys is, to say so where another kind was meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from allrail.base.errors import InputError
from allrail.scenario.places import Places

Form = Literal["scenario", "fabric", "model"]

_OWN = {
    "scenario": ("fabric", "collective", "traffic", "workload"),
    "fabric": ("dimensions", "topology"),
    "model": ("model", "model_type"),
}
"""Keys that only one kind has at its top."""

_HINTS = {
    ("fabric", "scenario"): "its network is under `fabric`: put that into a file of its own",
    ("model", "scenario"): "its model is under `workload.model`: name that",
    ("scenario", "fabric"): "a scenario names it: `fabric: {source}`",
    ("scenario", "model"): "a scenario names it: `workload: {{model: {source}}}`",
    ("fabric", "model"): "name a preset of `allrail fabric list`, or a file with `dimensions`",
    ("model", "fabric"): "name a model: a preset, or a `config.json`",
}


def refuse_other(tree: Mapping[str, Any], places: Places, *, wanted: Form, source: str) -> None:
    """Refuse a file of another kind than is wanted.

    Args:
        tree: Its keys.
        places: Where they stand.
        wanted: What is read.
        source: The file.

    Raises:
        InputError: It clearly is one of the others.
    """
    if any(key in tree for key in _OWN[wanted]):
        return
    for form, keys in _OWN.items():
        found = next((key for key in keys if key in tree), None)
        if found is not None:
            raise InputError(
                f"this is a {form}, and a {wanted} is wanted",
                hint=_HINTS[wanted, form].format(source=source),
                source=source,
                line=places.of((found,)).line,
                field=found,
            )
