"""Layouts of a model, ranked: `allrail plan --model`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allrail.cli.options import OfModel
    from allrail.errors import InputError
    from allrail.layouts import Found, Job, Ranked, Space, Tuned


def job_of(file: Path | None, asked: OfModel, *, example: str) -> Job | Path:
    """Return what is to be laid out, or FILE, where that is given instead.

    Args:
        file: What else may be given.
        asked: By the options.
        example: Of a command that is right, for the hint.

    Raises:
        InputError: Neither or half of it is given; the fabric has fewer NPUs; the model's layers
            are not said.
    """
    from allrail.cli import options
    from allrail.errors import InputError
    from allrail.layouts import Job
    from allrail.scenario import load_any_fabric
    from allrail.scenario.dimensions import dimensions_of
    from allrail.scenario.models import load_model, transformer_of

    model, fabric, npus = asked.model, asked.fabric, asked.npus
    if model is None and fabric is None and npus is None:
        if file is None:
            raise InputError(
                "there is nothing to look at",
                hint="name a scenario's FILE, or --model, --fabric and --npus",
            )
        options.refuse(
            "global_batch",
            "sequence",
            "device",
            why="FILE says it itself",
            hint="leave it out, or name --model, --fabric and --npus in place of FILE",
        )
        return file
    if model is None or fabric is None or npus is None or file is not None:
        raise InputError(
            "a model is laid out by --model, --fabric and --npus together, without FILE",
            hint=example,
        )
    dimensions = dimensions_of(load_any_fabric(fabric), counted=True)
    if npus > dimensions.npus:
        raise InputError(
            "the fabric has fewer",
            source="--npus",
            value=str(npus),
            hint=f"`{fabric}` has {dimensions.npus:,}",
        )
    sizes = transformer_of(load_model(model, folder=Path()))
    if sizes is None:
        raise InputError(
            "its layers and heads are not said",
            source="--model",
            value=model,
            hint="name a preset, a `config.json`, or a file with `transformer`",
        )
    return Job(
        model={"transformer": sizes, "name": model},
        fabric=fabric,
        npus=npus,
        inner=dimensions.dimensions[0].size,
        global_batch=asked.global_batch or npus,
        compute={"device": asked.device, "launch": "compiled"},
        precision="bf16",
        sequence=asked.sequence,
        dimensions=tuple(one.size for one in dimensions.dimensions),
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """How far a ranking goes.

    Attributes:
        top: How many rows are shown.
        exhaustive: Whether layouts are simulated that cannot be among these rows.
        schedules: For how many of the best other schedules of communication are tried.
    """

    top: int
    exhaustive: bool
    schedules: int


def rank(
    job: Job,
    asked: Asked,
    *,
    out: Path | None = None,
    report: Path | None = None,
    json: bool = False,
) -> None:
    """Rank the layouts of a model, print them, and write the best one's scenario.

    Args:
        job: What is cut.
        asked: How far it goes.
        out: Where the best scenario goes.
        report: Which folder takes the result and its report.
        json: Whether one JSON object is printed.

    Raises:
        InputError: No layout can be, or none fits.
    """
    from allrail.cli import folders, output
    from allrail.layouts import Trials, search, space, tuned
    from allrail.scenario import load_any_fabric

    all_of_them = space(job, job.model["transformer"])
    with output.Progress("looking at layouts") as progress:
        found = search(
            job,
            all_of_them.layouts,
            top=asked.top,
            exhaustive=asked.exhaustive,
            progress=progress,
        )
        trials = Trials(job, found.ranked[0].layout) if found.ranked else None
        better = [tuned(trials, one) for one in found.ranked[: asked.schedules] if trials]
    if not found.ranked:
        raise _nothing(job, found)
    best = found.ranked[0]
    tree = _scenario(job, best, folder=None if out is None else out.parent)
    if better and better[0].schedule:
        tree["schedule"] = better[0].schedule
    if out is not None:
        from allrail.files import write_yaml

        write_yaml(out, tree)
    calibrated = load_any_fabric(job.fabric).calibrated
    told = _everything(found, all_of_them) | {"schedules": [_better(one) for one in better]}
    told["notes"] = _of_config(job, best)
    if report is not None:
        more = {"job": _job(job), "calibrated": calibrated, "scenario": tree}
        folders.answer(report, "layouts", told | more)
    if json:
        shown = None if asked.exhaustive else asked.top
        output.print_json(told | {"ranked": told["ranked"][:shown]})
        return
    _show(found, asked.top)
    for one in better:
        output.note(f"{one.ranked.layout.name}: {one.words}")
    _say(job, found, all_of_them, told["notes"])
    output.predicted(["dims"], calibrated=calibrated)
    if out is not None:
        output.note(f"the best is in {out}: `allrail simulate {out}`")


def best_of(job: Job) -> dict[str, Any]:
    """Return the scenario of a job's best layout.

    Args:
        job: What is cut.

    Raises:
        InputError: No layout can be, or none fits.
    """
    from allrail.cli import output
    from allrail.layouts import search, space

    with output.Progress("looking at layouts") as progress:
        found = search(job, space(job, job.model["transformer"]).layouts, top=1, progress=progress)
    if not found.ranked:
        raise _nothing(job, found)
    output.note(f"the best layout: {found.ranked[0].layout.name}")
    return _scenario(job, found.ranked[0])


def _show(found: Found, top: int) -> None:
    """The table."""
    from allrail.cli import output

    best = found.ranked[0]
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


def _say(job: Job, found: Found, all_of_them: Space, notes: list[str]) -> None:
    """What stands beside the table."""
    from allrail.cli import output

    best = found.ranked[0]
    if len(found.ranked) > 1:
        second = found.ranked[1]
        output.note(
            f"the second-best costs {1e3 * (second.step_s - best.step_s):.3g} ms a step,"
            f" {100 * (second.step_s / best.step_s - 1):.1f} %"
        )
    output.note(
        f"{len(all_of_them.layouts)} layouts: {len(found.ranked)} simulated,"
        f" {len(found.pruned)} provably no better, {len(found.too_large)} do not fit even with full"
        f" recomputation, {len(found.refused)} cannot be; {job.global_batch} samples a step"
    )
    if found.pruned:
        bound = found.pruned[0]
        output.note(
            f"of those not simulated the least step is {bound.bound_s:.4g} s or more:"
            f" {bound.layout.name}"
        )
    for why, count in all_of_them.refused.most_common():
        output.note(f"not tried, {count} times: {why}")
    for note in notes:
        output.note(note)


def _of_config(job: Job, best: Ranked) -> list[str]:
    """What was assumed for a Hugging Face model, and what of its file is not read."""
    from allrail.scenario.models import load_model
    from allrail.training import simulate_training

    if "hugging_face" not in load_model(job.model["name"], folder=Path()):
        return []
    notes = simulate_training(_scenario(job, best)).to_dict()["notes"]
    return [note for note in notes if "config.json" in note]


def _scenario(job: Job, best: Ranked, *, folder: Path | None = None) -> dict[str, Any]:
    """The scenario of a layout, for a file in a folder; None: for here."""
    count = best.layout.microbatches(job)
    tree = best.layout.scenario(job, recompute=best.recompute, microbatches=count)
    tree["workload"]["model"] = job.model["name"]
    if folder is not None:
        workload = tree["workload"]
        files = ((tree, "fabric"), (workload, "model"), (workload["compute"], "device"))
        for parent, key in files:
            parent[key] = _seen_from(folder, parent[key])
    return tree


def _seen_from(folder: Path, name: str) -> str:
    """A preset's name as it is; a file that is named from here as a scenario in `folder` does."""
    import os

    from allrail.scenario.models import model_names

    path = Path(name)
    is_file = path.suffix or len(path.parts) > 1 or (path.is_dir() and name not in model_names())
    return os.path.relpath(path, folder) if is_file and not path.is_absolute() else name


