"""What the network of a report looks like: a graph's plane, or one group of each dimension."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError
from allrail.output.report.document import Picture, Section, Words, distinct
from allrail.output.report.style import GRID, HUES, INK, MUTED, PAPER, WIDTH, bare, style, svg
from allrail.output.report.topology import topology
from allrail.scenario import GraphFabric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_FABRICS = 4
MOST_NODES = 8
"""Of a group are drawn; its size is said."""

Edges = list[tuple[int, int]]
"""Between nodes by number; -1 is what stands in their middle."""


def fabric_section(inputs: Mapping[str, Mapping[str, Any]]) -> Section:
    """Pictures of the fabrics that were simulated.

    Args:
        inputs: The scenario of each result, as plain values.
    """
    fabrics = list(distinct({name: tree["fabric"] for name, tree in inputs.items()}).values())
    blocks: list[Picture | Words] = []
    for number, tree in enumerate(fabrics[:MOST_FABRICS]):
        try:
            blocks.append(_picture(f"fabric{number}", tree))
        except InputError as error:
            blocks.append(Words([f"{tree.get('name')} is not drawn: {error.message}."]))
    left = len(fabrics) - MOST_FABRICS
    if left > 0:
        blocks.append(Words([f"{left} more are not drawn; `allrail fabric show` draws them."]))
    return Section("topology", "Topology", blocks)


def _picture(name: str, tree: Mapping[str, Any]) -> Picture:
    if "topology" in tree:
        return _graph(name, tree)
    dimensions = tree["dimensions"]
    title = f"The dimensions of {tree.get('name', 'the network')}"
    words = "; ".join(
        f"dim{number}: {str(one['kind']).replace('_', ' ')} of {one['size']}"
        for number, one in enumerate(dimensions, start=1)
    )
    return Picture(
        name,
        title,
        "One group of NPUs of each dimension, the innermost on the left. Every NPU is in one group "
        f"of each; of large groups {MOST_NODES} NPUs are drawn.",
        svg(groups(dimensions, name=name), name=name),
        words,
    )


def _graph(name: str, tree: Mapping[str, Any]) -> Picture:
    fabric = GraphFabric.model_validate({"name": "a graph", **tree})
    return Picture(
        name,
        f"One plane of {fabric.name}",
        "Squares are NPUs, circles switches; colours are kinds of cables.",
        svg(topology(fabric), name=name),
        f"A {fabric.topology.replace('_', ' ')} with "
        + ", ".join(f"{key} {json.dumps(value)}" for key, value in _short(fabric.keys).items()),
    )


def _short(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Keys whose values are numbers, words or short lists, not parts of a graph."""
    return {
        key: one
        for key, one in keys.items()
        if not isinstance(one, Mapping) and len(json.dumps(one)) < 60
    }


def groups(dimensions: list[Mapping[str, Any]], *, name: str) -> Figure:
    """Draw one group of every dimension.

    Args:
        dimensions: With `kind`, `size`, `links`, `bandwidth` and `latency`, innermost first.
        name: Of the picture.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    with style(name):
        figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
        panels = figure.subplots(1, len(dimensions), squeeze=False)[0]
        for number, (axes, one) in enumerate(zip(panels, dimensions, strict=True), start=1):
            count = max(1, min(int(one["size"]), MOST_NODES))
            at = [
                (math.sin(2 * math.pi * i / count), math.cos(2 * math.pi * i / count))
                for i in range(count)
            ]
            edges = EDGES.get(str(one["kind"]), _star)(count)
            middle = any(-1 in edge for edge in edges)
            ends = [*at, (0.0, 0.0)]
            axes.add_collection(
                LineCollection(
                    [[ends[first], ends[second]] for first, second in edges],
                    colors=HUES[(number - 1) % len(HUES)],
                    linewidths=1.6,
                    zorder=1,
                )
            )
            axes.scatter(
                *zip(*at, strict=True),
                s=150,
                marker="s",
                facecolor=PAPER,
                edgecolor=INK,
                linewidth=0.9,
                zorder=2,
            )
            if middle:
                axes.scatter([0], [0], s=260, marker="o", facecolor=INK, edgecolor=INK, zorder=2)
            axes.set_xlim(-2, 2)
            axes.set_ylim(-1.35, 1.35)
            axes.set_aspect("equal")
            axes.set_xticks([])
            axes.set_yticks([])
            bare(axes, keep=())
            drawn = f", {count} drawn" if count < int(one["size"]) else ""
            kind = str(one["kind"]).replace("_", " ")
            axes.set_title(f"dim{number}: {kind} of {one['size']}{drawn}", color=INK)
            links = int(one.get("links") or 1)
            rate = f"{links} × {one['bandwidth']}" if links > 1 else str(one["bandwidth"])
            axes.set_xlabel(f"{rate} per NPU, {one['latency']}", color=MUTED)
            if number < len(dimensions):
                axes.axvline(2, color=GRID, linewidth=0.8)
    return figure


def _ring(count: int) -> Edges:
    return [(i, (i + 1) % count) for i in range(count if count > 2 else count - 1)]


def _all(count: int) -> Edges:
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def _star(count: int) -> Edges:
    return [(i, -1) for i in range(count)]


EDGES: Mapping[str, Callable[[int], Edges]] = {
    "ring": _ring,
    "fully_connected": _all,
    "switch": _star,
}
"""How the NPUs of a group are joined, by kind of dimension; a switch is in the middle of others."""
