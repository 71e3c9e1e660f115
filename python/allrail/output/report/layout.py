"""Where the nodes of a topology stand in its picture, and which way its cables go.

A topology says how its nodes `stand` (`crates/fabric/src/topologies/drawing.rs`): in a grid with
the trees of rows and columns at its margins, in groups on a circle, or, as any graph can, in layers
of switches above NPUs, or on a circle where there are no switches. Nothing is random: the same
network is drawn in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Point = tuple[float, float]
Cable = tuple[int, int, str]

_BOARD_GAP = 0.9
_STUB = 0.42


@dataclass(slots=True)
class Drawn:
    """One plane of a network: NPUs are the nodes from 0, switches follow."""

    npus: int
    nodes: int
    cables: list[Cable]
    picture: dict[str, Any]
    names: list[str] | None = None

    def neighbours(self) -> list[list[int]]:
        """Return the nodes at the other ends of each node's cables."""
        near: list[list[int]] = [[] for _ in range(self.nodes)]
        for one, other, _ in self.cables:
            near[one].append(other)
            near[other].append(one)
        return near


@dataclass(slots=True)
class Layout:
    """Places and ways, in units of about the distance between two NPUs.

    Attributes:
        at: Of every node.
        ways: Of cables that are not drawn straight: lines, each a list of points.
        boards: Corner, width, height, and whether the board works.
        note: What a reader has to know.
        texts: What stands beside the nodes, and where.
        node: How large an NPU is.
    """

    at: list[Point]
    ways: dict[int, list[list[Point]]] = field(default_factory=dict)
    boards: list[tuple[Point, float, float, bool]] = field(default_factory=list)
    note: str = ""
    texts: list[tuple[Point, str]] = field(default_factory=list)
    node: float = 0.42


def layout(drawn: Drawn) -> Layout:
    """Place every node.

    Args:
        drawn: What the network is made of, and how its nodes stand.
    """
    stand: dict[str, Callable[[dict[str, Any], Drawn], Layout]] = {
        "in_layers": _layers,
        "around_edges": _around_edges,
        "at_switches": _at_switches,
        "on_boards": _on_boards,
        "in_groups": _in_groups,
    }
    return stand[drawn.picture["stand"]](drawn.picture, drawn)


def _around_edges(keys: dict[str, Any], drawn: Drawn) -> Layout:
    layers, rows, columns = [1, *keys["shape"]][-3:]
    step = 1.0 if layers == 1 else 1.0 + 0.4 * layers
    shift = (0.44, 0.3)

    def place(npu: int) -> tuple[int, int, int]:
        return npu // (rows * columns), npu // columns % rows, npu % columns

    drawing = Layout(at=[])
    for npu in range(drawn.npus):
        layer, row, column = place(npu)
        drawing.at.append((step * column + shift[0] * layer, shift[1] * layer - step * row))
    outwards = [(0.75 * shift[0], 0.75 * shift[1]), (0.0, -_STUB), (_STUB, 0.0)]
    drawing.node = 0.42 if layers == 1 else 0.3
    for index, (one, other, _) in enumerate(drawn.cables):
        for axis, (a, b) in enumerate(zip(place(one), place(other), strict=True)):
            if abs(a - b) > 1:
                stubs = []
                for node, mine, its in ((one, a, b), (other, b, a)):
                    sign = 1 if mine > its else -1
                    (x, y), (dx, dy) = drawing.at[node], outwards[axis]
                    stubs.append([(x, y), (x + sign * dx, y + sign * dy)])
                drawing.ways[index] = stubs
    if drawing.ways:
        drawing.note = "a stub at an edge goes round to the opposite edge"
    board = keys["board"]
    if layers == 1 and board and max(board) > 1:
        for row in range(0, rows, board[0]):
            for column in range(0, columns, board[1]):
                corner = (column - 0.34, -(row + board[0] - 1) - 0.34)
                drawing.boards.append((corner, board[1] - 0.32, board[0] - 0.32, True))
    return drawing


