"""A report as data: summary in words, cards with numbers, sections of tables, pictures and charts.

Every kind of result has a file that makes a `Page` (`collectives_page`, `training_page`, ...);
`rendering` makes the HTML file of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from allrail.base.units import show_bandwidth, show_count, show_number, show_percent, time_unit

MOST_BYTES = 5_000_000
"""Of a page. Timelines, tables and inputs are cut to stay below, and say so."""
MOST_STANDING = 24
"""Rows of a table that stand below each other; longer ones scroll within themselves."""
MOST_ROWS = 2_000
"""Of a table on a page; all are in the files beside it."""
NETWORK_MODELS = {
    "dims": "every dimension of the network serves one stage at a time, for as long as its bytes "
    "take; a stage ends a fixed latency after its last byte, and the next one’s bytes start at "
    "once",
    "links": "every link serves whole messages, first come, first served, and passes a message on "
    "when all of it has arrived",
    "flows": "messages share the cables of the network max-min fairly, as fluids; there are no "
    "packets and no buffers",
    "packets": "packets pass through switches with queues, virtual channels and credits, and "
    "choose the least loaded port",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table that is more than its text.

    Attributes:
        text: What is read.
        value: By what it is sorted; its text if None.
        part: 0 to 1: how much of the cell a bar fills; no bar if None.
    """

    text: str
    value: float | None = None
    part: float | None = None


Cells = Sequence["str | Cell"]
MICROSECONDS = "(µs)"
"""Ends the names of columns of `microseconds`: a page shows them in a unit that suits."""


def _in(cell: Cell, factor: float) -> Cell:
    """A time in another unit; it is sorted by the same value."""
    if cell.value is None:
        return cell
    return Cell(show_number(cell.value / factor, 5), cell.value, cell.part)


@dataclass(frozen=True, slots=True)
class Table:
    """A table that sorts and filters.

    Attributes:
        id: On the page.
        header: Names of the columns.
        rows: Their cells; the first names the row.
        texts: Which columns are no numbers.
        title: Above it; the section's title serves if it is empty.
        note: Below it.
    """

    id: str
    header: Sequence[str]
    rows: Sequence[Cells]
    texts: Sequence[int]
    title: str = ""
    note: str = ""
    kind: str = field(default="table", init=False)

    @property
    def shown(self) -> Sequence[Sequence[Cell]]:
        """The rows on the page, times in one unit."""
        _, factor = self._unit
        times = {i for i, title in enumerate(self.header) if MICROSECONDS in title}
        rows = []
        for row in self.rows[:MOST_ROWS]:
            cells = [one if isinstance(one, Cell) else Cell(one) for one in row]
            rows.append([_in(one, factor) if i in times else one for i, one in enumerate(cells)])
        return rows

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns, with the unit that suits their times."""
        return [title.replace(MICROSECONDS, f"({self._unit[0]})") for title in self.header]

    @property
    def _unit(self) -> tuple[str, float]:
        times = [i for i, title in enumerate(self.header) if MICROSECONDS in title]
        cells = [row[i] for row in self.rows[:MOST_ROWS] for i in times]
        known = [abs(one.value) for one in cells if isinstance(one, Cell) and one.value]
        return time_unit(max(known)) if known else ("µs", 1.0)

    @property
    def tall(self) -> bool:
        """Whether it has more rows than stand below each other without a scroll bar."""
        return len(self.rows) > MOST_STANDING

    @property
    def notes(self) -> str:
        """What stands below, with how many rows are left out."""
        left = len(self.rows) - MOST_ROWS
        more = f"In the files beside this page: {show_count(left, 'more row')}." if left > 0 else ""
        return " ".join(text for text in (self.note, more) if text)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that stands still.

    Attributes:
        name: Its ids on the page start with it.
        title: Above it.
        caption: What it shows, in words.
        svg: The file.
        words: Its numbers in words, for who does not see it.
    """

    name: str
    title: str
    caption: str
    svg: str
    words: str = ""
    kind: str = field(default="picture", init=False)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that the script draws: it zooms, filters and says what is under the pointer.

    Attributes:
        name: Its id on the page.
        title: Above it.
        caption: What it shows, in words.
        draws: Which class of `script/` draws it: `timeline` or `points`.
        data: What that class reads.
        words: Its numbers in words.
        note: Below it, such as what was left out.
    """

    name: str
    title: str
    caption: str
    draws: str
    data: Mapping[str, Any]
    words: str
    note: str = ""
    kind: str = field(default="chart", init=False)


@dataclass(frozen=True, slots=True)
class Words:
    """Paragraphs, or a list.

    Attributes:
        texts: One each.
    """

    texts: Sequence[str]
    kind: str = field(default="words", init=False)


Block = Table | Picture | Chart | Words


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under one heading.

    Attributes:
        id: On the page.
        title: The heading.
        blocks: In their order.
    """

    id: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Page:
    """A report.

    Attributes:
        title: The heading.
        subtitle: Below it.
        badges: Kind (`plain`, `good`, `care`) and text: where the numbers come from.
        headline: The first sentence, in large letters.
        summary: The other sentences.
        cards: Name, value and an aside.
        sections: In their order; those without blocks are left out.
        meanings: What words mean.
        notes: What was left out, assumed or scaled.
        inputs: Scenarios as plain values, by the name of their results.
        beside: Sentence about the files beside the page.
    """

    title: str
    subtitle: str
    badges: Sequence[tuple[str, str]]
    headline: str
    summary: Sequence[str]
    sections: Sequence[Section]
    cards: Sequence[tuple[str, str, str]] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    inputs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    beside: str = ""


