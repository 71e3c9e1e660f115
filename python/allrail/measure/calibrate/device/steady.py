"""How often something is measured: until its median is steady, in rounds, within a time.

Everything is measured in a few rounds, each over all points: what disturbs a machine comes in
bursts, and a burst then touches some times of many points, not all times of one. Every time is the
mean of as many calls as last a while; of these the median counts, and a point whose median is
known well enough leaves its time to others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

ROUNDS = 3
FEWEST = 3
"""Times of a round."""
KNOWN = 0.01
"""The error of a median that is good enough, over it."""
_MOST = 60
"""Times of a round."""
_MOST_CALLS = 200
"""Of a time; a queue of a GPU holds a thousand."""


@dataclass(slots=True)
class Series:
    """The times of one point, by round; seconds of a call."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def times(self) -> list[float]:
        """All of them."""
        return [time for each in self.rounds for time in each]

    @property
    def median(self) -> float:
        """Of all times."""
        return median(self.times)

    @property
    def spread(self) -> float:
        """The median distance from the median, over it."""
        middle = self.median
        return median(abs(time - middle) for time in self.times) / middle

    @property
    def steady(self) -> bool:
        """Whether the median is known well enough, after two rounds."""
        # Of a normal distribution the median's error is 1.25 · 1.48 times the distance over √n.
        error = 1.86 * self.spread / math.sqrt(len(self.times))
        return len(self.rounds) > 1 and error <= KNOWN


def fill(
    series: Series,
    batch: Callable[[int], float],
    *,
    lasts: float,
    until: float,
    clock: Callable[[], float],
) -> None:
    """Measure one round of a point.

    Args:
        series: Takes the times.
        batch: Makes so many calls, and returns seconds of each.
        lasts: Seconds that a time takes at least, up to some number of calls.
        until: When to stop, of `clock`; a few times are taken in any case.
        clock: Seconds of now.
    """
    one = batch(1)
    if one < lasts:  # a first call finds everything cold
        one = batch(1)
    count = max(1, min(_MOST_CALLS, math.ceil(lasts / max(one, 1e-9))))
    times: list[float] = []
    series.rounds.append(times)
    while len(times) < FEWEST or (len(times) < _MOST and clock() < until):
        times.append(batch(count))


def drift(series: Sequence[Series]) -> float:
    """Return how much slower the last round was than the first: the median over all points.

    Args:
        series: Of all points.
    """
    changes = [
        median(one.rounds[-1]) / median(one.rounds[0]) - 1 for one in series if len(one.rounds) > 1
    ]
    return median(changes) if changes else 0.0
