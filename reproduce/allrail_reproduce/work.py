"""Carries out many simulations, several at a time, and keeps each result as it comes.

A case that is kept on disk is not computed again. Ctrl-C ends the simulations that run within a
moment; everything that had come by then is kept.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from allrail import _core
from allrail.scenario.explain import from_core
from allrail.scenario.places import Places
from allrail.simulation.api import simulate
from allrail.simulation.placement import place
from allrail_reproduce.kept import Kept
from allrail_reproduce.rows import Progress

Simulate = Callable[[Mapping[str, Any], Progress], dict[str, Any]]
"""Simulates a scenario, telling how far it is, and returns the result as plain values."""


class Case(Protocol):
    """Something to simulate; hashable, as results are found by it."""

    @property
    def scenario(self) -> dict[str, Any]:
        """What `core_simulate` takes: a scenario of traffic, or `place` on a `fabric`."""
        ...

    @property
    def weight(self) -> float:
        """About how many seconds of a core it takes."""
        ...


C = TypeVar("C", bound=Case)


class _Stopped(Exception):  # noqa: N818, it is no error
    """Raised in a simulation whose result nobody waits for any more."""


def core_simulate(scenario: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Simulate traffic or training steps, or place jobs, by the core.

    Args:
        scenario: What `allrail.simulate` takes, or a `fabric` and what `place` takes for it; of
            training, resolved.
        progress: Told how far it is.
    """
    if "place" in scenario:
        placed: dict[str, Any] = place(scenario["fabric"], **scenario["place"], progress=progress)
        return placed
    if "workload" in scenario:
        try:
            text = _core.simulate(json.dumps(scenario), progress=progress)
        except _core.InputError as error:
            raise from_core(error, places=Places()) from None
        told: dict[str, Any] = json.loads(text)
        return told
    return simulate(dict(scenario), progress=progress).to_dict()


def carry_out(
    cases: Sequence[C],
    *,
    simulate: Simulate = core_simulate,
    kept: Kept | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> dict[C, dict[str, Any]]:
    """Simulate every case, the longest first, and keep each result as soon as it is there.

    Args:
        cases: What to simulate; repeated ones count once.
        simulate: Simulates one.
        kept: Where results are kept; those of this core if None.
        jobs: How many run at once; as many as there are cores if None.
        progress: Told how much work is done and how much there is, in tenths of expected seconds.

    Returns:
        The results by case, in the order of `cases`.

    Raises:
        InputError: One is refused; the others' results are kept.
    """
    kept = Kept() if kept is None else kept
    found = {case: kept.get(case.scenario) for case in cases}
    left = sorted((case for case in found if found[case] is None), key=lambda case: -case.weight)
    clock = _Clock(left, progress)

    def one(case: C) -> dict[str, Any]:
        result = simulate(case.scenario, lambda done, total: clock.tell(case, done, total))
        kept.put(case.scenario, result)
        clock.tell(case, 1, 1)
        return result

    with ThreadPoolExecutor(max(1, jobs or os.cpu_count() or 1)) as pool:
        running: dict[Future[dict[str, Any]], C] = {pool.submit(one, case): case for case in left}
        try:
            waiting = set(running)
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in done:
                    found[running[future]] = future.result()
                clock.show()
        except BaseException:
            clock.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {case: result for case, result in found.items() if result is not None}


class _Clock:
    """How much of the expected work is done. Simulations tell it from their threads."""

    def __init__(self, cases: Sequence[Case], progress: Progress | None) -> None:
        self._parts: dict[Case, float] = {}
        self._total = sum(case.weight for case in cases)
        self._lock = threading.Lock()
        self._progress = progress
        self._stopped = False

    def tell(self, case: Case, done: float, total: int) -> None:
        """A simulation is that far; it ends here if nobody waits for it."""
        with self._lock:
            if self._stopped:
                raise _Stopped
            self._parts[case] = case.weight * min(1.0, done / max(total, 1))

    def stop(self) -> None:
        """Let every simulation end at its next report."""
        with self._lock:
            self._stopped = True

    def show(self) -> None:
        """Pass it on, from the main thread."""
        if self._progress is not None and self._total > 0:
            with self._lock:
                done = sum(self._parts.values())
            self._progress(round(10 * done), max(1, round(10 * self._total)))
