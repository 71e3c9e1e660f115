"""A search by turns: one knob after the other, each on the best of those before.

For few trials of an expensive step (`plan --schedules`): as many as the values of all knobs added
up, where Bayesian optimisation (`searcher.py`) needs dozens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Outcome = TypeVar("Outcome")
LEAST = 1e-3
"""Of a simulated step: no less is called a gain."""


@dataclass(frozen=True, slots=True)
class Turned(Generic[Outcome]):
    """What a search by turns came to.

    Attributes:
        best: The outcome of the best trial; that of the start if none gains.
        sets: What differs from the start.
        trials: How many there were, without the start.
    """

    best: Outcome
    sets: dict[str, Any]
    trials: int


def by_turns(
    knobs: Iterable[Sequence[Mapping[str, Any]]],
    measure: Callable[[list[dict[str, Any]]], Sequence[Outcome | None]],
    *,
    start: Outcome,
    time: Callable[[Outcome], float],
    is_allowed: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> Turned[Outcome]:
    """Search one knob after the other.

    Args:
        knobs: The values of each, as changes of the start.
        measure: Makes trials; None is the outcome of what cannot be.
        start: The outcome with nothing changed.
        time: Of an outcome, in any unit.
        is_allowed: Whether changes are tried at all.
    """
    best, sets, trials = start, dict[str, Any](), 0
    for values in knobs:
        tried = [one for value in values if is_allowed(one := {**sets, **value})]
        if not tried:
            continue
        trials += len(tried)
        for one, outcome in zip(tried, measure(tried), strict=True):
            if outcome is not None and time(outcome) < time(best) * (1 - LEAST):
                best, sets = outcome, one
    return Turned(best, sets, trials)
