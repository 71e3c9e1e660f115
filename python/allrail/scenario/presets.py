"""Named fabrics: one YAML file each, with the source of every number."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from allrail.base import stdin
from allrail.base.arguments import KINDS, check
from allrail.base.errors import InputError, did_you_mean
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.explain import from_pydantic
from allrail.scenario.fabric import Fabric
from allrail.scenario.forms import refuse_other
from allrail.scenario.graph import GraphFabric, check_keys
from allrail.scenario.graph_file import resolve
from allrail.scenario.places import Places, parse_path, show_path
from allrail.scenario.text import read_bytes, read_file

if TYPE_CHECKING:
    from allrail.scenario.fabric import Fabric
    from allrail.scenario.graph import GraphFabric
    from allrail.scenario.places import Places

FOLDER = FilePath(__file__).parent.parent / "presets" / "fabrics"
_SUFFIXES = (".yaml", ".yml", ".json")


@cache
def preset_names() -> tuple[str, ...]:
    """Return the names of the packaged fabrics, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def load_fabric(name: str | os.PathLike[str], *, folder: FilePath | None = None) -> Fabric:
    """Read a fabric as planners see it: of one of switches and cables, its dimensions.

    Args:
        name: A preset's name or a file's path.
        folder: Where a relative path starts; the current folder if None.

    Raises:
        InputError: There is no such preset or file, or it is no product of dimensions.
    """
    return dimensions_of(load_any_fabric(name, folder=folder))


def load_any_fabric(
    name: str | os.PathLike[str], *, folder: FilePath | None = None
) -> Fabric | GraphFabric:
    """Read a fabric, of dimensions or of switches and cables.

    Args:
        name: A preset's name or a file's path.
        folder: Where a relative path starts; the current folder if None.

    Raises:
        InputError: There is no such preset or file, or it is not a fabric.
    """
    check("fabric", name, kind=KINDS["path"])
    name = os.fspath(name)
    if name in preset_names():
        return _preset(name)
    return _validated(*read_fabric(name, folder=folder))


def graph_in_place(tree: dict[str, Any]) -> Fabric | GraphFabric:
    """Check a graph fabric that is written within a scenario.

    Args:
        tree: The fabric as plain values.

    Raises:
        InputError: It is not one; its field starts with `fabric`.
    """
    try:
        return _validated(tree, Places())
    except InputError as error:
        error.field = show_path(("fabric", *(parse_path(error.field) or ())))
        error.source = ""
        raise


def read_fabric(name: str, *, folder: FilePath | None = None) -> tuple[dict[str, Any], Places]:
    """Read a fabric as plain values, unchecked but for being a mapping.

    Args:
        name: A preset's name or a file's path.
        folder: Where a relative path starts; the current folder if None.

    Returns:
        The tree and where its parts stand.

    Raises:
        InputError: There is no such preset or file.
    """
    path = FOLDER / f"{name}.yaml" if name in preset_names() else (folder or FilePath()) / name
    named = path == stdin.STDIN or path.suffix in _SUFFIXES
    if path.parent != FOLDER and not named and not os.path.isfile(path):  # noqa: PTH113, it raises nothing
        raise InputError(
            "there is no such preset",
            hint=did_you_mean(name, preset_names(), others="the presets are"),
            field="fabric",
            value=name,
        )
    tree, places = read_file(path)
    if not isinstance(tree, dict):
        raise InputError(
            "it is not a mapping with `dimensions` or `topology`",
            hint="`allrail fabric show tutorial-8x8x8 --yaml` prints an example",
            source=str(path),
        )
    refuse_other(tree, places, wanted="fabric", source=str(path))
    tree = resolve(tree, places=places, folder=path.parent)
    return {"name": stdin.stem(path), **tree}, places


def fabric_text(name: str) -> str:
    """Return the text of a fabric's file.

    Args:
        name: A preset's name or a file's path.
    """
    return read_bytes(FOLDER / f"{name}.yaml" if name in preset_names() else FilePath(name))


@cache
def _preset(name: str) -> Fabric | GraphFabric:
    return _validated(*read_fabric(name))


def _validated(tree: dict[str, Any], places: Places) -> Fabric | GraphFabric:
    model: type[Fabric | GraphFabric] = Fabric
    if "topology" in tree:
        check_keys(tree, places=places)
        model = GraphFabric
    try:
        fabric = model.model_validate(tree)
    except ValidationError as error:
        raise from_pydantic(error, model=model, places=places) from None
    if isinstance(fabric, GraphFabric):
        fabric.check_whole(places)
    return fabric