def _everything(found: Found, all_of_them: Space) -> dict[str, Any]:
    return {
        "ranked": [_tree(one) for one in found.ranked],
        "layouts": len(all_of_them.layouts),
        "simulated": len(found.ranked),
        "pruned": {one.layout.name: one.bound_s for one in found.pruned},
        "too_large": [one.layout.name for one in found.too_large],
        "refused": {layout.name: one.message for layout, one in found.refused},
        "not_tried": dict(all_of_them.refused),
    }


def _better(one: Tuned) -> dict[str, Any]:
    return {
        "name": one.ranked.layout.name,
        "schedule": one.schedule,
        "step_s": one.ranked.step_s,
        "before_s": one.before_s,
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "model": job.model["name"],
        "fabric": str(job.fabric),
        "npus": job.npus,
        "global_batch": job.global_batch,
        "device": str(job.compute["device"]),
    }


def _tree(one: Ranked) -> dict[str, Any]:
    from dataclasses import asdict

    binding = {"dimension": one.binding[0], "busy": one.binding[1]}
    more = {"name": one.layout.name, "lost": dict(one.lost), "why": one.why, "binding": binding}
    return {**asdict(one), **more}


def _nothing(job: Job, found: Found) -> InputError:
    """Why no layout is left, and what would fit."""
    from allrail.layouts.nothing import nothing_fits

    return nothing_fits(job, found) if found.too_large else found.refused[0][1]
