"""One line of the terminal: what a command is doing, how much is done, how long the rest takes.

The line is on stderr, and only where that is a terminal. `main` begins one for every command
(`working`), so that no work is without: it says how long the command has been at it. Work that can
be counted begins its own (`Progress`), which is shown in its place. A thread draws the one that was
begun last, so that a line is there within a second also while nothing new is told. Whoever prints
does so within `aside`, which takes the line away first.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

MOST_SEEN = 1024
"""Points of progress that an estimate remembers; beyond that every other one is forgotten."""
APPEARS_S = 0.5
"""Work that is over by then leaves no trace."""
WORKING_S = 1.0
"""The same of a command that counts nothing."""
REDRAWN_S = 0.1
_ERASE = "\r\x1b[K"


class Progress:
    """One line with how much is done and how long the rest takes.

    Use it as a context manager and as the `progress` argument of the API's functions.

    Args:
        what: What is done, such as `simulating`.
        counts: Whether the numbers of pieces are shown.
        after: When it appears, in seconds.
        clock: Tells the time, in seconds.
    """

    def __init__(
        self,
        what: str,
        *,
        counts: bool = True,
        after: float = APPEARS_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._counts = counts
        self._after = after
        self._clock = clock
        self._began = clock()
        self._appears = self._began + after
        self._told: tuple[float, int] | None = None
        self._rate = Rate()

    def __call__(self, done: float, total: int) -> None:
        """Note how far the work is; the line follows."""
        self._told = done, total
        self._rate.add(self._clock(), done, total)

    def line(self) -> str | None:
        """Return what the line says now; None before it appears."""
        now = self._clock()
        if now < self._appears:
            return None
        if self._told is None:
            return f"{self._what}: {_duration(now - self._began)} so far"
        done, total = self._told
        share = 100 * done / max(total, 1)
        digits = 0 if share >= 10 or not share else 1 if share >= 0.1 else 2
        scale = 10**digits
        shown = f"{int(share * scale) / scale:.{digits}f}"
        counts = f" ({int(done):,} of {total:,})" if self._counts else ""
        rest = self._rate.left(now)
        left = f"{_duration(now - self._began)} so far"
        if rest is not None:
            left = f"{_duration(rest)} left"
        return f"{self._what}: {shown} %{counts}, {left}"

    def later(self) -> None:
        """Let it appear as late from now on as after its beginning."""
        self._appears = self._clock() + self._after

    def __enter__(self) -> Self:
        _TERMINAL.begin(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _TERMINAL.end(self)


def working(verb: str) -> Progress:
    """Return the line of a command, which is shown while nothing that it does has its own.

    Args:
        verb: As it is typed.
    """
    return Progress(f"allrail {verb}", after=WORKING_S)


@contextmanager
def aside() -> Iterator[None]:
    """Within it there is no line, so that something else can be printed."""
    with _TERMINAL.lock:
        _TERMINAL.erase()
        yield
        _TERMINAL.later()


class _Terminal:
    """The one line, the lines that are begun, and the thread that draws the last of them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._begun: list[Progress] = []
        self._shown = False
        self._over: threading.Event | None = None

    def begin(self, progress: Progress) -> None:
        with self.lock:
            self._begun.append(progress)
            if self._over is None and sys.stderr.isatty():
                self._over = threading.Event()
                thread = threading.Thread(
                    target=self._draw_until, args=(self._over,), name="progress", daemon=True
                )
                thread.start()

    def end(self, progress: Progress) -> None:
        with self.lock:
            self._begun.remove(progress)
            self.erase()
            self.later()
            if not self._begun and self._over is not None:
                self._over.set()
                self._over = None

    def later(self) -> None:
        if self._begun:
            self._begun[-1].later()

    def erase(self) -> None:
        if self._shown:
            self._shown = False
            self._write(_ERASE)

    def _draw_until(self, over: threading.Event) -> None:
        # Signals are the main thread's to take.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not over.wait(REDRAWN_S):
            with self.lock:
                line = self._begun[-1].line() if self._begun and not over.is_set() else None
                if line is not None:
                    self._shown = True
                    self._write(_ERASE + line)

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):  # the terminal is gone
            self._shown = False


_TERMINAL = _Terminal()


class Rate:
    """How long the rest takes, by how fast the work went lately.

    Pieces differ: the first ones of a search are bounds, the last ones long simulations. So the
    rate is that of the later half of what is done; it starts anew where another phase begins,
    which is told by a smaller share that is done. Time in which nothing was finished counts.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=MOST_SEEN)

    def add(self, now: float, done: float, total: int) -> None:
        """Note how far the work is.

        Args:
            now: The time, s.
            done: How many pieces are done.
            total: How many there are.
        """
        share = done / max(total, 1)
        if self._seen and share < self._seen[-1][1]:
            self._seen.clear()
        if self._seen and share == self._seen[-1][1]:
            return
        if len(self._seen) == MOST_SEEN:
            thinned = list(self._seen)[::2]
            self._seen.clear()
            self._seen.extend(thinned)
        self._seen.append((now, share))

    def left(self, now: float) -> float | None:
        """Return how long the rest takes, s; None as long as nothing says so.

        Args:
            now: The time, s.
        """
        if len(self._seen) < 2:
            return None
        seen = list(self._seen)
        last = seen[-1][1]
        half = (seen[0][1] + last) / 2
        since, share = next(one for one in reversed(seen) if one[1] <= half)
        return (now - since) / (last - share) * (1 - last)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
