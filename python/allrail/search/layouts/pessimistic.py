"""The network at its worst: what a layout loses where links carry less than their rate.

A fabric that was measured has an `error`, and is as slow as that lets it be. A nominal one reaches
what healthy machines reach in posted outputs of nccl-tests: within a machine 223 of 300 GB/s
(all-gather, 8 A100: microsoft/superbenchmark, `tests/data/nccl_allgather.log`), which is less than
of H100s (365 of 450) or an NVL72 (680 of 900); between machines 40 of 50 GB/s (what NVIDIA/nccl#527
takes for right on 3 and 4 p4d). Others reach up to 0.96 of a line: it is a pessimistic network, not
a likely one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from allrail.base.progress import Progress
from allrail.scenario import Fabric
from allrail.search.layouts.trial import Bounded, Ranked, Trials

INSIDE = 223 / 300
"""Of the rate of the innermost dimension."""
BETWEEN = 40 / 50
"""Of that of others."""
BUSY = 0.8
"""A dimension that is busy for more of a step is said: it has nothing left at `BETWEEN`."""


@dataclass(frozen=True, slots=True)
class Pessimistic:
    """What layouts take on the pessimistic network.

    Attributes:
        words: What network that is.
        steps_s: Seconds of a step, by a layout's name; without those that do not run on it.
    """

    words: str
    steps_s: dict[str, float]


def pessimistic(
    trials: Trials, some: Sequence[Ranked], *, progress: Progress | None = None
) -> Pessimistic | None:
    """Simulate layouts on the pessimistic network; None where the fabric is no product.

    Args:
        trials: Of their job.
        some: The layouts.
        progress: Told how many are done.
    """
    fabric = trials.fabric
    if not isinstance(fabric, Fabric):
        return None
    if fabric.error is not None:
        slow = fabric.slower(1 + fabric.error)
        words = f"{100 * fabric.error:.3g} % slower, as its measured error allows"
    else:
        slow = fabric.carrying([INSIDE] + [BETWEEN] * (len(fabric.dimensions) - 1))
        words = f"dim1 at {100 * INSIDE:.0f} % of its rate"
        if len(fabric.dimensions) > 1:
            words += f", others at {100 * BETWEEN:.0f} %"
        words += ": what healthy machines reach at least"
    # Bounds are of the nominal network, and hold on a slower one.
    bounded = [Bounded(one.layout, one.recompute, 0.0, one.memory_gb) for one in some]
    outcomes = trials.on(slow).simulate(bounded, progress=progress)
    steps = {
        one.layout.name: max(outcome.step_s, one.step_s)
        for one, outcome in zip(some, outcomes, strict=True)
        if isinstance(outcome, Ranked)
    }
    return Pessimistic(words, steps)
