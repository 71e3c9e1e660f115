"""Steps of many microbatches from two shorter ones.

A pipeline that is filled repeats itself: each further microbatch adds the same time. Where a step
has more microbatches than fill it, two smaller numbers of them are simulated, and the rest is their
difference, as often as it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

_FILLED = 3
"""Times its stages: with as many microbatches a pipeline repeats itself."""


def simulated_counts(stages: int, microbatches: int) -> tuple[int, ...]:
    """Return the numbers of microbatches to simulate: all, or two from which all follow.

    Args:
        stages: Of the pipeline; 1 without one.
        microbatches: Of a step.
    """
    most = _FILLED * stages
    return (microbatches,) if microbatches <= most else (most - stages, most)


def of_all(values: Sequence[float], counts: Sequence[int], microbatches: int) -> float:
    """Return a time of a whole step.

    Args:
        values: What it is with each of `counts`.
        counts: As `simulated_counts` returns them.
        microbatches: Of a step.
    """
    if len(counts) == 1:
        return values[0]
    fewer, most = counts
    each = (values[1] - values[0]) / (most - fewer)
    return values[1] + (microbatches - most) * each
