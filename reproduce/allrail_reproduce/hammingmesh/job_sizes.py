"""Fig. 7 of HammingMesh: how large the jobs of a cluster are, and whose boards they take.

The figure's numbers are not in our copy, so that ours stand alone: of every mix that the claims are
judged on, the share of jobs up to each size, and the share of all boards that these jobs ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from allrail.scenario.mixes import read_mix
from allrail_reproduce.pictures.job_sizes import job_sizes
from allrail_reproduce.rows import Cells, Detail, Picture


def detail(mixes: Sequence[str]) -> Detail:
    """Return one row a mix and size, sizes ascending.

    Args:
        mixes: Presets' names.
    """
    header = ("mix", "boards", "jobs", "jobs_up_to_%", "boards_of_jobs_up_to_%")
    rows: list[Cells] = []
    for name in mixes:
        sizes = sorted((size, jobs) for size, jobs in read_mix(name).rows if isinstance(size, int))
        jobs_of_all = sum(jobs for _, jobs in sizes)
        boards_of_all = sum(size * jobs for size, jobs in sizes)
        jobs_so_far = boards_so_far = 0
        for size, jobs in sizes:
            jobs_so_far += jobs
            boards_so_far += size * jobs
            shares = (100 * jobs_so_far / jobs_of_all, 100 * boards_so_far / boards_of_all)
            rows.append((name, size, jobs, *shares))
    return Detail("job_sizes", header, rows)


def picture(sizes: Detail) -> Picture:
    """Return the picture of `detail`.

    Args:
        sizes: What `detail` gave.
    """
    return Picture(
        "job_sizes",
        "Sizes of jobs (Fig. 7)",
        "Above, the share of jobs up to a size; below, the share of all boards that they ask for.",
        partial(job_sizes, sizes),
    )
