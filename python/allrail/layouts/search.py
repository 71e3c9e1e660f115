"""Ranks layouts by tokens a second, and says why the others lose.

1. Memory, without a simulation: each layout with the least recomputation that fits.
2. A bound that no simulated step of a layout beats, without one.
3. Simulations in `dims`, of the lowest bounds first, until every layout that is left has a higher
   bound than the step of the last one that is shown: none of those is better. `exhaustive`
   simulates all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allrail.errors import InputError
from allrail.layouts.space import Job, Layout
from allrail.layouts.trial import RECOMPUTED, Bounded, Ranked, TooLarge, Trials
from allrail.many import Progress

_TOGETHER = 4
"""How many are simulated before the next look at the bounds; alike on every machine."""


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a search.

    Attributes:
        ranked: Those simulated, the fastest first.
        pruned: Those that are no better than the last one asked for, the lowest bound first.
        too_large: Layouts that do not fit even with full recomputation.
        refused: Layouts that cannot be, and why.
    """

    ranked: tuple[Ranked, ...]
    pruned: tuple[Bounded, ...]
    too_large: tuple[TooLarge, ...]
    refused: tuple[tuple[Layout, InputError], ...]


def search(
    job: Job,
    found: Sequence[Layout],
    *,
    top: int = 10,
    exhaustive: bool = False,
    progress: Progress | None = None,
) -> Found:
    """Rank layouts.

    Args:
        job: What is cut.
        found: Its layouts.
        top: How many of the best are wanted.
        exhaustive: Whether all are simulated.
        progress: Told how many are done, of how many.

    Raises:
        InputError: Something in the job is wrong.
    """
    trials = Trials(job, found[0])
    fitting, too_large, refused = _fitting(trials, found, progress)
    fitting.sort(key=lambda one: (one.bound_s, one.layout.name))
    ranked: list[Ranked] = []
    at = 0
    while at < len(fitting):
        last = sorted(one.step_s for one in ranked)[top - 1] if len(ranked) >= top else None
        if not exhaustive and last is not None and fitting[at].bound_s > last:
            break
        some = fitting[at : at + _TOGETHER]
        at += len(some)
        for one, outcome in zip(some, trials.simulate(some), strict=True):
            if isinstance(outcome, Ranked):
                ranked.append(outcome)
            else:
                refused.append((one.layout, outcome))
        if progress is not None:
            progress(at, len(fitting))
    ranked.sort(key=lambda one: (-one.tokens_per_s_per_npu, one.layout.name))
    return Found(tuple(ranked), tuple(fitting[at:]), tuple(too_large), tuple(refused))


def _fitting(
    trials: Trials, found: Sequence[Layout], progress: Progress | None
) -> tuple[list[Bounded], list[TooLarge], list[tuple[Layout, InputError]]]:
    """Those that fit, with the least recomputation; those that never do; those that cannot be."""
    fitting: list[Bounded] = []
    refused: list[tuple[Layout, InputError]] = []
    left: list[TooLarge] = []
    now = list(found)
    for recompute in RECOMPUTED:
        left = []
        bounds = trials.bounds(now, recompute, progress=progress)
        for layout, outcome in zip(now, bounds, strict=True):
            if isinstance(outcome, Bounded):
                fitting.append(outcome)
            elif isinstance(outcome, TooLarge):
                left.append(outcome)
            else:
                refused.append((layout, outcome))
        now = [one.layout for one in left]
    return fitting, left, refused
