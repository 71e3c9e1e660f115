"""A run of the runtime that was recorded, held against the simulation of the same job.

Compute times are the run's own, of the rank that computes longest; what can be off is the fabric,
and that in each step another rank is the last. So the step is simulated as planned, with one number
at a time as it was measured, and with all of them. The number that brings the prediction nearest to
the measured step is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import cast

from allrail.base.errors import InputError
from allrail.measure.verify import refit
from allrail.measure.verify.collectives import exchanges
from allrail.measure.verify.fit import carried
from allrail.measure.verify.verdict import Assumption, Verdict
from allrail.results.training_result import TrainingResult
from allrail.runtime.predict import scenario
from allrail.runtime.record import Record
from allrail.runtime.steps import Step, middle_half, steps_of
from allrail.simulation.api import simulate


def verify_records(records: Sequence[Record]) -> Verdict:
    """Compare a run with the simulation of the same job.

    Args:
        records: Of all ranks; of several models the first one's.

    Raises:
        InputError: There is no step to compare, or nothing to predict it with.
    """
    records = [one for one in records if one["model"] == records[0]["model"]] if records else []
    seen = [(one, steps_of(one)) for one in records]
    seen = [(one, steps) for one, steps in seen if steps]
    if not seen:
        raise InputError(
            "no step was seen whole",
            hint="record three steps or more: `allrail run --trace DIR torchrun ... train.py`",
        )
    record, steps = max(seen, key=lambda one: _computed(one[1]))
    settings = record["settings"] or {}
    if not settings.get("dimensions"):
        raise InputError(
            f"the transport `{record['transport']}` tells of no fabric",
            hint="trace what c10d carries by PyTorch's profiler: `allrail verify TRACE --fabric F`",
        )
    planned = scenario(record, steps)
    found = carried(records)
    base = refit.step_ms(planned)
    changes = refit.bandwidths(planned, found)
    assumptions = refit.assumptions(planned, changes)
    mine, slowest = (
        _typical(step.computed for step in steps),
        _of_the_slowest([each for _, each in seen]),
    )
    uneven = slowest / mine
    assumptions.append(
        Assumption(
            "computing, of the last rank",
            f"{mine / 1e6:.3f} ms",
            f"{slowest / 1e6:.3f} ms",
            refit.step_ms(refit.slowed(planned, uneven)),
        )
    )
    refitted = refit.slowed(refit.changed(planned, refit.by_dimension(changes)), uneven)
    result = cast("TrainingResult", simulate(refitted, timeline=True))
    times = [(step.end - step.start) / 1e6 for _, each in seen for step in each]
    measured = median(times)
    apart = median(_drift(each) for _, each in seen)
    after = result.step_time_us / 1e3
    parts = refit.parts_of(
        left=abs(after / measured - 1), spread=refit.spread(refitted, found, after), apart=apart
    )
    return Verdict(
        ranks=record["ranks"],
        steps=len(steps),
        rank=record["rank"],
        measured_ms=measured,
        planned_ms=base,
        refitted_ms=after,
        bar=sum(part for _, part in parts),
        exposed_ms=median(step.waited / 1e6 for step in steps),
        assumptions=tuple(assumptions),
        worst=refit.off_the_most(assumptions, planned=base, measured=measured),
        exchanges=tuple(exchanges(records, result)),
        dimensions=tuple(found),
        fabric=refit.fabric_file(refitted, found),
        bar_of=parts,
    )


def _drift(steps: Sequence[Step]) -> float:
    """How far the means of a run's two halves, each of even steps, lie from that of both."""
    half = len(steps) // 4 * 2
    if not half:
        return 0.0
    means = [fmean(one.end - one.start for one in part) for part in (steps[:half], steps[-half:])]
    return abs(means[0] - means[1]) / sum(means)


def _computed(steps: Sequence[Step]) -> float:
    return median(step.computed for step in steps)


def _typical(times: Iterable[int]) -> float:
    """As predictions take it."""
    return fmean(middle_half(times, key=float))


def _of_the_slowest(ranks: Sequence[Sequence[Step]]) -> float:
    """What the rank that is last in a step computes there, in a typical step."""
    count = min(map(len, ranks))
    together = zip(*(steps[-count:] for steps in ranks), strict=True)
    return _typical(max(step.computed for step in one) for one in together)
