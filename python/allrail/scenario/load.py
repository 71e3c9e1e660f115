"""Read a scenario from a file, a mapping or the typed object, with overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from allrail.base.arguments import checked
from allrail.base.errors import InputError
from allrail.scenario.explain import at_place, from_pydantic
from allrail.scenario.fabric import Fabric
from allrail.scenario.forms import refuse_other
from allrail.scenario.graph import GraphFabric
from allrail.scenario.graph_file import resolve as resolve_graph
from allrail.scenario.job import NAMES, two
from allrail.scenario.model import Scenario
from allrail.scenario.models import model_names, resolve
from allrail.scenario.node import plain
from allrail.scenario.overrides import Sets, apply, parse_sets
from allrail.scenario.places import Places
from allrail.scenario.presets import load_any_fabric, preset_names, read_fabric
from allrail.scenario.programs import files_in, with_programs
from allrail.scenario.text import read_file
from allrail.scenario.trace_file import read_trace

ScenarioLike = str | os.PathLike[str] | Mapping[str, Any] | Scenario
"""A path, a mapping of the same shape as a file, or a `Scenario`."""


@checked
def load_scenario(scenario: ScenarioLike, *, sets: Sets = ()) -> Scenario:
    """Read and check a scenario.

    Args:
        scenario: A YAML or JSON file, a mapping, or a `Scenario`.
        sets: Overrides, applied in order: `["schedule.policy=themis"]` (values are YAML), or
            `{"schedule.policy": "themis"}`. A path into `fabric` opens the preset or file that it
            names.

    Raises:
        InputError: It cannot be read, or something in it is refused.
    """
    if isinstance(scenario, Scenario):
        if not sets:
            return scenario
        tree: Any = {**scenario.model_dump(exclude_unset=True), "fabric": scenario.fabric}
        places = Places(dict(scenario._places.known), dict(scenario._places.renamed))
        folder = FilePath()
    elif isinstance(scenario, Mapping):
        tree, places, folder = scenario, Places(), FilePath()
    else:
        path = FilePath(scenario)
        tree, places = read_file(path)
        folder = path.parent
    if not isinstance(tree, Mapping):
        place = places.of(())
        raise InputError(
            "a scenario is a mapping of keys to values",
            hint="it starts with `schema_version: 1`; see `allrail schema scenario`",
            source=place.source,
            line=place.line,
        )
    if not isinstance(scenario, (Scenario, Mapping)):
        refuse_other(tree, places, wanted="scenario", source=str(scenario))
    tree = plain(dict(tree))
    here: dict[str, FilePath] = {}
    for steps, value, place in parse_sets(sets):
        named = isinstance(tree.get("fabric"), (str, Fabric, GraphFabric))
        if named and steps[0] == "fabric" and len(steps) > 1:
            _open_fabric(tree, places, folder)
        chosen = value
        if steps == ("fabric",):
            chosen = _absolute(value, preset_names())
        elif steps == ("workload", "model"):
            chosen = _absolute(value, model_names())
        elif steps[0] == "schedule":
            # A file in an override starts at the current folder.
            here |= {name: FilePath(name) for name in files_in(value) if FilePath(name).exists()}
        tree = apply(tree, steps, chosen, place=place, places=places)
    if len(jobs := [name for name in NAMES if tree.get(name) is not None]) > 1:
        raise at_place(two(jobs), places)
    if isinstance(tree.get("fabric"), str):
        resolve_fabric(tree, places, folder)
    elif isinstance(tree.get("fabric"), Mapping) and "topology" in tree["fabric"]:
        tree["fabric"] = resolve_graph(tree["fabric"], places=places, folder=folder, at=("fabric",))
    if isinstance(tree.get("workload"), Mapping):
        _resolve_model(tree, places, folder)
    if "schedule" in tree:
        try:
            tree["schedule"] = with_programs(tree["schedule"], folder=folder, elsewhere=here)
        except InputError as error:
            raise at_place(error, places) from None
    if isinstance(tree.get("traffic"), Mapping) and isinstance(tree["traffic"].get("file"), str):
        _read_trace(tree, places, folder)
    if isinstance(tree.get("collective"), Mapping):
        places.renamed["collective", 0] = ("collective",)
        tree["collective"] = (tree["collective"],)
    try:
        loaded = Scenario.model_validate(tree)
    except ValidationError as error:
        raise from_pydantic(error, model=Scenario, places=places) from None
    loaded._places = places
    return loaded


def _absolute(named: object, presets: tuple[str, ...]) -> object:
    """A file named in an override starts at the current folder, not at the scenario's."""
    if isinstance(named, str) and named not in presets and FilePath(named).exists():
        return str(FilePath(named).absolute())
    return named


def resolve_fabric(tree: dict[str, Any], places: Places, folder: FilePath) -> None:
    """Replace a fabric's name by the fabric.

    Args:
        tree: What names it, under `fabric`.
        places: Where its values were written.
        folder: Where a relative path starts.

    Raises:
        InputError: There is no such preset or file, or it is not a fabric.
    """
    name = tree["fabric"]
    try:
        tree["fabric"] = load_any_fabric(name, folder=folder)
    except InputError as error:
        raise at_place(_missing(error, name, folder), places) from None


def _resolve_model(tree: dict[str, Any], places: Places, folder: FilePath) -> None:
    """Put a workload's model in place of its name or file."""
    try:
        tree["workload"] = resolve(dict(tree["workload"]), folder=folder)
    except InputError as error:
        raise at_place(error, places) from None


def _read_trace(tree: dict[str, Any], places: Places, folder: FilePath) -> None:
    """Put a trace's messages in place of the file that holds them."""
    traffic = dict(tree["traffic"])
    if "messages" in traffic:
        both = InputError(
            "a trace has either `messages` or a `file`",
            hint="leave one of them out",
            field="traffic.file",
            value=traffic["file"],
        )
        raise at_place(both, places)
    traffic["messages"], rows = read_trace(folder / traffic.pop("file"))
    tree["traffic"] = traffic
    places.put(("traffic", "messages"), rows)


def _missing(error: InputError, name: str, folder: FilePath) -> InputError:
    """A file that is not there is a mistake of the key that names it."""
    if error.field or (folder / name).exists():
        return error
    return InputError(error.why, hint=error.hint, field="fabric", value=name)


def _open_fabric(tree: dict[str, Any], places: Places, folder: FilePath) -> None:
    """Replace a fabric's name by plain values, so that an override can reach into it."""
    fabric = tree["fabric"]
    if isinstance(fabric, (Fabric, GraphFabric)):
        tree["fabric"] = {"name": fabric.name, **fabric.model_dump()}
        return
    try:
        tree["fabric"], inner = read_fabric(fabric, folder=folder)
    except InputError as error:
        raise at_place(_missing(error, fabric, folder), places) from None
    places.put(("fabric",), inner)
