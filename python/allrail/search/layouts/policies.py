"""What other schedules of communication gain for a layout: one key at a time, on its best so far.

A policy changes what is exposed, not what is kept, so it is tried for the few best layouts alone:
chunk schedulers, tensor schedulers with partition and credit, chunks, algorithms. What gains less
than a thousandth stays as it was. Where a tool is named, only schedules that its files say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.base.progress import Progress
from allrail.scenario.algorithms import AUTO
from allrail.search.layouts.trial import Bounded, Ranked, Trials

_GAIN = 1e-3
_PARTITIONS = ("4 MiB", "16 MiB", "64 MiB")
_CREDITS = (1, 4)
"""Of partitions: how many are under way."""
_CHUNKS = (4, 16)


@dataclass(frozen=True, slots=True)
class Tuned:
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
) -> Tuned:
    """Try schedules for a layout.

    Args:
        trials: Of its job.
        ranked: The layout, simulated.
        offers: Says whether the tool that will run it does so with a schedule; None: any is tried.
        progress: Told how many of an axis are done.
    """
    best, schedule, count = ranked, dict[str, Any](), 0
    # Its bound is of the scenario's own schedule.
    one = Bounded(ranked.layout, ranked.recompute, 0.0, ranked.memory_gb, ranked.capacity_gb)
    dimensions = len(trials.dimensions)
    for options in _axes(dimensions):
        tried = [{**schedule, **option} for option in options]
        if offers is not None:
            tried = [one for one in tried if offers(one)]
        if not tried:
            continue
        count += len(tried)
        outcomes = trials.simulate([one] * len(tried), schedules=tried, progress=progress)
        for option, outcome in zip(tried, outcomes, strict=True):
            if isinstance(outcome, Ranked) and outcome.step_s < best.step_s * (1 - _GAIN):
                best, schedule = outcome, option
    return Tuned(best, schedule, ranked.step_s, count)


def _axes(dimensions: int) -> Iterator[list[dict[str, Any]]]:
    """Options that exclude each other, axis by axis."""
    rows = json.loads(_core.policies())
    yield [{"policy": row["name"]} for row in rows if not row["expensive"]]
    # What a dimension's kind does not do is refused, and left out.
    rows = json.loads(_core.algorithms())
    named = [{"algorithms": [row["name"]] * dimensions} for row in rows]
    yield [{"algorithms": AUTO}, *named]
    yield [{"chunks": count} for count in _CHUNKS]
    yield [
        {"tensor": {"policy": row["name"], **more}}
        for row in json.loads(_core.tensor_policies())
        # Layers of a layout are a chain, on which such an order is another policy's.
        if not row["by_graph"]
        for more in _parts(row["reads"])
    ]


def _parts(reads: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What a tensor scheduler is tried with: sizes of parts where it cuts, else as it comes.

    Policies that cut were published with parts for small models; of a large one's gradients those
    are a hundred thousand, which take longer here and on the network alike.
    """
    if "partition" not in reads:
        yield {}
        return
    for size in _PARTITIONS:
        if "credit" in reads:
            yield from ({"partition": size, "credit": _credit(size, many)} for many in _CREDITS)
        else:
            yield {"partition": size}


def _credit(partition: str, count: int) -> str:
    number, unit = partition.split()
    return f"{int(number) * count} {unit}"
