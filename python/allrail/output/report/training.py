"""Pictures of training steps: what every actor does when, and what the step's time is spent on.

Colour is what a communication is for; compute is grey, the backward pass darker than the forward
pass. `step`: one band an actor, compute above, its dimensions below. `breakdown`: one bar a result.
`actors`: one bar an actor. `what_ifs`: one bar an assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from allrail.base.units import show_count, show_number, time_unit
from allrail.output.report.style import (
    GRID,
    HUES,
    INK,
    MAX_VECTOR_SHAPES,
    MUTED,
    PANEL,
    WIDTH,
    bare,
    style,
)
from allrail.results.compared import speedup
from allrail.results.training_parts import PURPOSES, Slice
from allrail.results.training_result import TrainingResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from allrail.simulation.assumptions import WhatIf

STEP = "step"
BREAKDOWN = "breakdown"
ACTORS = "actors"
WHAT_IFS = "what_ifs"
PICTURES = (STEP, BREAKDOWN, ACTORS, WHAT_IFS)

COMPUTE = "#8a94a0"
PASSES = {"forward": "#b3bcc6", "backward": "#7b8794", "update": "#5d5348"}
BY_PURPOSE = dict(zip(PURPOSES, HUES, strict=True))
MOST_BANDS = 8
"""Actors in one picture; the first, the last and some between are drawn."""
MOST_BARS = 40
ROW = 0.21
"""Inches of one row of a band."""


def step(name: str, result: TrainingResult) -> Figure:
    """Draw what every actor does when, in the last iteration.

    Args:
        name: Of the result.
        result: With a timeline.
    """
    from matplotlib.figure import Figure

    end = sum(result.steps_us)
    start = end - (result.steps_us[-1] if result.steps_us else 0.0)
    timeline = [piece for piece in result.timeline or () if piece.end_us > start]
    actors = _some([one.name for one in result.actors], MOST_BANDS)
    tracks = {
        actor: _tracks(result, [piece for piece in timeline if piece.actor == actor])
        for actor in actors
    }
    unit, factor = time_unit(end - start)
    rows = sum(len(mine) for mine in tracks.values())
    height = 1.35 + ROW * rows + 0.14 * len(actors)
    with style(STEP):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots()
        axes.set_xlim(0, (end - start) / factor)
        top = 0.0
        for actor in actors:
            top = _band(axes, actor, tracks[actor], top, (start, factor))
        axes.set_ylim(top - 0.4, -0.4)
        axes.set_yticks([])
        axes.grid(axis="x", color=GRID, linewidth=0.5)
        bare(axes)
        left_out = len(result.actors) - len(actors)
        more = f"; not drawn: {show_count(left_out, 'more actor')}" if left_out else ""
        head = f"{name}:  the last step, {show_number((end - start) / factor)} {unit}{more}"
        axes.set_title(head, loc="left", pad=4)
        axes.set_xlabel(f"time ({unit})")
        _legend(figure, timeline)
    return figure


def breakdown(results: Mapping[str, TrainingResult]) -> Figure:
    """Draw, for every result, what its step's time is spent on.

    Args:
        results: By name, in the order from top to bottom; the first `MOST_BARS` of them.
    """
    shown = dict(list(results.items())[:MOST_BARS])
    longest = max(result.step_time_us for result in shown.values())
    unit, factor = time_unit(longest)
    first = next(iter(shown.values()))
    bars = {}
    for i, (name, one) in enumerate(shown.items()):
        label = f"{show_number(one.step_time_us / factor)} {unit}"
        if i:
            label += f"   {speedup(one, first):.2f}×"
        bars[name] = (_parts(one), label, one.bound_step_time_us)
    title = "time of a step; the stroke is a bound that no step is below"
    return _bars(BREAKDOWN, bars, factor=factor, unit=unit, title=title)


def actors(result: TrainingResult) -> Figure:
    """Draw, for every actor, what its time is spent on.

    Args:
        result: With several actors; at most `MOST_BARS` are drawn.
    """
    chosen = set(_some([one.name for one in result.actors], MOST_BARS))
    unit, factor = time_unit(result.step_time_us)
    bars = {}
    for one in result.actors:
        if one.name in chosen:
            parts = [
                ("compute", one.compute_us),
                ("exposed communication", one.exposed_communication_us),
                ("waiting", one.waiting_us),
            ]
            bars[one.name] = (parts, f"{one.ranks:,} rank" + ("s" if one.ranks > 1 else ""), 0.0)
    return _bars(ACTORS, bars, factor=factor, unit=unit, title="what each actor does")


def what_ifs(result: TrainingResult, rows: Sequence[WhatIf]) -> Figure:
    """Draw the step as it is and under every assumption.

    Args:
        result: As it is.
        rows: The assumptions.
    """
    unit, factor = time_unit(result.step_time_us)
    bars = {
        "as it is": (_parts(result), f"{show_number(result.step_time_us / factor)} {unit}", 0.0)
    }
    for row in rows:
        step_us = row.result.step_time_us
        label = f"{show_number(step_us / factor)} {unit}   {row.speedup:.3f}×"
        bars[row.name.replace("_", " ")] = (_parts(row.result), label, 0.0)
    return _bars(WHAT_IFS, bars, factor=factor, unit=unit, title="what if: time of a step")


Bar = tuple[list[tuple[str, float]], str, float]
"""Parts with their µs, what stands beside it, and where the stroke is (0 for none)."""


def _bars(picture: str, bars: Mapping[str, Bar], *, factor: float, unit: str, title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    longest = max(sum(us for _, us in parts) for parts, _, _ in bars.values())
    seen: dict[str, None] = {}
    with style(picture):
        figure = Figure(figsize=(WIDTH, 1.5 + 0.34 * len(bars)), layout="constrained")
        axes = figure.subplots()
        for i, (parts, label, stroke) in enumerate(bars.values()):
            left = 0.0
            for name, us in parts:
                if us <= 0:
                    continue
                seen[name] = None
                axes.barh(i, us / factor, left=left, height=0.58, color=_colour(name), linewidth=0)
                left += us / factor
            if stroke > 0:
                at = stroke / factor
                axes.plot([at, at], [i - 0.37, i + 0.37], color=INK, linewidth=1.4)
            axes.annotate(
                label,
                (left, i),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=INK,
            )
        axes.set_yticks(range(len(bars)), list(bars))
        axes.set_xlim(0, 1.22 * longest / factor)
        axes.set_ylim(len(bars) - 0.5, -0.5)
        axes.set_title(title, loc="left")
        axes.set_xlabel(unit)
        axes.grid(axis="x", color=GRID, linewidth=0.5)
        axes.tick_params(colors=MUTED)
        bare(axes)
        handles = [
            Patch(facecolor=_colour(name), label=name)
            for name in ("compute", "exposed communication", *PURPOSES, "waiting")
            if name in seen
        ]
        _place(figure, handles)
    return figure


def _parts(result: TrainingResult) -> list[tuple[str, float]]:
    parts = [("compute", result.compute_us), *result.exposed_us.items()]
    return [*parts, ("waiting", result.waiting_us)]


def _colour(part: str) -> str:
    if part == "exposed communication":
        return HUES[0]
    return {"compute": COMPUTE, "waiting": GRID, **BY_PURPOSE}[part]


def _some(names: Sequence[str], most: int) -> list[str]:
    """Some names, evenly apart, the first and the last among them."""
    if len(names) <= most:
        return list(names)
    return [names[round(i * (len(names) - 1) / (most - 1))] for i in range(most)]


def _tracks(result: TrainingResult, mine: Iterable[Slice]) -> dict[str, list[Slice]]:
    """The slices of an actor by track, compute first; dimensions that it does not use are out."""
    tracks: dict[str, list[Slice]] = {"compute": []}
    tracks |= {dimension.name: [] for dimension in result.dimensions}
    for piece in mine:
        tracks.setdefault(piece.track, []).append(piece)
    return {name: pieces for name, pieces in tracks.items() if pieces or name == "compute"}


def _band(
    axes: Axes,
    actor: str,
    tracks: Mapping[str, list[Slice]],
    top: float,
    scale: tuple[float, float],
) -> float:
    """Draw one actor's rows from `top` downwards; return where the next band begins."""
    for row, (track, pieces) in enumerate(tracks.items()):
        low = top + row
        axes.axhspan(low + 0.08, low + 0.92, facecolor=PANEL, linewidth=0, zorder=0)
        _spans(axes, pieces, low, scale)
        axes.annotate(
            track,
            (0, low + 0.5),
            xycoords=("axes fraction", "data"),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=7,
            color=MUTED,
        )
    axes.annotate(
        actor,
        (0, top + len(tracks) / 2),
        xycoords=("axes fraction", "data"),
        xytext=(-52, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8,
        color=INK,
    )
    return top + len(tracks) + 0.6


def _spans(axes: Axes, pieces: Iterable[Slice], low: float, scale: tuple[float, float]) -> None:
    """Draw the slices of one row; those of one colour that touch become one."""
    from matplotlib.collections import PolyCollection

    start, factor = scale
    runs: list[tuple[float, float, str]] = []
    for piece in sorted(pieces, key=lambda piece: (piece.start_us, piece.end_us)):
        left, right = max(0.0, piece.start_us - start) / factor, (piece.end_us - start) / factor
        colour = shade(piece)
        if runs and runs[-1][2] == colour and left <= runs[-1][1] + 1e-9:
            runs[-1] = (runs[-1][0], max(right, runs[-1][1]), colour)
        else:
            runs.append((left, right, colour))
    corners = [
        [(left, low + 0.08), (right, low + 0.08), (right, low + 0.92), (left, low + 0.92)]
        for left, right, _ in runs
    ]
    axes.add_collection(
        PolyCollection(
            corners,
            facecolors=[colour for _, _, colour in runs],
            edgecolors=[colour for _, _, colour in runs],
            linewidths=0.15,
            rasterized=len(runs) > MAX_VECTOR_SHAPES // 4,
            zorder=2,
        ),
        autolim=False,
    )


def shade(piece: Slice) -> str:
    """The colour of a slice.

    Args:
        piece: Which.
    """
    if piece.track == "compute":
        return PASSES.get(piece.work_pass or "", COMPUTE)
    return BY_PURPOSE.get(piece.purpose or "other", HUES[-1])


def _legend(figure: Figure, timeline: Sequence[Slice]) -> None:
    from matplotlib.patches import Patch

    passes = {piece.work_pass for piece in timeline if piece.track == "compute"}
    purposes = {piece.purpose for piece in timeline if piece.track != "compute"}
    handles = [
        Patch(facecolor=colour, label=name) for name, colour in PASSES.items() if name in passes
    ]
    if passes - set(PASSES):
        handles.append(Patch(facecolor=COMPUTE, label="compute"))
    handles += [
        Patch(facecolor=colour, label=f"communication: {name}")
        for name, colour in BY_PURPOSE.items()
        if name in purposes
    ]
    handles.append(Patch(facecolor=PANEL, edgecolor=GRID, linewidth=0.6, label="idle"))
    _place(figure, handles)


def _place(figure: Figure, handles: Sequence[Patch]) -> None:
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, len(handles)),
        fontsize=8,
        handlelength=1.2,
        handleheight=0.9,
        columnspacing=1.6,
    )
