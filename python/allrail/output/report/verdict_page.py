"""The report of `verify`: predicted beside measured, and which assumption was off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allrail.base.units import show_count, show_number, show_percent
from allrail.output.report.document import Block, Cell, Cells, Page, Section, Table, Words

_NEAR = 0.02
"""Of a step: what is nearer is called right."""
_MEANINGS = {
    "as planned": "Predicted with the fabric that was given before the run.",
    "as measured": "Predicted with every number as this run has measured it.",
    "error bar": "How far such a prediction may be off: what of this run it left unexplained, what "
    "the rates' errors make of the step, how far its halves were apart, and 2 %.",
    "exchange": "A tensor's, or a kind of collective's, from its first byte to its last.",
}


def page(told: Mapping[str, Any]) -> Page:
    """Return the report.

    Args:
        told: A verdict as plain values, and `run`, what was verified.
    """
    measured, planned, refitted = (
        told[key] for key in ("measured_ms", "planned_ms", "refitted_ms")
    )
    off = told["difference"]
    how = f"{show_percent(abs(off))} too {'long' if off > 0 else 'short'}"
    headline = "The prediction was right" if abs(off) < _NEAR else "The prediction was off"
    return Page(
        title=f"Predicted against measured: {told['run']}",
        subtitle=f"{show_count(told['ranks'], 'rank')}, {show_count(told['steps'], 'step')}",
        badges=[("good", "measured")],
        headline=f"{headline}: {how}.",
        summary=_summary(told),
        cards=[
            (
                "measured",
                f"{show_number(measured)} ms",
                f"{show_percent(told['exposed_ms'] / measured)} exposed",
            ),
            ("predicted, as planned", f"{show_number(planned)} ms", _against(planned, measured)),
            ("predicted, as measured", f"{show_number(refitted)} ms", _against(refitted, measured)),
            ("error bar", f"± {show_percent(told['bar'])}", "of such a prediction"),
        ],
        sections=[
            Section("assumptions", "Which assumption was off", _assumptions(told)),
            Section("steps", "Step by step", _steps(told)),
            Section("exchanges", "Exchanges", _exchanges(told)),
            Section("dimensions", "Dimensions, as they were measured", _dimensions(told)),
        ],
        meanings=_MEANINGS,
        notes=told["notes"],
        inputs={"the fabric as measured": told["fabric"]},
        beside="exchanges.parquet and exchanges.csv beside it have every exchange.",
    )


def rows(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every exchange.

    Args:
        told: As for `page`.
    """
    blank = {"name": None, "bytes": None, "measured_ms": None, "predicted_ms": None}
    return [blank | one for one in told["exchanges"]]


def _against(predicted: float, measured: float) -> str:
    return f"{100 * (predicted / measured - 1):+.1f} %"


def _off(predicted: float, measured: float) -> Cell:
    """How far off, with a bar as long as that."""
    off = predicted / measured - 1
    return Cell(f"{100 * off:+.1f} %", off, min(abs(off), 1.0))


def _milliseconds(ms: float) -> Cell:
    return Cell(f"{ms:,.3f}", ms)


def _summary(told: Mapping[str, Any]) -> list[str]:
    said = []
    if told["worst"] is not None:
        said.append(f"What dominates: {told['worst']} was off the most.")
    left = told["refitted_ms"] / told["measured_ms"] - 1
    said.append(
        f"With every number as it was measured the prediction is {show_percent(abs(left))} too"
        f" {'long' if left > 0 else 'short'}; no number of the fabric explains that."
    )
    if abs(left) > told["bar"]:
        said.append("That is more than the error bar: something that is not modelled takes time.")
    return said


def _assumptions(told: Mapping[str, Any]) -> list[Table]:
    measured = told["measured_ms"]

    def line(what: str, planned: str, seen: str, step: float) -> Cells:
        return [what, planned, seen, _milliseconds(step), _off(step, measured)]

    cells = [
        line("all as planned", "", "", told["planned_ms"]),
        *(
            line(one["what"], one["planned"], one["measured"], one["step_ms"])
            for one in told["assumptions"]
        ),
        line("all as measured", "", "", told["refitted_ms"]),
    ]
    header = ["with one number as measured", "planned", "measured", "step (ms)", "off"]
    return [Table("numbers", header, cells, [0, 1, 2])]


def _steps(told: Mapping[str, Any]) -> list[Table]:
    cells: list[Cells] = [
        [
            Cell("–" if one["number"] is None else str(one["number"]), one["number"] or 0),
            _milliseconds(one["measured_ms"]),
            _milliseconds(one["planned_ms"]),
            _off(one["planned_ms"], one["measured_ms"]),
            _milliseconds(one["refitted_ms"]),
            _off(one["refitted_ms"], one["measured_ms"]),
        ]
        for one in told["each"]
    ]
    header = ["step", "measured (ms)", "as planned (ms)", "off", "as measured (ms)", "off, too"]
    return [Table("each", header, cells, [0])] if len(cells) > 1 else []


def _exchanges(told: Mapping[str, Any]) -> list[Table]:
    cells: list[Cells] = []
    for one in told["exchanges"]:
        said = one["predicted_ms"]
        cells.append(
            [
                one["name"],
                Cell(f"{one['bytes']:,}", one["bytes"]),
                _milliseconds(one["measured_ms"]),
                "–" if said is None else _milliseconds(said),
                "–" if said is None else _off(said, one["measured_ms"]),
            ]
        )
    what = "collective" if told["rank"] is None else "tensor"
    header = [what, "bytes", "measured (ms)", "predicted, as measured (ms)", "off"]
    return [Table("exchanged", header, cells, [0])] if cells else []


def _dimensions(told: Mapping[str, Any]) -> list[Block]:
    cells: list[Cells] = [
        [
            Cell(f"dimension {one['dimension']}", one["dimension"]),
            Cell(show_number(one["gbps"]), one["gbps"]),
            Cell(f"± {show_percent(one['error'])}", one["error"], min(one["error"], 1.0)),
            Cell(f"{one['bytes'] / 1e6:,.1f}", one["bytes"]),
        ]
        for one in told["dimensions"]
    ]
    if not cells:
        return [Words(["No dimension carried enough to be measured."])]
    header = ["dimension", "Gb/s in one direction", "half of its bytes within", "MB sent"]
    return [Table("carried", header, cells, [0])]
