"""All points of a device, in rounds within a time, and whether the machine was calm meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Protocol

from allrail.base.progress import Progress
from allrail.measure.calibrate.device.fit import Found
from allrail.measure.calibrate.device.points import Means, Measured, Point, Start, grid
from allrail.measure.calibrate.device.steady import ROUNDS, Series, drift, fill

_SLOWER = 0.05
"""A machine that becomes so much slower is not the machine that was measured first."""
_SCATTERED = 0.05


class Device(Protocol):
    """What is measured: `bench.Bench`, or a test's."""

    name: str
    about: str
    units: int
    memory: int
    cache: int
    lasts: float

    def means(self, seconds: float) -> Means:
        """Return what there is to measure in a time."""
        ...

    def batch(self, point: Point) -> Callable[[int], float]:
        """Return what makes so many calls of a point, and says seconds of each."""
        ...

    def busy(self) -> list[str]:
        """Return why others may be at work here."""
        ...

    def how(self) -> str:
        """Return by what it is measured."""
        ...


def run(
    device: Device,
    *,
    seconds: float,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Measure a device.

    Args:
        device: What is measured.
        seconds: About how long; a few times of every point are taken in any case.
        progress: Told how much is done, in thousandths.
        clock: Seconds of now.
    """
    warnings = device.busy()
    begun = clock()
    points = grid(device.means(seconds))
    series = {point: Series() for point in points}
    missing: dict[Point, str] = {}
    for number in range(ROUNDS):
        left = [point for point in points if point not in missing and not _known(series[point])]
        ends = begun + seconds * (number + 1) / ROUNDS
        for place, point in enumerate(left):
            if progress is not None:
                progress(round(1000 * (number + place / len(left)) / ROUNDS), 1000)
            now = clock()
            until = now + max(0.0, ends - now) / (len(left) - place)
            try:
                batch = device.batch(point)
                fill(series[point], batch, lasts=device.lasts, until=until, clock=clock)
            except (RuntimeError, NotImplementedError) as error:
                missing[point] = str(error).strip().split("\n")[0]
    found = {point: one for point, one in series.items() if point not in missing}
    took = clock() - begun
    rounds = [one for point, one in found.items() if not isinstance(point, Start)]
    slower, scattered = drift(rounds), median([one.spread for one in rounds] or [0.0])
    if slower > _SLOWER:
        warnings.append(
            f"it became {100 * slower:.0f} % slower while it was measured: heat, a limit of power,"
            " or somebody else's work"
        )
    if scattered > _SCATTERED:
        warnings.append(
            f"times scatter by {100 * scattered:.0f} %: somebody else works on this machine;"
            " measure again when it is calm, or for longer"
        )
    times = sum(len(one.times) for one in found.values())
    how = (
        f"Measured {datetime.now(UTC):%Y-%m-%d} on {device.about} by `allrail calibrate device`"
        f" ({device.how()}): {len(found)} kernels and ways to start one, the median of"
        f" {times // max(1, len(found))} times each on average, in {took:.0f} s; they scatter by"
        f" {100 * scattered:.1f} %. `peak` and `memory_bandwidth` are the fastest that was seen,"
        " not a data sheet's."
    )
    return Found(
        name=device.name,
        about=device.about,
        units=device.units,
        memory=device.memory,
        cache=device.cache,
        how=how if not warnings else f"{how} Then {'; '.join(warnings)}.",
        measured=tuple(
            Measured(point, one.median, min(one.times), one.spread, len(one.times))
            for point, one in found.items()
        ),
        notes=tuple(f"{point}: not measured, {why}" for point, why in missing.items()),
        warnings=tuple(warnings),
    )


def _known(series: Series) -> bool:
    return bool(series.rounds) and series.steady
