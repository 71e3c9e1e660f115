"""A report as data, and how it becomes one HTML file that opens without a network.

A `Page` is a summary in words, numbers on cards, sections of tables, pictures and charts, and what
the words mean. Every kind of result has a file that makes one (`collectives_page`,
`training_page`, ...); `render` fills the one template, with the style (`page.css`) and the script
(`script/`) inside. It holds no measurement of the host, so the same results give the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import html
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.foreign import printable
from allrail.base.units import show_bandwidth, show_count, show_number, show_percent, time_unit
from allrail.output.report import style

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_PLAIN = 250_000
"""Charts' data of more characters is packed: a tenth of it, or less."""
MOST_BYTES = 5_000_000
"""Of a page. Timelines, tables and inputs are cut to stay below, and say so."""
MOST_STANDING = 24
"""Rows of a table that stand below each other; longer ones scroll within themselves."""
MOST_ROWS = 2_000
"""Of a table on a page; all are in the files beside it."""
MOST_INPUT = 40_000
"""Characters of a scenario on a page; all of it is in `result.json`."""
MOST_INPUTS = 800_000
"""The same of all scenarios together."""

VARIABLES = {
    style.INK: "var(--ink)",
    style.MUTED: "var(--muted)",
    style.GRID: "var(--grid)",
    style.PANEL: "var(--panel)",
    style.PAPER: "var(--paper)",
}
"""The greys of the pictures and the page's variables that replace them."""

WORLDS = {
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

    @property
    def embedded(self) -> str:
        """The file as an element of the page."""
        label = f"{self.title}. {self.words}".strip()
        return embed(self.svg, name=self.name, label=label)


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


def render(page: Page, *, version: str) -> str:
    """The page as HTML.

    Args:
        page: What it says.
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
    environment.filters |= {"words": _words, "breaking": _breaking}
    sections = [one for one in page.sections if one.blocks]
    charts = {
        block.name: {"draws": block.draws, "title": block.title, **block.data}
        for section in sections
        for block in section.blocks
        if isinstance(block, Chart)
    }
    text = environment.get_template("page.html.j2").render(
        page=page,
        sections=sections,
        inputs=_inputs(page),
        # Within a script nothing but `<` could end it.
        data=_data(charts),
        version=version,
    )
    # Names that others gave hide nothing, wherever on the page they stand.
    return printable(re.sub(r"[ \t]+\n", "\n", text), lines=True)


def _data(charts: Mapping[str, Any]) -> Markup:
    """What the charts draw, as an element of the page; packed where it is long."""
    from markupsafe import Markup

    text = json.dumps(charts, ensure_ascii=False, separators=(",", ":"))
    # What the charts show of such a character is its escape, with the backslash.
    text = printable(text, lines=True, backslash="\\\\")
    if len(text) <= MOST_PLAIN:
        # Within a script nothing but `<` could end it.
        plain = text.replace("<", "\\u003c")
        return Markup(f'<script type="application/json" id="data">{plain}</script>')  # noqa: S704
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return Markup(f'<script type="text/plain" id="data">{packed}</script>')  # noqa: S704


def _inputs(page: Page) -> dict[str, str]:
    texts: dict[str, str] = {}
    room = MOST_INPUTS
    for name, tree in distinct(page.inputs).items():
        text = as_yaml(tree)
        texts[name] = text if len(text) <= room else "# it is in result.json"
        room -= len(texts[name])
    return texts


def _words(text: str) -> Markup:
    """A sentence, with what stands between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704


def _breaking(text: str) -> Markup:
    """A name that may go on in the next line behind `_` and `.`."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_.])", r"\1<wbr>", str(escape(text))))  # noqa: S704


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


def badges(worlds: Sequence[str], *, calibrated: bool) -> list[tuple[str, str]]:
    """Where numbers come from.

    Args:
        worlds: What carried the transfers out.
        calibrated: Whether all bandwidths and latencies were measured.
    """
    word = ("good", "calibrated") if calibrated else ("care", "uncalibrated")
    return [("plain", f"world: {', '.join(sorted(set(worlds)))}"), word]


def world_words(worlds: Sequence[str]) -> str:
    """What carried the transfers out, explained.

    Args:
        worlds: Their names.
    """
    known = [f"{name}: {WORLDS[name]}. " for name in sorted(set(worlds)) if name in WORLDS]
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


def as_yaml(tree: Mapping[str, Any]) -> str:
    """A scenario as text, the start of it where it is very long.

    Args:
        tree: As plain values.
    """
    import yaml

    text = _Start()
    with contextlib.suppress(_FullError):
        yaml.safe_dump(dict(tree), text, sort_keys=False, default_flow_style=None, width=96)
        return text.getvalue()
    return f"{text.getvalue()[:MOST_INPUT]}\n# the rest is in result.json"


class _FullError(Exception):
    """Nobody reads on."""


class _Start(io.StringIO):
    """The first `MOST_INPUT` characters: writing all of a long scenario takes seconds."""

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.tell() > MOST_INPUT:
            raise _FullError
        return count
