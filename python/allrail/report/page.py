"""The report: one HTML file with its pictures inside, which opens without a network.

It names the world of every number, says that an uncalibrated number is one, follows light and dark
mode, and holds no measurement of the host, so that the same results give the same file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allrail.report import style
from allrail.result import Result
from allrail.results.units import show_bandwidth, show_percent, show_size, show_time

VARIABLES = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.GRID: "var(--grid)",
    style.PANEL: "var(--panel)",
    style.PAPER: "var(--paper)",
}
"""The greys of the pictures and the page's variables that replace them."""

TITLES = {
    "comparison": "Time and bandwidth used",
    "gantt": "What each dimension sends, and when",
    "activity": "Activity of each dimension",
}
CAPTIONS = {
    "comparison": "One bar a result. The stroke across the bars on the left is a time that no "
    "schedule can beat; how far a bar reaches past it is what is left to gain.",
    "gantt": "One band a dimension. Colour is the chunk; reduce-scatters stand above, all-gathers "
    "below in a lighter shade. Grey is idle time: bandwidth that is paid for and not used.",
    "activity": "The part of each window of time in which a dimension sends, as Fig. 10 of the "
    "Themis paper shows it. The vertical line marks the end of the last collective.",
}

Inputs = Mapping[str, Mapping[str, Any]]


def page(
    results: Mapping[str, Result], *, inputs: Inputs, pictures: Mapping[str, str], version: str
) -> str:
    """The report as HTML.

    Args:
        results: By name; the first is what the others are compared with.
        inputs: The scenario of each result, as plain values.
        pictures: SVG by name, in the order in which they shall stand.
        version: Of allrail.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    first = next(iter(results.values()))
    fabrics = {str(tree["fabric"]["name"]) for tree in inputs.values()}
    text = environment.get_template("report.html.j2").render(
        title=", ".join(sorted(fabrics)),
        subtitle=_subtitle(inputs),
        headline=_headline(results),
        badges=_badges(results),
        cards=_cards(results),
        results=_results(results),
        dimensions=_dimensions(results),
        collectives=_collectives(results),
        pictures=[
            {
                "name": name,
                "title": TITLES[name],
                "caption": CAPTIONS[name],
                "svg": embed(svg, name=name, label=TITLES[name]),
            }
            for name, svg in pictures.items()
        ],
        inputs={name: as_yaml(tree) for name, tree in distinct(inputs).items()},
        below_bound=any(result.below_physical_bound for result in results.values()),
        simulated_as=list(
            dict.fromkeys(one.simulated_as for one in results.values() if one.simulated_as)
        ),
        calibrated=first.calibrated,
        worlds=sorted({result.world for result in results.values()}),
        version=version,
    )
    return re.sub(r"[ \t]+\n", "\n", text)


def embed(svg: str, *, name: str, label: str) -> str:
    """An SVG file as an element of a page.

    Its ids become its own on the page, its greys the page's variables, and its background the
    page's.

    Args:
        svg: The file.
        name: What its ids start with.
        label: Read out in place of the picture.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{name}-", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    opening = f'<svg role="img" aria-label="{html.escape(label, quote=True)}"'
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1).replace(
        "<svg", opening, 1
    )


def _subtitle(inputs: Inputs) -> str:
    collectives = next(iter(inputs.values()))["collective"]
    texts = [f"{str(c['kind']).replace('_', '-')} of {c['size']}" for c in collectives[:3]]
    more = f" and {len(collectives) - 3} more" if len(collectives) > 3 else ""
    return ", ".join(dict.fromkeys(texts)) + more


def _headline(results: Mapping[str, Result]) -> str:
    (base_name, base), *_ = results.items()
    name, best = min(results.items(), key=lambda item: item[1].time_us)
    if len(results) == 1:
        used = (
            "; it is below what the links can carry, see the notes"
            if base.utilisation is None
            else f" and uses {show_percent(base.utilisation)} of the fabric's bandwidth"
        )
        return f"{base_name} takes {show_time(base.time_us)}{used}."
    if best is base:
        return f"{base_name} is the fastest: {show_time(base.time_us)}."
    return (
        f"{name} takes {show_time(best.time_us)} instead of {show_time(base.time_us)}: "
        f"{base.time_us / best.time_us:.2f} times as fast as {base_name}."
    )


