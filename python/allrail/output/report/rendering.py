"""How a report becomes one HTML file that opens without a network.

`render` fills the one template, with the style (`page.css`) and the script (`script/`) inside. It
holds no measurement of the host, so the same results give the same bytes.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import html
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.foreign import printable
from allrail.output.report import style
from allrail.output.report.document import Chart, Page, Picture, distinct

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_PLAIN = 250_000
"""Charts' data of more characters is packed: a tenth of it, or less."""
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
    environment.filters |= {"words": _words, "breaking": _breaking, "embedded": _embedded}
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


def _embedded(picture: Picture) -> Markup:
    """An SVG file as an element of a page.

    Its ids become its own on the page, its greys the page's variables, and its background the
    page's.
    """
    from markupsafe import Markup

    name, svg = picture.name, picture.svg
    label = f"{picture.title}. {picture.words}".strip()
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>\s*", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{name}-", body)
    for colour, variable in VARIABLES.items():
        body = body.replace(colour, variable)
    opening = f'<svg role="img" aria-label="{html.escape(label, quote=True)}"'
    body = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body, count=1)
    return Markup(body.replace("<svg", opening, 1))  # noqa: S704


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
