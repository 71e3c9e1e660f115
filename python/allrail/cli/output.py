"""Printing: tables that pipe cleanly, JSON, warnings, progress."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

import click

from allrail import stdin
from allrail.foreign import in_json, printable

if TYPE_CHECKING:
    from allrail.many import FailedRow
    from allrail.scenario import ScenarioLike
    from allrail.scenario.overrides import Sets

MOST_SEEN = 1024
"""Points of progress that an estimate remembers; beyond that every other one is forgotten."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns on stdout; numbers stand to the right.

    In a pipe or a file a row is one line, never cut, and only cells of the last column have
    spaces. On a terminal cells have their spaces, and a table that is too wide is folded
    (`columns.py`). The header is bold there, unless `NO_COLOR` is set.

    Args:
        header: A name for each column.
        rows: The cells.
    """
    from allrail.cli.columns import aligned, folded, terminal_width

    header = [printable(cell) for cell in header]
    rows = [[printable(cell) for cell in row] for row in rows]
    width = terminal_width(sys.stdout)
    bold = styled(sys.stdout)
    if width is None:
        click.echo("\n".join(aligned(header, [joined(row) for row in rows], bold=bold)))
    else:
        click.echo("\n".join(folded(header, rows, width=width, bold=bold)))


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
        if sys.stderr.isatty() and sys.stdout.isatty():
            sys.stderr.write("\r\x1b[K")  # the line of progress, if there is one
            sys.stderr.flush()
        padded = (printable(cell).ljust(w) for cell, w in zip(cells, self._widths, strict=True))
        click.echo("  ".join(padded).rstrip())
        sys.stdout.flush()


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


def failed_tree(row: FailedRow) -> dict[str, object]:
    """Return a variant that cannot be simulated as a row of `--json`.

    Args:
        row: The variant.
    """
    error = {"message": row.error.message, "hint": row.error.hint}
    return {"label": row.label, "sets": row.sets, "error": error}


def none_worked(rows: Sequence[object], failed: Sequence[FailedRow]) -> None:
    """Refuse a comparison of which no variant can be simulated.

    Args:
        rows: Those that can.
        failed: Those that cannot.

    Raises:
        InputError: The first of them.
    """
    if failed and not rows:
        raise failed[0].error


def end_with(failed: Sequence[FailedRow]) -> None:
    """End with status 1 where a variant could not be simulated.

    Args:
        failed: Those.
    """
    if failed:
        sys.stdout.flush()
        raise SystemExit(1)


def pairs(rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values on stdout, one pair a line.

    Args:
        rows: The pairs.
    """
    rows = [(printable(name), printable(value)) for name, value in rows]
    width = max(len(name) for name, _ in rows)
    click.echo("\n".join(f"{name:<{width}}  {value}".rstrip() for name, value in rows))


def talk(messages: int, size: int | None) -> str:
    """Return what coordinators said, in words.

    Args:
        messages: How many.
        size: Of all of them together, in bytes; None if nobody counted.
    """
    from allrail.results.units import show_count

    told = show_count(messages, "message")
    return told if size is None else f"{told}, {size:,} B"


def note(text: str) -> None:
    """Print a remark below a table, as a line that starts with `#`.

    Args:
        text: The remark.
    """
    click.echo(f"# {printable(stdin.told(text))}")


def print_json(tree: object) -> None:
    """Print one JSON object on stdout.

    Args:
        tree: What it holds.
    """
    click.echo(in_json(json.dumps(tree, indent=1, ensure_ascii=False)))


def text(lines: str, *, err: bool = False, end: str = "\n") -> None:
    """Print text of several lines, whose names others may have given.

    Args:
        lines: The text.
        err: Whether it goes to stderr.
        end: What follows it.
    """
    click.echo(printable(lines, lines=True) + end, err=err, nl=False)


def warn(text: str) -> None:
    """Print a warning on stderr.

    Args:
        text: What to be careful about.
    """
    click.echo(f"warning: {printable(stdin.told(text))}", err=True)


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


