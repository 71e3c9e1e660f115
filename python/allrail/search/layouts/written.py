"""The scenario of a layout, and of the layout that is recommended for a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.stdin import STDIN
from allrail.base.units import show_count
from allrail.scenario.devices import load_device
from allrail.scenario.models import load_model, model_names
from allrail.scenario.presets import read_fabric
from allrail.search.layouts.layout import Job, overridden
from allrail.search.layouts.nothing import nothing_fits
from allrail.search.layouts.search import Found
from allrail.search.layouts.trial import Ranked


def scenario_of_layout(
    job: Job, best: Ranked, *, folder: Path | None = None, count: int | None = None
) -> dict[str, Any]:
    """Return the scenario of a layout.

    Args:
        job: What is cut.
        best: The layout.
        folder: Where its file goes, which names others from there; None: for here.
        count: So many microbatches, not those of a whole step.
    """
    all_of_them = best.layout.microbatches(job)
    tree = tree_of_layout(job, best.layout, best.recompute, count or all_of_them)
    if folder is not None:
        workload = tree["workload"]
        files = ((tree, "fabric"), (workload, "model"), (workload["compute"], "device"))
        for parent, key in files:
            if isinstance(parent[key], str):
                parent[key] = _seen_from(folder, parent[key])
    return tree


def tree_of_layout(job: Job, layout: Any, recompute: str, microbatches: int) -> dict[str, Any]:
    """Return the scenario of a layout with the model by its name, and with what `--set` says.

    Args:
        job: What is cut.
        layout: How.
        recompute: What its backward pass computes again.
        microbatches: Of a replica in a step.
    """
    tree = layout.scenario(job, recompute=recompute, microbatches=microbatches)
    tree["workload"]["model"] = job.model["name"]
    _write_out_stdin(tree)
    return overridden(tree, job.sets)


def _write_out_stdin(tree: dict[str, Any]) -> None:
    """Put what came from stdin in place of its name: nobody who reads the scenario later has it."""
    piped = str(STDIN)
    workload = tree["workload"]
    if workload["model"] == piped:
        workload["model"] = load_model(piped)
    if tree["fabric"] == piped:
        tree["fabric"] = read_fabric(piped)[0]
    if workload["compute"]["device"] == piped:
        workload["compute"] = {**workload["compute"], "device": load_device(piped)}


def _seen_from(folder: Path, name: str) -> str:
    """A preset's name as it is; a file that is named from here as a scenario in `folder` does."""
    path = Path(name)
    is_file = path.suffix or len(path.parts) > 1 or (path.is_dir() and name not in model_names())
    return os.path.relpath(path, folder) if is_file and not path.is_absolute() else name


def job_tree(job: Job) -> dict[str, Any]:
    """Return a job as plain values.

    Args:
        job: What is cut.
    """
    return {
        "model": job.model["name"],
        "fabric": str(job.fabric),
        "npus": job.npus,
        "global_batch": job.global_batch,
        "device": str(job.compute["device"]),
    }


def nothing_left(job: Job, found: Found) -> InputError:
    """Return why no layout is left, and what would fit.

    Args:
        job: What is cut.
        found: What came of the search.
    """
    if found.stopped:
        return InputError(
            f"{found.stopped}, and none of {show_count(len(found.too_large), 'layout')} fits",
            source="--budget",
            hint="allow more time: others were not looked at",
        )
    return nothing_fits(job, found) if found.too_large else found.refused[0][1]
