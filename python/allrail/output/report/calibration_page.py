"""The report of `calibrate network`: measured beside fitted and simulated, by size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.base.units import show_count
from allrail.measure.calibrate.table import AROUND
from allrail.output.report.bandwidth import NAME, picture
from allrail.output.report.document import Cell, Cells, Page, Picture, Section, Table, Words

_MEANINGS = {
    "measured": "What the tables have.",
    "simulated": "What the simulator says with the fabric that was made of them.",
    "bus bandwidth": "Size over time, times what nccl-tests multiply it by for the collective.",
}


def page(told: Mapping[str, Any]) -> Page:
    """Return the report.

    Args:
        told: What `allrail calibrate network --json` prints.
    """
    fabric = told["fabric"]
    bar = fabric.get("error")
    cards = [
        (f"dimension of {one['size']}", one["bandwidth"], f"{one.get('latency', '0 us')} a step")
        for one in fabric["dimensions"]
    ]
    if bar is not None:
        cards.append(("error", f"± {100 * bar:.1f} %", "that the fabric carries"))
    headline = f"Half of the sizes are within {100 * told['error']:.0f} %."
    return Page(
        title=f"Calibrated: {told['collective']} over {show_count(told['ranks'], 'rank')}",
        subtitle=fabric.get("about", ""),
        badges=[("good", "measured")],
        headline=headline,
        summary=[],
        cards=cards,
        sections=[
            Section("picture", "Bandwidth by size", _pictures(told)),
            Section("sizes", "Sizes", [_sizes(told)]),
            Section("unknown", "What the tables cannot tell", _unknown(told)),
        ],
        meanings=_MEANINGS,
        notes=told["notes"],
        inputs={"the fabric": fabric},
        beside="sizes.parquet and sizes.csv beside it have every size.",
    )


def _pictures(told: Mapping[str, Any]) -> list[Picture]:
    """A picture for each collective and number of ranks."""
    tables: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in told["rows"]:
        of = (row.get("collective", told["collective"]), row.get("ranks", told["ranks"]))
        tables.setdefault(of, []).append(row)
    pictures = []
    for number, ((collective, ranks), some) in enumerate(tables.items()):
        around = AROUND[collective](ranks)
        lines = {
            word: [(one["bytes"], around * one["bytes"] / one[f"{word}_us"] / 1e3) for one in some]
            for word in ("simulated", "measured")
        }
        title = f"{collective} over {show_count(ranks, 'rank')}"
        pictures.append(picture(f"{NAME}-{number}", title, lines))
    return pictures


def _sizes(told: Mapping[str, Any]) -> Table:
    cells: list[Cells] = []
    for one in told["rows"]:
        off = one["simulated_us"] / one["measured_us"] - 1
        cells.append(
            [
                one.get("collective", told["collective"]),
                Cell(f"{one.get('ranks', told['ranks']):,}", one.get("ranks", told["ranks"])),
                Cell(f"{one['bytes']:,}", one["bytes"]),
                Cell(f"{one['measured_us']:,.2f}", one["measured_us"]),
                Cell(f"{one['simulated_us']:,.2f}", one["simulated_us"]),
                Cell(f"{100 * off:+.1f} %", off, min(1.0, abs(off))),
            ]
        )
    header = ["collective", "ranks", "bytes", "measured (µs)", "simulated (µs)", "off"]
    return Table("sizes-table", header, cells, [0])


def _unknown(told: Mapping[str, Any]) -> list[Words]:
    return [Words(list(told["unknown"]))] if told["unknown"] else []
