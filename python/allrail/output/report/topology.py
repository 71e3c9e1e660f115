"""A picture of a topology: one plane of it, NPUs and switches, cables by kind, what has failed.

Networks too large to be read are drawn as a smaller one of the same kind, and the picture says so.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.errors import InputError
from allrail.output.report.layout import Drawn, Layout, layout
from allrail.output.report.style import HUES, INK, MUTED, PANEL, PAPER, WIDTH, style
from allrail.simulation.graphs import count, facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from allrail.scenario import GraphFabric

NAME = "topology"
MOST_NPUS = 256
"""Networks of more NPUs are drawn as smaller ones."""
MOST_CABLES = 2500

CABLES = {"aoc": HUES[1], "dac": HUES[0], "pcb": HUES[2]}
_CABLE_NAMES = {"aoc": "optical (AoC)", "dac": "copper (DAC)", "pcb": "trace (PCB)"}
_FAILED = HUES[4]


def topology(fabric: GraphFabric) -> Figure:
    """Draw one plane of a fabric.

    Args:
        fabric: A graph fabric; one of more than 256 NPUs is drawn as a smaller one of its kind.

    Raises:
        InputError: It is too large, and there is no smaller one of its kind.
    """
    from matplotlib.figure import Figure

    keys = dict(fabric.keys)
    failed = {key: keys.pop(key, []) for key in ("failed_nodes", "failed_links")}
    drawn, changed = _drawn(fabric, keys)
    if changed:
        changed |= {key: (some, []) for key, some in failed.items() if some}
        failed = {"failed_nodes": [], "failed_links": []}
    drawing = layout(drawn)
    names = drawn.names or [str(node) for node in range(drawn.nodes)]
    broken = {names.index(str(node)) for node in failed["failed_nodes"]}
    cut = _cut(drawn, [[names.index(str(end)) for end in ends] for ends in failed["failed_links"]])
    lost = cut | {
        index for index, cable in enumerate(drawn.cables) if broken & {cable[0], cable[1]}
    }
    with style(NAME):
        xs, ys = _extent(drawing)
        margin = 0.2 + drawing.node
        wide, high = xs[1] - xs[0] + 2 * margin, ys[1] - ys[0] + 2 * margin
        width = min(max(0.85 * wide, 7.0), max(WIDTH, min(0.2 * wide, 26.0)))
        height = min(max(width * high / wide, 2.5), 12.0)
        figure = Figure(figsize=(width, height + 1.1), layout="constrained")
        axes = figure.subplots()
        axes.set_xlim(xs[0] - margin, xs[1] + margin)
        axes.set_ylim(ys[0] - margin, ys[1] + margin)
        axes.set_aspect("equal")
        axes.set_axis_off()
        scale = min(width / wide, height / high) * 72
        _boards(axes, drawing)
        _cables(axes, drawn, drawing, lost, scale)
        _nodes(axes, drawn, drawing, names, broken, scale)
        _legend(figure, drawn, lost, broken, drawing)
        _title(axes, fabric, drawing, changed)
    return figure


def _drawn(fabric: GraphFabric, keys: dict[str, Any]) -> tuple[Drawn, dict[str, tuple[Any, Any]]]:
    """What to draw, and which keys had to become smaller for it: what they were, what they are."""
    changed: dict[str, tuple[Any, Any]] = {}
    if count(fabric)["npus"] > MOST_NPUS or _crowded(keys):
        smaller = facts(fabric)["smaller"] or []
        changed = {key: (keys.get(key), value) for key, value in smaller}
        changed = {key: (old, new) for key, (old, new) in changed.items() if old != new}
    keys = {**keys, **{key: new for key, (_, new) in changed.items()}}
    chosen = fabric.model_validate({"name": fabric.name, "topology": fabric.topology, **keys})
    if count(chosen)["npus"] > MOST_NPUS or _crowded(keys):
        raise InputError(
            f"a picture shows {MOST_NPUS} NPUs at most",
            hint="draw a part of it: a file with fewer nodes",
            field="--picture",
            value=fabric.name,
        )
    tree = chosen.ask(lambda text, _: _core.graph_cables(text))
    tree["cables"] = [tuple(one) for one in tree["cables"]]
    return Drawn(**tree), changed


def _crowded(keys: dict[str, Any]) -> bool:
    """Whether a graph of one's own has more cables than can be told apart."""
    return len(keys.get("links", [])) > MOST_CABLES