def _badges(results: Mapping[str, Result]) -> list[tuple[str, str]]:
    worlds = sorted({result.world for result in results.values()})
    badges = [("plain", f"world: {', '.join(worlds)}")]
    if all(result.calibrated for result in results.values()):
        badges.append(("good", "calibrated"))
    else:
        badges.append(("care", "uncalibrated"))
    if any(result.below_physical_bound for result in results.values()):
        badges.append(("care", "below the physical bound"))
    return badges


def _cards(results: Mapping[str, Result]) -> list[tuple[str, str, str]]:
    best = min(results.values(), key=lambda result: result.time_us)
    above = best.time_us / best.bound_time_us - 1 if best.bound_time_us > 0 else 0.0
    distance = f"{100 * above:.2f} % above the lower bound"
    if best.below_physical_bound:
        distance = "below what the links can carry"
    if best.algbw_GBps is None or best.busbw_GBps is None:
        bandwidth = ("collectives", f"{len(best.collectives)}", "at once")
    else:
        bandwidth = (
            "algorithm bandwidth",
            f"{best.algbw_GBps:,.4g} GB/s",
            f"bus {best.busbw_GBps:,.4g} GB/s",
        )
    return [
        ("time", show_time(best.time_us), distance),
        ("bandwidth used", show_percent(best.utilisation), "of all dimensions together"),
        ("sent per NPU", show_size(best.bytes_per_npu), f"{best.npus:,} NPUs"),
        bandwidth,
    ]


def _results(results: Mapping[str, Result]) -> list[list[str]]:
    first = next(iter(results.values())).time_us
    return [
        [
            name,
            result.policy,
            result.order.replace("_", " "),
            str(result.chunks),
            f"{result.time_us:,.3f}",
            f"{first / result.time_us:.3f}",
            f"{result.ideal_time_us:,.3f}",
            f"{result.bound_time_us:,.3f}",
            show_percent(result.utilisation),
            result.world,
        ]
        for name, result in results.items()
    ]


def _dimensions(results: Mapping[str, Result]) -> list[list[str]]:
    return [
        [
            name,
            one.name,
            one.kind.replace("_", " "),
            f"{one.size:,}",
            show_bandwidth(one.bandwidth_gbps),
            one.algorithm.replace("_", " "),
            show_size(one.bytes_per_npu),
            show_percent(one.utilisation),
            show_percent(one.busy_fraction),
        ]
        for name, result in results.items()
        for one in result.dimensions
    ]


def _collectives(results: Mapping[str, Result]) -> list[list[str]]:
    """Only where there are several: one alone says what the results say."""
    return [
        [
            name,
            one.name,
            one.kind.replace("_", "-"),
            show_size(one.size_bytes),
            f"{one.start_us:,.3f}",
            f"{one.finish_us:,.3f}",
            f"{one.time_us:,.3f}",
        ]
        for name, result in results.items()
        if len(result.collectives) > 1
        for one in result.collectives
    ]


def distinct(inputs: Inputs) -> dict[str, Mapping[str, Any]]:
    """Each scenario once, under the names of all results that it gave.

    Args:
        inputs: By the name of their result.
    """
    groups: list[tuple[list[str], Mapping[str, Any]]] = []
    for name, tree in inputs.items():
        for names, other in groups:
            if other == tree:
                names.append(name)
                break
        else:
            groups.append(([name], tree))
    return {", ".join(names): tree for names, tree in groups}


def as_yaml(tree: Mapping[str, Any]) -> str:
    """A scenario as text.

    Args:
        tree: As plain values.
    """
    import yaml

    return yaml.safe_dump(dict(tree), sort_keys=False, default_flow_style=None, width=96)