def _at_switches(keys: dict[str, Any], drawn: Drawn) -> Layout:
    columns, rows, layers = [*keys["shape"], 1][:3]
    count = keys["npus_per_switch"]
    reach = max(0.8, 0.5 * (count - 1) / math.radians(60))
    shift = reach + 0.45
    spread = reach + 1.1 if layers == 1 else layers * shift + 0.6
    switches: list[Point] = []
    for number in range(drawn.nodes - drawn.npus):
        column, row, layer = number % columns, number // columns % rows, number // columns // rows
        switches.append((column * spread + shift * layer, shift * layer - row * spread))
    npus = []
    for npu in range(drawn.npus):
        x, y = switches[npu // count]
        turn = math.radians(-45) - 0.5 / reach * (npu % count - (count - 1) / 2)
        npus.append(_polar((x, y), reach, turn))
    return Layout(at=npus + switches)


def _on_boards(keys: dict[str, Any], drawn: Drawn) -> Layout:
    (a, b), (x, y) = keys["board"], keys["grid"]
    failed = {(column, row) for column, row in keys["failed"]}

    def spot(row: int, column: int) -> Point:
        return column + _BOARD_GAP * (column // b), -row - _BOARD_GAP * (row // a)

    drawing = Layout(at=[], note=keys["note"])
    line: list[tuple[int, int]] = []
    for row in range(a * y):
        for column in range(b * x):
            if (column // b, row // a) not in failed:
                drawing.at.append(spot(row, column))
                line.append((row, column))
    for row in range(y):
        for column in range(x):
            left, top = spot(row * a, column * b)
            works = (column, row) not in failed
            corner = (left - 0.36, top - a + 1 - 0.36)
            drawing.boards.append((corner, b - 0.28, a - 0.28, works))
    right, bottom = spot(a * y - 1, b * x - 1)
    _margins(drawing, drawn, right + 1.4, bottom - 1.4)
    _buses(drawing, drawn, line, (a, b))
    return drawing


def _margins(drawing: Layout, drawn: Drawn, right: float, bottom: float) -> None:
    """Put the trees of rows to the right and those of columns below."""
    near = drawn.neighbours()
    kinds = {}
    for one, other, kind in drawn.cables:
        if min(one, other) < drawn.npus <= max(one, other):
            kinds[max(one, other)] = kind
    drawing.at += [(0.0, 0.0)] * (drawn.nodes - drawn.npus)
    for across, kind in ((0, "dac"), (1, "aoc")):
        below = set(range(drawn.npus))
        level = sorted(node for node, its in kinds.items() if its == kind)
        depth = 0
        while level:
            along = {
                node: sum(drawing.at[n][1 - across] for n in near[node] if n in below)
                / sum(n in below for n in near[node])
                for node in level
            }
            order = sorted(level, key=lambda node: (round(-along[node], 6), node))
            spots = _apart([-along[node] for node in order], 0.74)
            for node, spot in zip(order, spots, strict=True):
                far = 1.9 * depth
                point = (right + far, -spot) if across == 0 else (-spot, bottom - far)
                drawing.at[node] = point
            done = below | set(level)
            below = set(level)
            level = sorted({n for node in level for n in near[node]} - done - set(kinds))
            depth += 1


def _apart(spots: list[float], least: float) -> list[float]:
    """Move what stands too close apart, around where it stood; `spots` are in order."""
    groups: list[tuple[float, int]] = []
    for spot in spots:
        groups.append((spot, 1))
        while len(groups) > 1:
            (one, n), (other, m) = groups[-2:]
            if other - one >= least * (n + m) / 2 - 1e-9:
                break
            groups[-2:] = [((one * n + other * m) / (n + m), n + m)]
    return [
        middle + least * (i - (count - 1) / 2) for middle, count in groups for i in range(count)
    ]


def _buses(
    drawing: Layout, drawn: Drawn, line: list[tuple[int, int]], board: tuple[int, int]
) -> None:
    """Lead each cable of a row or column beside the NPUs that it passes, in a lane of its own."""
    lanes: dict[tuple[str, int], list[int]] = {}
    for index, (one, other, kind) in enumerate(drawn.cables):
        if one < drawn.npus <= other:
            row, column = line[one]
            lanes.setdefault((kind, row if kind == "dac" else column), []).append(index)
    for (kind, number), indices in lanes.items():
        # Between the rows of a board there is less room than below its last.
        inner = (number + 1) % board[0 if kind == "dac" else 1] != 0
        room = 0.5 if inner else 0.62
        step = min(0.11, (room - 0.18) / len(indices))
        for lane, index in enumerate(reversed(indices)):
            one, other, _ = drawn.cables[index]
            (x, y), (to_x, to_y) = drawing.at[one], drawing.at[other]
            off = 0.24 + step * lane
            if kind == "dac":
                way = [(x, y), (x + 0.3, y - off), (to_x - 0.75, y - off), (to_x, to_y)]
            else:
                way = [(x, y), (x + off, y - 0.3), (x + off, to_y + 0.75), (to_x, to_y)]
            drawing.ways[index] = [way]


def _layers(_keys: dict[str, Any], drawn: Drawn) -> Layout:
    """NPUs below, each switch as high as it is far from the nearest NPU.

    Where domains of NPUs have a switch of their own beside the network that joins them, it stands
    below them, and their ports stand right above them.
    """
    near = drawn.neighbours()
    if drawn.nodes == drawn.npus:
        return _circle(drawn)
    inside = _inside(drawn, near)
    level = [0] * drawn.npus + [-1] * (drawn.nodes - drawn.npus)
    for node in inside:
        level[node] = 0
    front = list(range(drawn.npus))
    while front:
        reached = sorted({n for node in front for n in near[node] if level[n] < 0})
        for node in reached:
            level[node] = level[front[0]] + 1
        front = reached
    own = [[n for n in near[npu] if n in inside] or near[npu] for npu in range(drawn.npus)]
    first = [min((n for n in mine if n >= drawn.npus), default=0) for mine in own]
    step = 1.45 if inside else 1.0
    at: list[Point] = [(0.0, 0.0)] * drawn.nodes
    x = 0.0
    order = sorted(range(drawn.npus), key=lambda npu: (first[npu], npu))
    for before, npu in zip([None, *order], order, strict=False):
        if before is not None:
            x += step if first[before] == first[npu] else 1.8 * step
        at[npu] = (x, 0.0)
    rise = max(2.4, x / 9)
    for node in inside:
        middle_of = [at[n][0] for n in near[node]]
        at[node] = (sum(middle_of) / len(middle_of), -0.6 * rise)
    for height in range(1, max(level) + 1):
        mine = [node for node in range(drawn.nodes) if level[node] == height]
        middle = {
            node: sum(at[n][0] for n in near[node] if level[n] == height - 1)
            / sum(level[n] == height - 1 for n in near[node])
            for node in mine
        }
        mine.sort(key=lambda node: (round(middle[node], 6), node))
        wide = max(x, 1.6 * (len(mine) - 1))
        ideal = [middle[node] for node in mine]
        crowded = any(b - a < 1.2 for a, b in pairwise(ideal))
        # Switches that all reach everywhere would bunch in the middle.
        crowded |= ideal[-1] - ideal[0] < 0.5 * wide * (1 - 1 / len(mine))
        high = height * rise if not inside else (height - 0.5) * rise
        for index, node in enumerate(mine):
            even = x / 2 + wide * ((index + 0.5) / len(mine) - 0.5)
            at[node] = (even if crowded else ideal[index], high)
    drawing = Layout(at=at, node=0.72)
    for index, (one, other, _) in enumerate(drawn.cables):
        if level[one] == level[other] and not inside & {one, other}:
            up = 0.35 if level[one] else -0.35
            drawing.ways[index] = [_bow(at[one], at[other], up)]
    return drawing


def _inside(drawn: Drawn, near: list[list[int]]) -> set[int]:
    """Switches that join NPUs and nothing else, in a network that has others, too."""
    switches = range(drawn.npus, drawn.nodes)
    alone = {node for node in switches if all(n < drawn.npus for n in near[node])}
    return alone if 0 < len(alone) < len(switches) else set()


def _bow(one: Point, other: Point, up: float) -> list[Point]:
    """A bow between two points of a layer, above it or below."""
    (x, y), (to_x, _) = one, other
    high = up * (abs(to_x - x) ** 0.7 + 0.5)
    steps = [i / 16 for i in range(17)]
    return [(x + (to_x - x) * t, y + high * 4 * t * (1 - t)) for t in steps]


def _circle(drawn: Drawn) -> Layout:
    radius = max(1.2, drawn.nodes / math.tau * 1.2)
    turns = [math.pi / 2 - math.tau * node / drawn.nodes for node in range(drawn.nodes)]
    return Layout(at=[(radius * math.cos(t), radius * math.sin(t)) for t in turns])


def _in_groups(keys: dict[str, Any], drawn: Drawn) -> Layout:
    groups, per_group = keys["groups"], (drawn.nodes - drawn.npus) // keys["groups"]
    near = drawn.neighbours()
    most = max(sum(n < drawn.npus for n in near[node]) for node in range(drawn.npus, drawn.nodes))
    arc = math.radians(250)
    inner = max(1.1, per_group * max(1.2, 0.75 * most) / arc)
    outer = inner + 1.3
    centre = max(2.4 * outer, 2.5 * outer * groups / math.tau)
    drawing = Layout(at=[(0.0, 0.0)] * drawn.nodes)
    for group in range(groups):
        turn = math.pi / 2 - math.tau * group / groups
        middle = (centre * math.cos(turn), centre * math.sin(turn))
        drawing.texts.append((_polar((0.0, 0.0), centre + outer + 0.75, turn), f"group {group}"))
        for place in range(per_group):
            switch = drawn.npus + group * per_group + place
            share = (place + 0.5) / per_group - 0.5
            drawing.at[switch] = _polar(middle, inner, turn - arc * share)
            npus = sorted(n for n in near[switch] if n < drawn.npus)
            for index, npu in enumerate(npus):
                fan = (index - (len(npus) - 1) / 2) * arc / per_group / max(len(npus), 2)
                drawing.at[npu] = _polar(middle, outer, turn - arc * share - fan)
    return drawing


def _polar(centre: Point, radius: float, turn: float) -> Point:
    return centre[0] + radius * math.cos(turn), centre[1] + radius * math.sin(turn)