def _cut(drawn: Drawn, links: list[list[int]]) -> set[int]:
    """The first cable that is left for each failed link."""
    cut: set[int] = set()
    for ends in links:
        between = {frozenset(ends)}
        for index, (one, other, _) in enumerate(drawn.cables):
            if index not in cut and frozenset((one, other)) in between:
                cut.add(index)
                break
    return cut


def _extent(drawing: Layout) -> tuple[tuple[float, float], tuple[float, float]]:
    points = list(drawing.at)
    for lines in drawing.ways.values():
        for line in lines:
            points += line
    points += [point for point, _ in drawing.texts]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), max(xs)), (min(ys), max(ys))


def _boards(axes: Axes, drawing: Layout) -> None:
    from matplotlib.patches import Rectangle

    for (x, y), width, height, works in drawing.boards:
        look: dict[str, Any] = {"facecolor": PANEL, "edgecolor": "none"}
        if not works:
            look = {"facecolor": "none", "edgecolor": _FAILED, "linestyle": (0, (3, 3))}
            for ends in ([y, y + height], [y + height, y]):
                axes.plot([x, x + width], ends, color=_FAILED, linewidth=0.9)
        axes.add_patch(Rectangle((x, y), width, height, linewidth=0.9, zorder=0, **look))


def _cables(axes: Axes, drawn: Drawn, drawing: Layout, lost: set[int], scale: float) -> None:
    from matplotlib.collections import LineCollection

    parallel = Counter(frozenset(cable[:2]) for cable in drawn.cables)
    seen: Counter[frozenset[int]] = Counter()
    lines: dict[str, list[Any]] = {kind: [] for kind in (*CABLES, "failed")}
    for index, (one, other, kind) in enumerate(drawn.cables):
        ways = drawing.ways.get(index)
        if ways is None:
            pair = frozenset((one, other))
            ways = [_beside(drawing.at[one], drawing.at[other], seen[pair], parallel[pair])]
            seen[pair] += 1
        lines["failed" if index in lost else kind] += ways
    width = max(0.45, min(1.3, scale / 32, 900 / len(drawn.cables)))
    for kind, some in lines.items():
        if some:
            broken = kind == "failed"
            axes.add_collection(
                LineCollection(
                    some,
                    colors=_FAILED if broken else CABLES[kind],
                    linewidths=width,
                    linestyles=(0, (2, 2)) if broken else "solid",
                    alpha=0.85,
                    zorder=1,
                )
            )


