"""A running job is tuned: what it tries next, and what it ends with. No clock, no I/O.

Times of steps scatter, so that the best of several trials is partly luck; and a machine has other
work, so that what was measured later may be faster whatever was tried. What has looked best is
therefore measured once more, between two measurements of the start: only what is faster than both
by more than the noise stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from allrail.search.tuning.searcher import Searcher, Trial

TRIALS = 12
"""At most, with those that confirm."""
_CONFIRM = 3
"""The start, the best, the start."""
PATIENCE = 4
"""Trials, one after the other, that gain no more than the noise, before the search ends."""
LEAST = 0.01
"""Of a step: no less is called a gain."""
_DEVIATION = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""
_OF_MEDIAN = 1.2533
"""The standard error of a median over that of a mean, of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next.

    Attributes:
        sets: What differs from the start.
        over: Whether nothing is tried any more, and these stay.
    """

    sets: Mapping[str, Any]
    over: bool


class Search(Protocol):
    """Told what each trial came to, says what is next; the first trial is the start.

    Attributes:
        said: What came of it, in a line with times in ms; once it is over.
    """

    def told(self, time: float, error: float) -> Next:
        """Take in what the trial under way came to.

        Args:
            time: Of a step, in any unit.
            error: Of that, its standard error.
        """

    @property
    def said(self) -> str: ...  # noqa: D102


def typical(steps: Sequence[float]) -> tuple[float, float]:
    """Return a trial's time and its standard error; single steps that were held up do not count.

    Args:
        steps: How long each took, in any unit.
    """
    middle = median(steps)
    away = median(abs(one - middle) for one in steps)
    return middle, _OF_MEDIAN * _DEVIATION * away / len(steps) ** 0.5


class Live:
    """A `Search` by Bayesian optimisation, and what confirms it.

    Args:
        searcher: What is tried; it was asked for nothing yet.

    Attributes:
        start: The time of the start, as last measured.
        best: Of what stays, likewise.
    """

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher
        searcher.ask()  # the start
        self._noise = 0.0
        self._idle = 0
        self._confirms: Trial | None = None
        self._again: list[float] = []
        self._stays: Mapping[str, Any] = {}
        self.start = 0.0
        self.best = 0.0

    @property
    def trials(self) -> int:
        """How many there were, but for those that confirm."""
        return len(self._searcher.done)

    def told(self, time: float, error: float) -> Next:
        """See `Search`."""
        self._noise = max(self._noise, error)
        if self._confirms is not None:
            return self._confirmed(self._confirms, time)
        done = self._searcher.done
        before = min((one.step_time_us for one in done), default=None)
        self._searcher.tell(time)
        if before is None:
            self.start = self.best = time
        elif time < before - self._margin(before):
            self._idle = 0
        else:
            self._idle += 1
        if self._idle < PATIENCE and len(done) < TRIALS - _CONFIRM and not self._searcher.exhausted:
            return Next(self._searcher.ask(), over=False)
        best = min(done, key=lambda one: one.step_time_us)
        if best.step_time_us >= done[0].step_time_us - self._margin(done[0].step_time_us):
            return Next({}, over=True)
        self._confirms = best
        return Next({}, over=False)

    def _confirmed(self, best: Trial, time: float) -> Next:
        """The start, the best, or the start behind it was measured once more."""
        self._again.append(time)
        if len(self._again) == 1:
            self.start = time
            return Next(best.sets, over=False)
        self.start = min(self._again[::2])
        tried = self._again[1]
        if tried < self.start - self._margin(self.start):
            if len(self._again) < _CONFIRM:
                return Next({}, over=False)
            self.best, self._stays = tried, best.sets
            return Next(best.sets, over=True)
        self.best = self.start
        return Next({}, over=True)

    @property
    def said(self) -> str:
        """See `Search`."""
        if not self._stays:
            return f"nothing is faster than {self.start:.2f} ms a step by the noise"
        sets = ", ".join(f"{name} {value}" for name, value in self._stays.items())
        gain = 100 * (1 - self.best / self.start)
        return (
            f"{sets}: {self.best:.2f} ms a step, {self.start:.2f} as it began ({gain:.1f} % less)"
        )

    def _margin(self, time: float) -> float:
        """What is no gain: two standard errors of a difference."""
        return max(LEAST * time, 2 * 2**0.5 * self._noise)
