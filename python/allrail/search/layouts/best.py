"""The recommended layout of a job, where nothing else is asked of its layouts."""

from __future__ import annotations

from typing import Any

from allrail.base.progress import Progress
from allrail.search.layouts.answer import no_tool
from allrail.search.layouts.layout import Job
from allrail.search.layouts.search import search
from allrail.search.layouts.space import space
from allrail.search.layouts.written import nothing_left, scenario_of_layout


def best_of(job: Job, *, progress: Progress | None = None) -> tuple[dict[str, Any], list[str]]:
    """Return the scenario of a job's recommended layout, and what is to be said of it.

    Args:
        job: What is cut.
        progress: Told how many layouts were looked at.

    Raises:
        InputError: No layout can be, or none fits.
    """
    found = search(job, space(job, job.model["transformer"]).layouts, top=1, progress=progress)
    if found.stopped:
        raise KeyboardInterrupt(found.stopped)
    if not found.ranked:
        raise nothing_left(job, found)
    best = found.recommended
    told = [f"the recommended layout: {best.layout.name}", *no_tool(job, found), *job.assumed]
    return scenario_of_layout(job, best), told