def badges(network_models: Sequence[str], *, calibrated: bool) -> list[tuple[str, str]]:
    """Where numbers come from.

    Args:
        network_models: What carried the transfers out.
        calibrated: Whether all bandwidths and latencies were measured.
    """
    word = ("good", "calibrated") if calibrated else ("care", "uncalibrated")
    return [("plain", f"network model: {', '.join(sorted(set(network_models)))}"), word]


def network_model_words(network_models: Sequence[str]) -> str:
    """What carried the transfers out, explained.

    Args:
        network_models: Their names.
    """
    known = [
        f"{name}: {NETWORK_MODELS[name]}. "
        for name in sorted(set(network_models))
        if name in NETWORK_MODELS
    ]
    return f"What carried the transfers out. {''.join(known)}".strip()


def trust_words(*, calibrated: bool) -> tuple[str, str]:
    """The word for whether numbers were measured, and what it means.

    Args:
        calibrated: Whether they were.
    """
    if calibrated:
        return "calibrated", (
            "The fabric’s bandwidths and latencies were measured on the hardware that it names."
        )
    return "uncalibrated", (
        "The fabric’s bandwidths and latencies are nominal: nobody measured them on this "
        "hardware. Trust comparisons more than absolute times."
    )


def sentence(line: str) -> str:
    """Return a line of the terminal as a sentence of a page.

    Args:
        line: Without a full stop.
    """
    return f"{line[0].upper()}{line[1:]}."


def microseconds(us: float) -> Cell:
    """A time in µs.

    Args:
        us: µs.
    """
    return Cell(f"{us:,.3f}", us)


def share(fraction: float | None) -> Cell:
    """A part of a whole, with a bar behind it.

    Args:
        fraction: 0 to 1.
    """
    if fraction is None:
        return Cell(show_percent(None))
    return Cell(show_percent(fraction), fraction, min(max(fraction, 0.0), 1.0))


def bandwidth(gbps: float, line_rate: float | None) -> Cell:
    """What a dimension's links carry, and their line rate where packets have headers.

    Args:
        gbps: Without headers, Gb/s.
        line_rate: With them, Gb/s; None where there are none.
    """
    of = "" if line_rate is None else f" of {show_bandwidth(line_rate)}"
    return Cell(show_bandwidth(gbps) + of, gbps)


def distinct(inputs: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
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
