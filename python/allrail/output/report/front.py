"""Cost against throughput: the points that nothing cheaper or equally cheap surpasses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from allrail.base.units import show_count, show_number
from allrail.output.report.document import Cell, Chart, Section, Table
from allrail.output.report.points import data as points_data
from allrail.scenario import GraphFabric
from allrail.simulation.graphs import count

MOST_POINTS = 10_000
T = TypeVar("T")


def pareto_front(points: Sequence[tuple[float, float, T]]) -> list[tuple[float, float, T]]:
    """Return the points that nothing cheaper or equally cheap surpasses, the cheapest first.

    Args:
        points: Cost, throughput, and which; of equal ones the first counts.
    """
    front: list[tuple[float, float, T]] = []
    for point in sorted(points, key=lambda one: (one[0], -one[1])):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return front


def front_section(points: Sequence[tuple[float, float, str]], *, rate: str) -> Section:
    """A chart of cost against throughput, and its front as a table.

    Without blocks, and so not on the page, where all cost the same.

    Args:
        points: Cost in US dollars, throughput, and what it is.
        rate: What the throughput is.
    """
    if len({cost for cost, _, _ in points}) < 2:
        return Section("pareto", "Cost against throughput", [])
    shown = [(cost / 1e6, value, name) for cost, value, name in points[:MOST_POINTS]]
    front = pareto_front(shown)
    left = len(points) - len(shown)
    chart = Chart(
        name="front",
        title=f"Cost of the network against {rate}",
        caption="Up and to the left is better. The line joins what nothing cheaper surpasses.",
        draws="points",
        data=points_data(
            shown,
            one="a point",
            many="points",
            line="nothing cheaper does more",
            axes=["cost (M$)", rate],
        ),
        words=f"{show_count(len(shown), 'point')}, {len(front):,} of them on the front.",
        note=f"In the table beside this page: {show_count(left, 'more point')}." if left else "",
    )
    table = Table(
        "cheapest",
        ["point", "cost (M$)", rate],
        [
            [name, Cell(show_number(cost, 6), cost), Cell(show_number(value, 6), value)]
            for cost, value, name in front
        ],
        [0],
        title="Nothing cheaper does more",
    )
    return Section("pareto", "Cost against throughput", [chart, table])


def priced(
    rates: Mapping[str, float], inputs: Mapping[str, Mapping[str, Any]]
) -> list[tuple[float, float, str]]:
    """Results whose network has a price: its cost in US dollars, their throughput, their name.

    Args:
        rates: Throughput by name.
        inputs: The scenario of each result, as plain values.
    """
    costs: dict[str, float | None] = {}
    points = []
    for name, rate in rates.items():
        fabric = inputs[name]["fabric"]
        if "topology" not in fabric:
            continue
        key = json.dumps(fabric, sort_keys=True)
        if key not in costs:
            costs[key] = count(GraphFabric.model_validate(fabric)).get("cost_usd")
        cost = costs[key]
        if cost is not None:
            points.append((cost, rate, name))
    return points
