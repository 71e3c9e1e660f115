"""Printing: tables that pipe cleanly, JSON, warnings; `progress.py` has the line of progress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

import click

from allrail.base import stdin
from allrail.base.foreign import in_json, printable
from allrail.base.units import show_count, show_error
from allrail.cli.columns import aligned, folded, terminal_width
from allrail.cli.progress import Progress as Progress  # noqa: PLC0414, commands find it here
from allrail.cli.progress import aside
from allrail.results.accuracy import line_of
from allrail.results.network_accuracy import network_error, network_lines
from allrail.scenario import load_scenario

if TYPE_CHECKING:
    from allrail.results.network_accuracy import NetworkError
    from allrail.scenario import ScenarioLike
    from allrail.scenario.overrides import Sets
    from allrail.simulation.many import FailedRow


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns on stdout; numbers stand to the right.

    In a pipe or a file a row is one line, never cut, and only cells of the last column have
    spaces. On a terminal cells have their spaces, and a table that is too wide is folded
    (`columns.py`). The header is bold there, unless `NO_COLOR` is set.

    Args:
        header: A name for each column.
        rows: The cells.
    """
    header = [printable(cell) for cell in header]
    rows = [[printable(cell) for cell in row] for row in rows]
    width = terminal_width(sys.stdout)
    bold = styled(sys.stdout)
    if width is None:
        _echo("\n".join(aligned(header, [joined(row) for row in rows], bold=bold)))
    else:
        _echo("\n".join(folded(header, rows, width=width, bold=bold)))


def gap() -> None:
    """Print an empty line on stdout, between two tables."""
    _echo("")


def _echo(lines: str, *, err: bool = False, end: str = "\n") -> None:
    with aside():
        click.echo(lines + end, err=err, nl=False)


class Stream:
    """A table whose rows are printed as they come: a line each, on a terminal too.

    The header comes with the first row.

    Args:
        header: A name for each column.
        widths: Least widths of the columns; those that are left out are as wide as their name.
    """

    def __init__(self, header: Sequence[str], widths: Sequence[int] = ()) -> None:
        self._widths = [len(printable(cell)) for cell in header]
        for at, width in enumerate(widths):
            self._widths[at] = max(self._widths[at], width)
        self._header = list(header)

    def row(self, cells: Sequence[str]) -> None:
        """Print a row.

        Args:
            cells: Its cells.
        """
        if self._header:
            self._print(self._header)
            self._header = []
        self._print(joined(cells))

    def _print(self, cells: Sequence[str]) -> None:
        padded = (printable(cell).ljust(w) for cell, w in zip(cells, self._widths, strict=True))
        _echo("  ".join(padded).rstrip())


def joined(row: Sequence[str]) -> list[str]:
    """Return cells of which only the last has spaces, so that columns can be told apart.

    Args:
        row: The cells.
    """
    return [*(cell.replace(" ", "_") for cell in row[:-1]), *row[-1:]]


def rows(header: Sequence[str], lines: Sequence[list[str]], failed: Sequence[FailedRow]) -> None:
    """Print the variants of a comparison; those that cannot be simulated come last.

    Args:
        header: A name for each column; the first are those of what is compared.
        lines: The cells of those that can.
        failed: The others; what is wrong with each stands below the table.
    """
    errors = []
    for number, row in enumerate(failed, start=1):
        varied = [str(value).replace(" ", "") for value in row.sets.values()]
        left = len(header) - len(varied) - 1
        errors.append([*varied, f"error_{number}", *["-"] * left])
    table(header, [*lines, *errors])
    for number, row in enumerate(failed, start=1):
        note(
            f"error_{number}: {row.error.message}"
            + (f"; {row.error.hint}" if row.error.hint else "")
        )


def pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values on stdout, one pair a line.

    Args:
        rows: The pairs.
    """
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    _echo("\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows))


def talk(messages: int, size: int | None) -> str:
    """Return what coordinators said, in words.

    Args:
        messages: How many.
        size: Of all of them together, in bytes; None if nobody counted.
    """
    told = show_count(messages, "message")
    return told if size is None else f"{told}, {size:,} B"


def note(text: str) -> None:
    """Print a remark below a table, as a line that starts with `#`.

    Args:
        text: The remark.
    """
    _echo(f"# {printable(stdin.told(text))}")


def print_json(tree: object) -> None:
    """Print one JSON object on stdout.

    Args:
        tree: What it holds.
    """
    _echo(in_json(json.dumps(tree, indent=1, ensure_ascii=False)))


def text(lines: str, *, err: bool = False, end: str = "\n") -> None:
    """Print text of several lines, whose names others may have given.

    Args:
        lines: The text.
        err: Whether it goes to stderr.
        end: What follows it.
    """
    _echo(printable(lines, lines=True) + end, err=err, end="")


def warn(text: str) -> None:
    """Print a warning on stderr.

    Args:
        text: What to be careful about.
    """
    _echo(f"warning: {printable(stdin.told(text))}", err=True)


def styled(stream: TextIO) -> bool:
    """Return whether `stream` is a terminal that may show bold and colour.

    Args:
        stream: Where the text goes.
    """
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def percent(fraction: float | None) -> str:
    """Return a fraction as a percentage without its sign, `-` for None.

    Args:
        fraction: 0 to 1.
    """
    return "-" if fraction is None else f"{100 * fraction:.2f}"


def known(scenario: ScenarioLike, *, sets: Sets = ()) -> None:
    """Say below a table what is known of the error of its times.

    Args:
        scenario: What was simulated; of several, one that computes as they do.
        sets: Overrides.
    """
    loaded = load_scenario(scenario, sets=sets)
    network = network_error(loaded)
    told = line_of(loaded) or (None if network is None else network.told)
    if told is not None:
        note(told)


def predicted(
    network_models: Sequence[str],
    *,
    calibrated: bool,
    below_bound: bool = False,
    simulated_as: Iterable[str | None] = (),
    errors: Sequence[tuple[float, float | None, float | None]] = (),
    network: Iterable[NetworkError | None] = (),
) -> None:
    """Say below a table where its numbers come from.

    Args:
        network_models: The network models that predicted them.
        calibrated: Whether the fabrics' numbers were measured.
        below_bound: Whether a time is below what the links can carry.
        simulated_as: How networks were simulated that are not wired as they are priced, and how
            plans count on those without dimensions.
        errors: Of each result its time, and the least and the most that it is with the fabric's
            `error`, µs; None where the fabric has none.
        network: Of each scenario whose fabric has none, what is known of the network's error
            (`network_accuracy.network_error`).
    """
    for wiring in dict.fromkeys(filter(None, simulated_as)):
        note(wiring)
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(network_models))
    figures = "calibrated" if calibrated else "uncalibrated: nobody measured this hardware"
    note(f"predicted in network model {names}; the fabric is {figures}")
    if below_bound:
        note("below the physical bound: messages of a step do not share links (`contention: none`)")
    told = show_error(errors)
    if told is not None:
        note(f"error: network {told}")
    for line in network_lines(network):
        note(line)
