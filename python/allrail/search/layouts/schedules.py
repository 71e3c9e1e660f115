"""What other schedules of communication gain for a layout: `plan --schedules`.

A schedule changes what is exposed, not what is kept, so it is tried for the few best layouts alone:
chunk schedulers, algorithms, chunks, tensor schedulers with partition and credit, one knob after
the other (`tuning/turns.py`). Where a tool is named, only schedules that its files say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from allrail.base.progress import Progress
from allrail.search.layouts.trial import Bounded, Ranked, Trials
from allrail.search.tuning.space import schedules
from allrail.search.tuning.turns import by_turns


@dataclass(frozen=True, slots=True)
class TunedLayout:
    """A layout with the schedule that is best for it.

    Attributes:
        ranked: With that schedule.
        schedule: What differs from the scenario's; empty if nothing gains.
        before_s: Seconds of a step without.
        tried: How many schedules were simulated.
    """

    ranked: Ranked
    schedule: dict[str, Any]
    before_s: float
    tried: int

    @property
    def words(self) -> str:
        """What differs, and what it gains."""
        if not self.tried:
            return "the tool's files say no schedule: none was tried"
        if not self.schedule:
            return "no other schedule gains a thousandth"
        said = ", ".join(f"{key}={json.dumps(value)}" for key, value in self.schedule.items())
        return f"{said}: {100 * (1 - self.ranked.step_s / self.before_s):.1f} % shorter"


def tuned(
    trials: Trials,
    ranked: Ranked,
    *,
    offers: Callable[[Mapping[str, Any]], bool] | None = None,
    progress: Progress | None = None,
) -> TunedLayout:
    """Try schedules for a layout.

    Args:
        trials: Of its job.
        ranked: The layout, simulated.
        offers: Says whether the tool that will run it does so with a schedule; None: any is tried.
        progress: Told how many of a knob's values are done.
    """
    # Its bound is of the scenario's own schedule.
    one = Bounded(ranked.layout, ranked.recompute, 0.0, ranked.memory_gb, ranked.capacity_gb)

    def measure(tried: list[dict[str, Any]]) -> list[Ranked | None]:
        outcomes = trials.simulate([one] * len(tried), schedules=tried, progress=progress)
        return [outcome if isinstance(outcome, Ranked) else None for outcome in outcomes]

    found = by_turns(
        schedules(len(trials.dimensions)),
        measure,
        start=ranked,
        time=lambda outcome: outcome.step_s,
        is_allowed=offers or (lambda _: True),
    )
    return TunedLayout(found.best, found.sets, ranked.step_s, found.trials)
