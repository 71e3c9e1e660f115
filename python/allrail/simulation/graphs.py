"""Graph fabrics without simulating them: counts, price, diameter, half-plane cut.

from allrail.simulation.graphs import cost, measure

measure("hx2mesh-1k")["diameter_bfs"]
cost(["fat-tree-1k", "hx2mesh-1k"])["fabrics"][1]["cost_usd"]
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from allrail import _core
from allrail.base.arguments import KINDS, PathLike, check, checked
from allrail.base.errors import InputError, did_you_mean, show
from allrail.base.progress import Progress
from allrail.base.stdin import STDIN
from allrail.results.table import ToldTable
from allrail.scenario import Fabric, GraphFabric, load_any_fabric
from allrail.scenario.infragraph_writer import write
from allrail.scenario.places import parse_path, show_path
from allrail.scenario.text import read_file

PRICES = Path(__file__).parents[1] / "presets" / "prices"
_FOR_PEOPLE = ("schema_version", "name", "about", "sources")

GraphLike = str | os.PathLike[str] | GraphFabric
"""A preset's name, a file, or a `GraphFabric`."""
GraphsLike = GraphLike | Sequence[GraphLike]
"""One of them, or several."""


def measure(
    fabric: GraphLike,
    *,
    prices: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Build one plane of a fabric and say what it is.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`.
        prices: A file of prices or a preset of them; the paper's if None.
        progress: Told from how many NPUs distances are known.

    Returns:
        `npus`, `switches`, `cables`, `cost_usd`, `diameter`, `diameter_bfs` (cables),
        `half_plane_cut_links` (of one plane), `planes` and more.

    Raises:
        InputError: It is no graph fabric, or not a whole one.
    """
    tree: dict[str, Any] = graph_fabric(fabric).ask(
        partial(_core.graph_show, progress=progress), _prices(prices)
    )
    return tree


def count(fabric: GraphLike, *, prices: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Say what `measure` says, but for what only the built graph tells.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`.
        prices: A file of prices or a preset of them; the paper's if None.

    Raises:
        InputError: It is no graph fabric.
    """
    tree: dict[str, Any] = graph_fabric(fabric).ask(_core.graph_count, _prices(prices))
    return tree


def facts(fabric: GraphLike) -> dict[str, Any]:
    """Say what a fabric's topology says of itself beside its numbers.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`.

    Returns:
        `named`: whether its nodes have names, not numbers. `shares_ports`: whether all dimensions
        leave an NPU by the same cables. `smaller`: the keys of a network of its kind that a picture
        can show, each with its value; None if there is none.

    Raises:
        InputError: It is no graph fabric.
    """
    tree: dict[str, Any] = graph_fabric(fabric).ask(_core.graph_facts)
    return tree


class Priced(ToldTable):
    """Prices of fabrics: `prices` (US dollars a part) and `fabrics`, a row each."""

    ROWS = "fabrics"
    PLOTTED = ("name", "cost_usd")


@checked
def cost(fabrics: GraphsLike, *, prices: PathLike | None = None) -> Priced:
    """Price several fabrics: the columns of HammingMesh's Table II.

    Args:
        fabrics: Presets' names, files, or `GraphFabric`s, in a list; or one of them.
        prices: A file of prices or a preset of them; the paper's if None.

    Returns:
        `prices` (US dollars a part) and `fabrics`, each as `count` gives it, with its `name` and
        `savings`: the first one's price over its own; None where that is zero.

    Raises:
        InputError: One is no graph fabric, or a price is none.

    Example:
        `allrail.cost(["fat-tree-1k", "hx2mesh-1k"]).to_polars()`
    """
    several: Sequence[GraphLike]
    several = fabrics if isinstance(fabrics, (list, tuple)) else [cast("GraphLike", fabrics)]
    rows: list[dict[str, Any]] = []
    for fabric in several:
        check("fabrics", fabric, kind=KINDS["fabric"])
        graph = graph_fabric(fabric)
        rows.append({"name": graph.name, **count(graph, prices=prices)})
    for row in rows:
        row["savings"] = rows[0]["cost_usd"] / row["cost_usd"] if row["cost_usd"] else None
    return Priced(prices=read_prices(prices), fabrics=rows)


@cache
def price_names() -> tuple[str, ...]:
    """Return the names of the packaged prices."""
    return tuple(sorted(path.stem for path in PRICES.glob("*.yaml")))


DEFAULT_PRICES = "hammingmesh"


def read_prices(prices: str | os.PathLike[str] | None = None) -> dict[str, float]:
    """Read the prices of parts, in US dollars.

    Args:
        prices: A file of prices or a preset of them; `hammingmesh` if None.

    Raises:
        InputError: There is no such file, or a price in it is none.
    """
    name = os.fspath(DEFAULT_PRICES if prices is None else prices)
    path = PRICES / f"{name}.yaml" if name in price_names() else Path(name)
    if path.parent != PRICES and path != STDIN and path.suffix not in (".yaml", ".yml", ".json"):
        raise InputError(
            "there are no such prices",
            hint=did_you_mean(name, price_names(), others="the presets are"),
            source="--prices",
            value=name,
        )
    tree, places = read_file(path)
    parts = tree
    if isinstance(tree, dict):
        parts = {key: value for key, value in tree.items() if key not in _FOR_PEOPLE}
    try:
        read: dict[str, float] = json.loads(_core.check_prices(json.dumps(parts, allow_nan=False)))
    except ValueError as error:
        told = _told(error)
        field = (parse_path(told["field"]) or ())[1:]
        place = places.of(field)
        raise InputError(
            told["why"],
            hint=told["hint"] or "",
            source=place.source or str(path),
            line=place.line,
            field=show_path(field),
            value=show(told["value"]) if told["value"] else None,
        ) from None
    return read


def _told(error: ValueError) -> dict[str, Any]:
    if isinstance(error, _core.InputError):
        told: dict[str, Any] = json.loads(str(error.args[0]))
        return told
    return {
        "field": "",
        "value": "",
        "why": "a price is not a finite number",
        "hint": "write dollars, such as `aoc: 603`",
    }


def _prices(prices: str | os.PathLike[str] | None) -> str | None:
    return None if prices is None else json.dumps(read_prices(prices))


def infragraph(fabric: GraphLike) -> str:
    """Write one plane of a fabric as InfraGraph's YAML.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`.

    Returns:
        The text of the file: an instance for each NPU and switch, or the instances that the
        fabric's own InfraGraph file had; an edge for the cables between two nodes, with the rate of
        all of them.

    Raises:
        InputError: It is no graph fabric, or has more than 65,536 NPUs.
    """
    graph = graph_fabric(fabric)
    links: dict[str, Any] = graph.ask(lambda text, _: _core.graph_links(text))
    return write(links, name=graph.name)


def graph_fabric(fabric: GraphLike | Fabric) -> GraphFabric:
    """Return the graph fabric that is named or given.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`.

    Raises:
        InputError: It is no graph fabric.
    """
    loaded = fabric
    if not isinstance(loaded, (Fabric, GraphFabric)):
        loaded = load_any_fabric(os.fspath(loaded))
    if isinstance(loaded, Fabric):
        raise InputError(
            "it is made of dimensions, which have no switches and cables to count",
            hint="name a fabric with `topology`, such as `hx2mesh-1k`",
            field="fabric",
            value=loaded.name,
        )
    return loaded
