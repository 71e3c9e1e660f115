"""What `script/timeline.js` draws: rows of spans on one axis of time, in few bytes.

Times become whole ticks (a power of ten of picoseconds, fine enough for a hundred millionth of the
whole), each from the end of the span before; names and details stand once. Beyond `MOST_SPANS` the
shortest neighbours of a row are drawn as one span that says how many they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from allrail.base.units import show_count, show_percent, show_time
from allrail.output.lanes import assign_lanes
from allrail.output.report.document import Chart, Words

MOST_SPANS = 300_000
"""Of a timeline: packed, about 2 MB of a page; a browser draws them in a fraction of a second."""
MOST_ROWS = 1_000
TICKS = 10**8
"""A timeline has at most so many."""
FINEST = 32
"""Spans shorter than the 2¹⁶th part of a timeline may become one before longer ones."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A span.

    Attributes:
        start_us: From when, µs.
        end_us: Until when, µs.
        name: What it is.
        colour: As `#rrggbb`.
        detail: What else is to be said.
    """

    start_us: float
    end_us: float
    name: str
    colour: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of spans.

    Attributes:
        group: Whose row it is; rows of one group stand together under its name.
        name: Of the row.
        aside: Beside the name.
        bars: Its spans, in any order; those that overlap are drawn below each other.
    """

    group: str
    name: str
    aside: str
    bars: Sequence[Bar]


def timeline(
    name: str,
    rows: Sequence[Row],
    *,
    title: str,
    caption: str,
    legend: Sequence[tuple[str, str]],
    end_us: float,
    example: str = "such as dim1, or chunk 3",
    most: int = MOST_SPANS,
) -> Chart:
    """A chart of rows.

    Args:
        name: Its id on the page.
        rows: From top to bottom.
        title: Above it.
        caption: What it shows.
        legend: Colour and word.
        end_us: Where the axis ends, µs.
        example: What may be typed into its filter.
        most: How many spans are drawn.
    """
    shown = rows[:MOST_ROWS]
    lanes = [_lanes(row.bars) for row in shown]
    count = _count(lanes)
    lanes, width = thinned(lanes, end_us=end_us, most=most)
    drawn = _count(lanes)
    notes = []
    if drawn < count:
        notes.append(
            f"Drawn: {drawn:,} of {show_count(count, 'span')}; neighbours shorter than"
            f" {show_time(width)} became one, whose words say how many they are; trace and"
            " table beside this page have all."
        )
    if len(rows) > len(shown):
        notes.append(
            f"In the table beside this page: {show_count(len(rows) - len(shown), 'more row')}."
        )
    groups = len({row.group for row in shown})
    return Chart(
        name=name,
        title=title,
        caption=caption,
        draws="timeline",
        data={
            "filter": example,
            "legend": [list(pair) for pair in legend],
            **_encoded(shown, lanes, end_us=end_us),
        },
        words=f"{show_count(drawn, 'span')} in {show_count(len(shown), 'row')} of {groups:,}, over"
        f" {show_time(end_us)}.",
        note=" ".join(notes),
    )


class Recorded(Protocol):
    """A result that may have been too long to record."""

    @property
    def timeline_left_out(self) -> int | None:
        """How many slices it has, if they were asked for and are too many."""


def left_out(results: Sequence[Recorded]) -> list[Words]:
    """What stands in place of a timeline that was too long to be recorded.

    Args:
        results: Without timelines.
    """
    slices = sum(one.timeline_left_out or 0 for one in results)
    if not slices:
        return []
    return [
        Words([f"Left out: {show_count(slices, 'slice')}; `--timeline` beside `--out` shows them."])
    ]


def thinned(
    rows: Sequence[Sequence[Sequence[Bar]]], *, end_us: float, most: int
) -> tuple[list[list[list[Bar]]], float]:
    """Lanes with at most `most` spans, unless there are more lanes than that.

    Args:
        rows: Of lanes of spans in the order of time, which do not overlap within a lane.
        end_us: Where the axis ends, µs.
        most: How many spans may be left.

    Returns:
        The lanes, and below which length neighbours became one, µs; 0 if none did.
    """
    lanes = [[list(lane) for lane in row] for row in rows]
    if _count(lanes) <= most:
        return lanes, 0.0
    # The narrowest windows that leave few enough: the axis in `2 ** (power / 2)` parts.
    few, many = 0, FINEST
    while many - few > 1:
        middle = (few + many) // 2
        if _count(_windowed(rows, end_us / 2 ** (middle / 2))) <= most:
            few = middle
        else:
            many = middle
    width = end_us / 2 ** (few / 2)
    return _windowed(rows, width), width


def _count(rows: Sequence[Sequence[Sequence[Bar]]]) -> int:
    return sum(len(lane) for row in rows for lane in row)


def _windowed(rows: Sequence[Sequence[Sequence[Bar]]], width: float) -> list[list[list[Bar]]]:
    return [[_merged(lane, width) for lane in row] for row in rows]


def _merged(lane: Sequence[Bar], width: float) -> list[Bar]:
    """Neighbours shorter than `width` that begin in the same window of that width, as one."""
    found: list[Bar] = []
    some: list[Bar] = []

    def close() -> None:
        if len(some) > 1:
            busy: dict[str, float] = {}
            for one in some:
                busy[one.colour] = busy.get(one.colour, 0.0) + one.end_us - one.start_us
            whole = some[-1].end_us - some[0].start_us
            part = show_percent(sum(busy.values()) / whole) if whole > 0 else "all"
            found.append(
                Bar(
                    some[0].start_us,
                    some[-1].end_us,
                    show_count(len(some), "span"),
                    max(busy, key=lambda colour: busy[colour]),
                    f"from {some[0].name} to {some[-1].name}, busy {part} of it",
                )
            )
        else:
            found.extend(some)
        some.clear()

    for bar in lane:
        short = bar.end_us - bar.start_us < width
        if some and not (short and int(bar.start_us / width) == int(some[0].start_us / width)):
            close()
        if short:
            some.append(bar)
        else:
            found.append(bar)
    close()
    return found


def _lanes(bars: Sequence[Bar]) -> list[list[Bar]]:
    places, count = assign_lanes(bars)
    lanes: list[list[Bar]] = [[] for _ in range(max(1, count))]
    for bar, place in zip(bars, places, strict=True):
        lanes[place].append(bar)
    for lane in lanes:
        lane.sort(key=lambda bar: (bar.start_us, bar.end_us))
    return lanes


def _encoded(
    rows: Sequence[Row], lanes: Sequence[Sequence[Sequence[Bar]]], *, end_us: float
) -> Mapping[str, Any]:
    tick = 1e-6  # µs: a picosecond
    while end_us / tick > TICKS:
        tick *= 10
    names: dict[str, int] = {}
    details: dict[str, int] = {}
    colours: dict[str, int] = {}
    coded = []
    for row, mine in zip(rows, lanes, strict=True):
        flat = []
        for lane in mine:
            numbers: list[int] = []
            over = 0
            for bar in lane:
                start = max(over, round(bar.start_us / tick))
                end = max(start, round(bar.end_us / tick))
                numbers += (
                    start - over,
                    end - start,
                    names.setdefault(bar.name, len(names)),
                    colours.setdefault(bar.colour, len(colours)),
                    details.setdefault(bar.detail, len(details)),
                )
                over = end
            flat.append(numbers)
        coded.append({"group": row.group, "name": row.name, "aside": row.aside, "lanes": flat})
    return {
        "end": max(1, round(end_us / tick)),
        "tick": tick,
        "names": list(names),
        "details": list(details),
        "colours": list(colours),
        "rows": coded,
    }
