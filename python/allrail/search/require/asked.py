"""The least bandwidth, and the cheapest fabric, for a throughput: `allrail.search.require`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from allrail.base.arguments import Names, PathLike, checked
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.scenario import ScenarioLike
from allrail.scenario.overrides import Sets
from allrail.search.layouts.asked import OfModel, job_of
from allrail.search.layouts.best import best_of
from allrail.search.layouts.layout import Job
from allrail.search.require.bandwidth import Required, least_bandwidth
from allrail.search.require.fabrics import cheapest

_EXAMPLE = "allrail require --model llama3_8b --fabric dgx-h100 --npus 64 --throughput 1s"


@checked
def require(
    scenario: ScenarioLike | None = None,
    *,
    throughput: str,
    sets: Sets = (),
    fabrics: Names = (),
    list: PathLike | None = None,  # noqa: A002, as it is typed
    prices: PathLike | None = None,
    out: PathLike | None = None,
    model: str | None = None,
    fabric: str | None = None,
    npus: int | None = None,
    global_batch: int | None = None,
    sequence: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    recipe: str | None = None,
    launch: str | None = None,
    progress: Progress | None = None,
) -> Required:
    """Find the least bandwidth, and the cheapest fabric, with which a step reaches a throughput.

    Each dimension is scaled alone, then all together.

    Args:
        scenario: A file, a mapping or a `Scenario`, with `workload`.
        throughput: A part of the throughput without time for bytes (`0.95x-ideal`), a step time
            (`1.2 s`), or a rate (`4e6 tokens/s`, `450 tokens/s/npu`, `2000 samples/s`).
        sets: Overrides.
        fabrics: Fabrics to try: presets or files.
        list: Folder of which every fabric file is tried.
        prices: File of prices, as for `cost`.
        out: Folder for the curves, as CSV, Parquet and a picture.
        model: Instead of a scenario, the recommended layout of this model is taken.
        fabric: With `model`: a preset or a file.
        npus: With `model`: number of NPUs.
        global_batch: Samples per step; the number of NPUs if None.
        sequence: Tokens per sample; the model's own if None.
        device: What computes; that of the fabric, else an H100, if None.
        precision: Of parameters and activations; bf16, on devices without it fp16, if None.
        recipe: Format of matrix products with weights; that of `precision` if None.
        launch: How kernels are launched; compiled if None.
        progress: Called with what is done and the total.

    Returns:
        The least that reaches it, Gb/s per NPU, a row of each dimension and of all; `fabrics`, the
        cheapest that reaches it first.

    Raises:
        InputError: Something is wrong, or no bandwidth reaches it.

    Example:
        `allrail.require("step.yaml", throughput="0.95x-ideal").to_polars()`
    """
    of_model = OfModel(
        model, fabric, npus, global_batch, sequence, device, precision, recipe, launch
    )
    job = job_of(scenario, of_model, example=_EXAMPLE)
    notes: tuple[str, ...] = ()
    if isinstance(job, Job):
        tree, told = best_of(job, progress=progress)
        job, notes = tree, tuple(told)
    named = [fabrics] if isinstance(fabrics, str) else [*fabrics]
    named += _listed(None if list is None else Path(list))
    found = least_bandwidth(job, throughput, sets=sets, progress=progress)
    money = None if prices is None else Path(prices)
    tried = cheapest(job, found.target, named, sets=sets, prices=money) if named else ()
    found = replace(found, fabrics=tuple(tried), notes=notes)
    if out is not None:
        found.write(out)
    return found


def _listed(folder: Path | None) -> Iterable[str]:
    """The fabric files in a folder."""
    if folder is None:
        return []
    found = sorted(str(path) for path in folder.glob("*.yaml")) if folder.is_dir() else []
    if not found:
        raise InputError(
            "it holds no fabrics",
            source="--list",
            value=str(folder),
            hint="a folder with fabric files, `NAME.yaml`",
        )
    return found
