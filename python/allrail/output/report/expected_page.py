"""The report of `expect`: a table that a fabric should show, beside a measured one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.base.units import show_count
from allrail.measure.calibrate.shape import size_text
from allrail.output.report.bandwidth import NAME, picture
from allrail.output.report.document import Cell, Cells, Page, Picture, Section, Table, Words

_MEANINGS = {
    "expected": "What NCCL's own algorithms take on this fabric, and what the host takes.",
    "bus bandwidth": "Size over time, times what nccl-tests multiply it by for the collective.",
    "large sizes": "The last three sizes, from a quarter of the largest one on.",
}


def page(told: Mapping[str, Any]) -> Page:
    """Return the report.

    Args:
        told: What `allrail expect --json` prints, and `notes`.
    """
    rows_, large = told["rows"], told.get("large_share")
    top = rows_[-1]
    cards = [("expected", f"{top['expected_busbw']:,.4g} GB/s", f"at {size_text(top['bytes'])}")]
    headline = f"{top['expected_busbw']:,.4g} GB/s are expected at {size_text(top['bytes'])}."
    if large is not None:
        cards.append(("measured", f"{top['measured_busbw']:,.4g} GB/s", "at the same size"))
        cards.append(("large sizes", f"{100 * large:.0f} %", "of the expected bandwidth"))
        headline = f"Large sizes reach {100 * large:.0f} % of the expected bandwidth."
    return Page(
        title=f"Expected: {told['collective']} over {show_count(told['ranks'], 'rank')}"
        f" of {told['fabric']}",
        subtitle=show_count(told["machines"], "machine"),
        badges=[("good", "measured")] if large is not None else [("plain", "expected")],
        headline=headline,
        summary=[one["told"] for one in told["falls"]],
        cards=cards,
        sections=[
            Section("picture", "Bandwidth by size", [_picture(told)]),
            Section("ranges", "Verdict by size", _ranges(told)),
            Section("causes", "Possible causes, the best explanation first", _causes(told)),
            Section("sizes", "Sizes", [_sizes(told)]),
        ],
        meanings=_MEANINGS,
        notes=told["notes"],
        beside="sizes.parquet and sizes.csv beside it have every size.",
    )


def _picture(told: Mapping[str, Any]) -> Picture:
    lines = {"expected": [(one["bytes"], one["expected_busbw"]) for one in told["rows"]]}
    if told.get("large_share") is not None:
        lines["measured"] = [
            (one["bytes"], one["measured_busbw"])
            for one in told["rows"]
            if one["measured_busbw"] is not None
        ]
    return picture(NAME, "Bandwidth by size", lines)


def _ranges(told: Mapping[str, Any]) -> list[Table]:
    cells: list[Cells] = [
        [
            Cell(size_text(one["first"]), one["first"]),
            Cell(size_text(one["last"]), one["last"]),
            Cell(f"{100 * one['least']:.0f}", one["least"]),
            Cell(f"{100 * one['most']:.0f}", one["most"]),
            one["verdict"],
        ]
        for one in told["ranges"]
    ]
    header = ["from", "to", "least (% of expected)", "most (% of expected)", "verdict"]
    return [Table("by-size", header, cells, [0, 1, 4])] if cells else []


def _causes(told: Mapping[str, Any]) -> list[Words]:
    texts = [
        f"{one['what']}. Why: {one['why']}. To tell it from the others: {one['test']}."
        for one in told["causes"]
    ]
    return [Words(texts)] if texts else []


def _sizes(told: Mapping[str, Any]) -> Table:
    measured = told.get("large_share") is not None
    header = ["bytes", "algorithm", "expected (µs)", "expected (GB/s)"]
    header += ["measured (µs)", "measured (GB/s)", "% of expected"] if measured else []
    cells: list[Cells] = []
    for one in told["rows"]:
        line: list[str | Cell] = [
            Cell(f"{one['bytes']:,}", one["bytes"]),
            one["algorithm"],
            Cell(f"{one['expected_us']:,.2f}", one["expected_us"]),
            Cell(f"{one['expected_busbw']:,.2f}", one["expected_busbw"]),
        ]
        if measured and one["measured_us"] is not None:
            share = one["expected_us"] / one["measured_us"]
            line += [
                Cell(f"{one['measured_us']:,.2f}", one["measured_us"]),
                Cell(f"{one['measured_busbw']:,.2f}", one["measured_busbw"]),
                Cell(f"{100 * share:.0f}", share, min(1.0, share)),
            ]
        elif measured:
            line += ["–", "–", "–"]
        cells.append(line)
    return Table("sizes-table", header, cells, [1])
