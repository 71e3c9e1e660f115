"""How pictures look, and how a figure becomes SVG and PNG that repeat byte for byte.

Colours stand here once. The greys are unusual values on purpose: the report replaces them by its
own variables, so that an embedded picture follows light and dark mode.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.foreign import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1c2127"
MUTED = "#5d6673"
GRID = "#d8dde3"
PANEL = "#f1f3f6"
PAPER = "#fefefe"

HUES = ("#3a6fb7", "#c9782b", "#2b8c7e", "#8d56a8", "#b34a45", "#6d7a1f")
"""One per dimension or per result, told apart with colour-deficient sight too."""

WIDTH = 11.0
"""Of every picture, inches."""

MAX_VECTOR_SHAPES = 6000
"""Beyond this many bars a picture's bars are drawn as pixels, so that a browser still opens it."""

SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "path.simplify": False,
    "text.parse_math": False,
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """The settings under which a picture is drawn and saved.

    Args:
        name: Of the picture; it makes the ids inside its SVG its own.
    """
    import matplotlib as mpl

    settings: Any = {**SETTINGS, "svg.hashsalt": f"allrail {name}"}
    with mpl.rc_context(settings):
        yield


def svg(figure: Figure, *, name: str) -> str:
    """The figure as SVG; the same figure gives the same text.

    Args:
        figure: What to draw.
        name: Of the picture.
    """
    text = io.StringIO()
    _show_names(figure)
    with style(name):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    lines = text.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def png(figure: Figure, *, name: str) -> bytes:
    """The figure as PNG at 160 dots per inch.

    Args:
        figure: What to draw.
        name: Of the picture.
    """
    data = io.BytesIO()
    _show_names(figure)
    with style(name):
        figure.savefig(data, format="png", dpi=160, metadata={"Software": None})
    return data.getvalue()


def write(folder: Path, figures: Mapping[str, Figure]) -> dict[str, str]:
    """Write figures as SVG and PNG; returns the text of the SVG files.

    Args:
        folder: Where.
        figures: By the name of their files.
    """
    texts = {}
    for name, figure in figures.items():
        texts[name] = svg(figure, name=name)
        (folder / f"{name}.svg").write_text(texts[name], encoding="utf-8")
        (folder / f"{name}.png").write_bytes(png(figure, name=name))
    return texts


def _show_names(figure: Figure) -> None:
    """Show characters that act, in names that others gave, as their escapes: they are no XML."""
    from matplotlib.text import Text
    from matplotlib.ticker import FixedFormatter

    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = axis.get_major_formatter()
            if isinstance(labels, FixedFormatter):
                labels.seq = [printable(label, lines=True) for label in labels.seq]
    for text in figure.findobj(Text):
        text.set_text(printable(text.get_text(), lines=True))


def bare(axes: Axes, *, keep: tuple[str, ...] = ("bottom",)) -> None:
    """Take away the frame of `axes` and soften what stays.

    Args:
        axes: Whose.
        keep: The sides that stay.
    """
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(side in keep)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)


def lighter(colour: tuple[float, float, float], *, amount: float) -> tuple[float, float, float]:
    """`colour` mixed with white.

    Args:
        colour: Red, green, blue, 0 to 1.
        amount: 0 leaves it, 1 makes it white.
    """
    red, green, blue = (channel + (1 - channel) * amount for channel in colour)
    return red, green, blue