def _beside(
    one: tuple[float, float], other: tuple[float, float], lane: int, lanes: int
) -> list[tuple[float, float]]:
    """A straight cable; parallel ones a little apart."""
    (x, y), (to_x, to_y) = one, other
    length = max(((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5, 1e-9)
    off = (lane - (lanes - 1) / 2) * min(0.12, 0.5 / lanes)
    dx, dy = -(to_y - y) / length * off, (to_x - x) / length * off
    return [(x + dx, y + dy), (to_x + dx, to_y + dy)]


def _nodes(
    axes: Axes, drawn: Drawn, drawing: Layout, names: list[str], broken: set[int], scale: float
) -> None:
    # Markers are sized in points.
    npu = min(drawing.node * scale, 24.0)
    switch = 1.4 * npu
    for first, last, shape, size, face, text in (
        (0, drawn.npus, "s", npu, PAPER, INK),
        (drawn.npus, drawn.nodes, "o", switch, INK, PAPER),
    ):
        for state, edge in ((False, INK), (True, _FAILED)):
            some = [node for node in range(first, last) if (node in broken) is state]
            axes.scatter(
                [drawing.at[node][0] for node in some],
                [drawing.at[node][1] for node in some],
                s=size**2,
                marker=shape,
                facecolor=PAPER if state else face,
                edgecolor=edge,
                linewidth=0.8,
                zorder=3,
            )
        longest = max((len(names[node]) for node in range(first, last)), default=1)
        font = min(9.0, 1.25 * size / max(longest, 2))
        for node in range(first, last):
            if font >= 2.6:
                axes.annotate(
                    names[node],
                    drawing.at[node],
                    ha="center",
                    va="center_baseline",
                    fontsize=font,
                    color=_FAILED if node in broken else text,
                    zorder=5,
                )
    for node in broken:
        (x, y), size = drawing.at[node], npu if node < drawn.npus else switch
        arm = 0.75 * size / scale
        for turn in (arm, -arm):
            axes.plot(
                [x - arm, x + arm], [y - turn, y + turn], color=_FAILED, linewidth=1.2, zorder=2
            )
    for (x, y), text in drawing.texts:
        axes.annotate(text, (x, y), ha="center", va="center", color=MUTED, fontsize=8)


def _legend(
    figure: Figure,
    drawn: Drawn,
    lost: set[int],
    broken: set[int],
    drawing: Layout,
) -> None:
    from matplotlib.lines import Line2D

    def mark(shape: str, face: str, label: str) -> Line2D:
        line = Line2D([], [], linestyle="none", marker=shape, markersize=7, label=label)
        line.set_markerfacecolor(face)
        line.set_markeredgecolor(INK)
        return line

    switches = drawn.nodes - drawn.npus
    entries = [mark("s", PAPER, f"{drawn.npus} NPUs")]
    if switches:
        entries.append(mark("o", INK, f"{switches} switch{'es' if switches > 1 else ''}"))
    kinds = Counter(kind for _, _, kind in drawn.cables)
    for kind, colour in CABLES.items():
        if kinds[kind]:
            label = f"{kinds[kind]} {_CABLE_NAMES[kind]}"
            entries.append(Line2D([], [], color=colour, linewidth=1.6, label=label))
    dead = sum(not works for _, _, _, works in drawing.boards)
    if lost or broken or dead:
        parts = [(len(broken), "node"), (len(lost), "cable"), (dead, "board")]
        told = ", ".join(f"{n} {what}{'s' if n > 1 else ''}" for n, what in parts if n)
        line = Line2D([], [], color=_FAILED, linewidth=1.4, linestyle=(0, (2, 2)))
        line.set_label(f"failed: {told}")
        entries.append(line)
    columns = min(len(entries), int(figure.get_figwidth() / 1.8))
    figure.legend(handles=entries, loc="outside lower center", ncols=columns, fontsize=9)


def _title(
    axes: Axes,
    fabric: GraphFabric,
    drawing: Layout,
    changed: dict[str, tuple[Any, Any]],
) -> None:
    planes = fabric.keys.get("planes", 1)
    plane = f", one of {planes} alike planes" if planes > 1 else ""
    lines = [f"{fabric.name}: {fabric.topology}{plane}"]
    if changed:
        parts = [
            f"{key} {json.dumps(new)}" + ("" if old is None else f" instead of {json.dumps(old)}")
            for key, (old, new) in changed.items()
        ]
        lines.append("a smaller one of its kind, to be readable: " + ", ".join(parts))
    if drawing.note:
        lines.append(drawing.note)
    axes.set_title(lines[0], loc="left", fontsize=12, pad=8 + 13 * (len(lines) - 1))
    for number, line in enumerate(lines[1:]):
        axes.annotate(
            line,
            (0.0, 1.0),
            xycoords="axes fraction",
            xytext=(0, 4 + 13 * (len(lines) - 2 - number)),
            textcoords="offset points",
            color=MUTED,
            fontsize=9,
        )