class Progress:
    """One line on stderr with how much is done and how long the rest takes; on a terminal only.

    Use it as a context manager and as the `progress` argument of the verbs. It appears after half
    a second, so that short work leaves no trace. Without `counts` it shows no numbers of pieces.
    """

    def __init__(
        self, what: str, *, counts: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._counts = counts
        self._clock = clock
        self._started = clock()
        self._drawn = 0.0
        self._shown = False
        self._on = sys.stderr.isatty()
        self._rate = Rate()

    def __call__(self, done: int, total: int) -> None:
        """Draw the line again, ten times a second at most."""
        now = self._clock()
        elapsed = now - self._started
        self._rate.add(now, done, total)
        if not self._on or elapsed < 0.5 or now - self._drawn < 0.1:
            return
        self._drawn = now
        self._shown = True
        rest = self._rate.left(now)
        left = "" if rest is None else f", {_duration(rest)} left"
        share = f"{100 * done // max(total, 1)} %"
        counts = f" ({done:,} of {total:,})" if self._counts else ""
        sys.stderr.write(f"\r\x1b[K{self._what}: {share}{counts}{left}")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Rate:
    """How long the rest takes, by how fast the work went lately.

    Pieces differ: the first ones of a search are bounds, the last ones long simulations. So the
    rate is that of the later half of what is done; it starts anew where another phase begins,
    which is told by fewer pieces that are done. Time in which nothing was
    finished counts.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=MOST_SEEN)
        self._total = 0

    def add(self, now: float, done: int, total: int) -> None:
        """Note how far the work is.

        Args:
            now: The time, s.
            done: How many pieces are done.
            total: How many there are.
        """
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()
        self._total = total
        if self._seen and done == self._seen[-1][1]:
            return
        if len(self._seen) == MOST_SEEN:
            thinned = list(self._seen)[::2]
            self._seen.clear()
            self._seen.extend(thinned)
        self._seen.append((now, done))

    def left(self, now: float) -> float | None:
        """Return how long the rest takes, s; None as long as nothing says so.

        Args:
            now: The time, s.
        """
        if len(self._seen) < 2:
            return None
        last = self._seen[-1][1]
        half = (self._seen[0][1] + last) / 2
        since, done = next(one for one in reversed(self._seen) if one[1] <= half)
        return (now - since) / (last - done) * (self._total - last)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def known(scenario: ScenarioLike, *, sets: Sets = ()) -> None:
    """Say below a table what is known of the error of its times.

    Args:
        scenario: What was simulated; of several, one that computes as they do.
        sets: Overrides.
    """
    from allrail.accuracy import line_of
    from allrail.network_accuracy import network_line
    from allrail.scenario import load_scenario

    loaded = load_scenario(scenario, sets=sets)
    told = line_of(loaded) or network_line(loaded)
    if told is not None:
        note(told)


def predicted(
    worlds: Sequence[str],
    *,
    calibrated: bool,
    below_bound: bool = False,
    simulated_as: Iterable[str | None] = (),
    errors: Sequence[tuple[float, float | None, float | None]] = (),
    network: Iterable[str | None] = (),
) -> None:
    """Say below a table where its numbers come from.

    Args:
        worlds: The worlds that predicted them.
        calibrated: Whether the fabrics' numbers were measured.
        below_bound: Whether a time is below what the links can carry.
        simulated_as: How networks were simulated that are not wired as they are priced, and how
            plans count on those without dimensions.
        errors: Of each result its time, and the least and the most that it is with the fabric's
            `error`, µs; None where the fabric has none.
        network: Else what is known of the network's error (`network_accuracy.network_line`), of
            each scenario.
    """
    from allrail.results.units import show_error

    for wiring in dict.fromkeys(filter(None, simulated_as)):
        note(wiring)
    names = " and ".join(f"`{name}`" for name in dict.fromkeys(worlds))
    figures = "calibrated" if calibrated else "uncalibrated: nobody measured this hardware"
    note(f"predicted in world {names}; the fabric is {figures}")
    if below_bound:
        note("below the physical bound: messages of a step do not share links (`contention: none`)")
    told = show_error(errors)
    if told is not None:
        note(f"error: network {told}")
        return
    for line in dict.fromkeys(filter(None, network)):
        note(line)
