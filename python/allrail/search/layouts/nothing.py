"""Why no layout of a model fits, and what would: more memory a device, or more NPUs."""

from __future__ import annotations

from dataclasses import replace

from allrail.base.errors import InputError
from allrail.search.layouts.layout import Cut, Job
from allrail.search.layouts.search import Found, recomputations
from allrail.search.layouts.space import space
from allrail.search.layouts.trial import Bounded, Trials

_MORE = 7
"""Doublings of the NPUs that are looked at."""


def nothing_fits(job: Job, found: Found) -> InputError:
    """Return the mistake in words: what the smallest layout needs, and how many NPUs would do.

    Args:
        job: What is cut.
        found: A search of it, all of whose layouts are too large.
    """
    smallest = min(found.too_large, key=lambda one: (one.needed, one.layout.name))
    least, has = smallest.needed / 1e9, smallest.capacity / 1e9
    words = f"no layout fits: the smallest, {smallest.layout.name}, needs {least:.1f} GB"
    words += f" of {has:.1f} GB with {_most(job, smallest.layout)} recomputation"
    if least <= has:
        words += f", and {100 * job.headroom:g} % stay free (--headroom)"
    more = _npus(job)
    enough = f"{more:,} NPUs of the same device are enough, or" if more else "take"
    return InputError(
        words,
        source="--npus",
        value=str(job.npus),
        hint=f"{enough} a device with {least / (1 - job.headroom):.0f} GB; fewer tokens a sample"
        " need less, too",
    )


def _most(job: Job, layout: Cut) -> str:
    """The most that is recomputed."""
    return recomputations(job, Trials(job, layout), [layout])[-1]


def _npus(job: Job) -> int | None:
    """With so many, of dimensions that are as long as it takes, some layout fits."""
    npus = job.npus
    for _ in range(_MORE):
        npus *= 2
        outer = -(-npus // job.inner)
        if npus % job.inner and npus > job.inner:
            continue
        sizes = (min(job.inner, npus), outer)
        fabric = {
            "dimensions": [
                {"kind": "switch", "size": size, "bandwidth": "100 GB/s", "latency": "1 us"}
                for size in sizes
                if size > 1
            ]
        }
        batch = job.global_batch * npus // job.npus
        fixed = {key: value for key, value in job.fixed.items() if key != "dp"}
        sets = tuple(one for one in job.sets if not one.startswith("fabric"))
        larger = replace(
            job,
            npus=npus,
            fabric=fabric,
            global_batch=batch,
            dimensions=(),
            fixed=fixed,
            sets=sets,
        )
        try:
            found = space(larger, job.model["transformer"]).layouts
        except InputError:
            continue
        bounds = Trials(larger, found[0]).bounds(found, _most(larger, found[0]))
        if any(isinstance(one, Bounded) for one in bounds):
            return npus
    return None
