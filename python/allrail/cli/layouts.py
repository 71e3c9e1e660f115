"""Layouts of a model, ranked: `allrail plan --model`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail.errors import InputError
    from allrail.layouts import Found, Job, Ranked


def rank(
    model: str,
    fabric: str,
    npus: int,
    more: tuple[int | None, int | None, str],
    *,
    top: int,
    out: Path | None,
    json: bool,
) -> None:
    """Rank the layouts of a model, print them, and write the best one's scenario.

    Args:
        model: A preset, a `config.json` or a file.
        fabric: A preset or a file.
        npus: How many train.
        more: Samples of a step, tokens of a sample, and the device.
        top: How many rows are shown.
        out: Where the best scenario goes.
        json: Whether one JSON object is printed.

    Raises:
        InputError: No layout can be, or none fits.
    """
    from allrail.cli import output
    from allrail.errors import InputError
    from allrail.layouts import Job, layouts, search
    from allrail.scenario import load_any_fabric
    from allrail.scenario.dimensions import dimensions_of
    from allrail.scenario.models import load_model

    batch, sequence, device = more
    dimensions = dimensions_of(load_any_fabric(fabric))
    if npus > dimensions.npus:
        raise InputError(
            "the fabric has fewer",
            source="--npus",
            value=str(npus),
            hint=f"`{fabric}` has {dimensions.npus:,}",
        )
    sizes = load_model(model, folder=Path()).get("transformer")
    if sizes is None:
        raise InputError(
            "its layers and heads are not said",
            source="--model",
            value=model,
            hint="name a preset or a file with `transformer`: `docs/reference/workloads.md`",
        )
    job = Job(
        model={"transformer": sizes, "name": model},
        fabric=fabric,
        npus=npus,
        inner=dimensions.dimensions[0].size,
        global_batch=batch or npus,
        compute={"device": device, "launch": "compiled"},
        precision="bf16",
        sequence=sequence,
    )
    with output.Progress("simulating layouts") as progress:
        found = search(job, layouts(job, sizes), progress=progress)
    if not found.ranked:
        raise _nothing(found)
    best = found.ranked[0]
    if out is not None:
        from allrail.files import write_yaml

        write_yaml(out, _scenario(job, best, model))
    if json:
        output.print_json(
            {
                "ranked": [_tree(one) for one in found.ranked],
                "too_large": [layout.name for layout, _ in found.too_large],
                "refused": {layout.name: one.message for layout, one in found.refused},
            }
        )
        return
    rows = [
        [
            one.layout.name,
            one.recompute,
            f"{one.step_s:.4g}",
            f"{one.tokens_per_s_per_npu:.4g}",
            f"{100 * (one.tokens_per_s_per_npu / best.tokens_per_s_per_npu - 1):.1f}",
            f"{one.memory_gb:.0f}",
            one.why.replace(" ", "_"),
        ]
        for one in found.ranked[:top]
    ]
    header = ["layout", "recompute", "step_s", "tokens_per_s_per_npu", "%", "GB", "loses_by"]
    output.table(header, rows)
    output.note(
        f"{len(found.ranked)} layouts fit, {len(found.too_large)} do not even with full"
        f" recomputation, {len(found.refused)} cannot be; {job.global_batch} samples a step"
    )
    output.predicted(["dims"], calibrated=dimensions.calibrated)
    if out is not None:
        output.note(f"the best is in {out}: `allrail simulate {out}`")


def _scenario(job: Job, best: Ranked, model: str) -> dict[str, Any]:
    count = best.layout.microbatches(job)
    tree = best.layout.scenario(job, recompute=best.recompute, microbatches=count)
    tree["workload"]["model"] = model
    return tree


def _tree(one: Ranked) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(one), "name": one.layout.name, "lost": dict(one.lost)}


def _nothing(found: Found) -> InputError:
    """Why no layout is left."""
    from allrail.errors import InputError

    if found.too_large:
        layout, why = min(found.too_large, key=lambda one: len(one[0].name))
        return InputError(
            f"no layout fits; {layout.name}: {why}",
            source="--npus",
            hint="take more NPUs, fewer samples a step, or shorter ones",
        )
    return found.refused[0][1]
