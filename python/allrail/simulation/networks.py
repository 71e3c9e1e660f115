"""Networks without simulating them: `allrail.fabric.list`, `show` and `advise`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from allrail import _core
from allrail.base.arguments import PathLike, checked
from allrail.base.files import write_text
from allrail.base.progress import Progress
from allrail.results.answer import Told, renderers
from allrail.results.table import ToldTable
from allrail.scenario import Fabric, GraphFabric, load_any_fabric, preset_names
from allrail.scenario.dimensions import aggregate, dimensions_of
from allrail.scenario.explain import from_core
from allrail.scenario.places import Place, Places
from allrail.scenario.presets import fabric_text
from allrail.simulation.graphs import count, graph_fabric, infragraph, measure

FabricLike = str | os.PathLike[str] | Fabric | GraphFabric
"""A preset's name, a file, or a fabric."""


class Fabrics(ToldTable):
    """The presets of fabrics, a row each."""

    ROWS = "fabrics"
    PLOTTED = ("name", "npus")


def list() -> Fabrics:  # noqa: A001, as it is typed
    """List the presets of fabrics.

    Returns:
        Under `fabrics` each preset's name, number of NPUs, dimensions or topology, and sources.

    Example:
        `allrail.fabric.list().to_polars()`
    """
    return Fabrics(fabrics=[_listed(load_any_fabric(name)) for name in preset_names()])


@checked
def show(
    fabric: FabricLike,
    *,
    yaml: bool = False,
    picture: PathLike | None = None,
    infragraph: PathLike | None = None,
    progress: Progress | None = None,
) -> Told:
    """Say what a fabric is made of, and where its numbers come from.

    Args:
        fabric: A preset's name, a file, or a fabric.
        yaml: Whether the answer is the text of its file alone, under `yaml`.
        picture: SVG file for a drawing of one plane of its switches and cables.
        infragraph: File for one plane of its nodes and cables, as InfraGraph YAML.
        progress: Called with the number of NPUs from which distances are known, and all.

    Returns:
        Of dimensions: `npus` and `dimensions`, bandwidths in Gb/s per NPU. Of a topology:
        `switches`, `cables`, `cost_usd`, `diameter` (cables), `half_plane_cut_links` and more.
        `sources` says where each number is from.

    Raises:
        InputError: It is no fabric, or a file cannot be written.

    Example:
        `allrail.fabric.show("dgx-h100")["dimensions"]`
    """
    if yaml:
        return Told(yaml=fabric_text(str(fabric)))
    loaded = _loaded(fabric)
    _write(loaded, picture, infragraph)
    if isinstance(loaded, GraphFabric):
        shown = measure(loaded, progress=progress)
        return Told(**_head(loaded), **shown, sources=loaded.sources)
    return Told(_tree(loaded))


@checked
def advise(fabric: FabricLike) -> Told:
    """Say which dimensions of a fabric have too much or too little bandwidth (Themis, §6.3).

    Args:
        fabric: A preset's name, a file, a `Fabric` or a `GraphFabric` that has dimensions.

    Returns:
        `pairs`, `baseline`, `reachable` and `best_split`; bandwidths are Gb/s per NPU.

    Raises:
        InputError: It is not a fabric, or not one of dimensions.

    Example:
        `allrail.fabric.advise("3D-SW_SW_SW_homo")["best_split"]`
    """
    loaded = dimensions_of(_loaded(fabric))
    try:
        advice: dict[str, Any] = json.loads(_core.advise(loaded.model_dump_json()))
    except _core.InputError as error:
        raise from_core(error, places=Places({(): Place(loaded.name)})) from None
    return Told(advice)


def gbps_of(fabric: Fabric) -> tuple[float, ...]:
    """Return the bandwidth of one NPU on each dimension, Gb/s.

    Args:
        fabric: One of dimensions.
    """
    return tuple(8e-9 * aggregate(dimension.model_dump()) for dimension in fabric.dimensions)


def _loaded(fabric: FabricLike) -> Fabric | GraphFabric:
    if isinstance(fabric, (Fabric, GraphFabric)):
        return fabric
    return load_any_fabric(os.fspath(fabric))


def _write(fabric: Fabric | GraphFabric, drawn: PathLike | None, graph: PathLike | None) -> None:
    if drawn is not None:
        renderers().picture(fabric, drawn)
    if graph is not None:
        write_text(Path(graph), infragraph(graph_fabric(fabric)))


def _listed(fabric: Fabric | GraphFabric) -> dict[str, Any]:
    if isinstance(fabric, GraphFabric):
        return {**_head(fabric), **count(fabric)}
    return _tree(fabric)


def _head(fabric: GraphFabric) -> dict[str, Any]:
    return {
        "name": fabric.name,
        "about": fabric.about,
        "calibrated": fabric.calibrated,
        "keys": fabric.keys,
    }


def _tree(fabric: Fabric) -> dict[str, Any]:
    return {
        "name": fabric.name,
        "about": fabric.about,
        "npus": fabric.npus,
        "calibrated": fabric.calibrated,
        "device": fabric.device,
        "dimensions": [
            {**dimension.model_dump(), "aggregate_gbps": gbps}
            for dimension, gbps in zip(fabric.dimensions, gbps_of(fabric), strict=True)
        ],
        "sources": fabric.sources,
    }
