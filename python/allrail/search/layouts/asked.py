"""What `allrail plan --model` and its kin are asked for: a job, and how far its ranking goes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.scenario import Fabric, GraphFabric, ScenarioLike, load_any_fabric, load_scenario
from allrail.scenario.dimensions import dimensions_of
from allrail.scenario.models import load_model, transformer_of
from allrail.scenario.overrides import Sets, parse_sets
from allrail.scenario.places import show_path
from allrail.search.layouts.fixed import parse_fixed
from allrail.search.layouts.layout import HEADROOM, Job
from allrail.search.layouts.mapping import block
from allrail.search.layouts.tools import TOOLS


@dataclass(frozen=True, slots=True)
class OfModel:
    """A job that is still to be laid out, as its options say it.

    Attributes:
        model: A preset, a `config.json` or a file.
        fabric: A preset or a file.
        npus: How many train.
        global_batch: Samples of a step; None: one an NPU.
        sequence: Tokens of a sample; None: the model's own.
        device: What computes; None: what the fabric names, else an H100.
        precision: Of parameters and activations; None: bf16, where the device has it.
        recipe: In how many bits products with weights are computed; None: in the precision.
        launch: How kernels get to the device; None: as the tool does it.
    """

    model: str | None
    fabric: str | None
    npus: int | None
    global_batch: int | None
    sequence: int | None
    device: str | None
    precision: str | None = None
    recipe: str | None = None
    launch: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """How far a ranking goes, and of what.

    Attributes:
        top: How many rows are shown.
        exhaustive: Whether layouts are simulated that cannot be among these rows.
        schedules: For how many of the best other schedules of communication are tried.
        tool: Which tool has to be able to do it.
        fix: What of a layout is given, as `--fix` takes it.
        headroom: Per cent of an NPU's memory that stay free.
        score: A layout that is judged beside the others.
        budget: Seconds that it may take.
        sets: Overrides of the scenario.
    """

    top: int = 10
    exhaustive: bool = False
    schedules: int = 1
    tool: str = "any"
    fix: tuple[str, ...] = ()
    headroom: float | None = None
    score: Path | None = None
    budget: float | None = None
    sets: tuple[str, ...] = ()


def texts_of(sets: Sets) -> tuple[str, ...]:
    """Return overrides as texts, `a.b=value`.

    Args:
        sets: A mapping, or such texts.
    """
    if isinstance(sets, Mapping):
        return tuple(f"{path}={json.dumps(value)}" for path, value in sets.items())
    return tuple(sets)


def job_of(
    file: ScenarioLike | None, asked: OfModel, *, example: str, more: Asked | None = None
) -> Job | ScenarioLike:
    """Return what is to be laid out, or FILE, where that is given instead.

    Args:
        file: What else may be given.
        asked: By the options.
        example: Of a command that is right, for the hint.
        more: What else is asked of layouts.

    Raises:
        InputError: Neither or half of it is given; the fabric has fewer NPUs; the model's layers
            are not said.
    """
    model, fabric, npus = asked.model, asked.fabric, asked.npus
    if model is None and fabric is None and npus is None:
        if file is None:
            raise InputError(
                "there is nothing to look at",
                hint="name a scenario's FILE, or --model, --fabric and --npus",
            )
        for name in ("global_batch", "sequence", "device", "precision", "recipe", "launch"):
            if getattr(asked, name) is not None:
                raise InputError(
                    "FILE says it itself",
                    field=name,
                    hint="leave it out, or name --model, --fabric and --npus in place of FILE",
                )
        return file
    if model is None or fabric is None or npus is None or file is not None:
        raise InputError(
            "a model is laid out by --model, --fabric and --npus together, without FILE",
            hint=example,
        )
    settable, more = more is not None, more or Asked()
    _check_sets(more.sets)
    loaded = _fabric_of(fabric, more.sets)
    dimensions = dimensions_of(loaded, counted=True)
    if npus > dimensions.npus:
        raise InputError(
            "the fabric has fewer",
            source="--npus",
            value=str(npus),
            hint=f"`{fabric}` has {dimensions.npus:,}"
            + (_longer(loaded, npus) if settable else ""),
        )
    sizes = transformer_of(load_model(model, folder=Path()))
    if sizes is None:
        raise InputError(
            "its layers and heads are not said",
            source="--model",
            value=model,
            hint="name a preset, a `config.json`, or a file with `transformer`",
        )
    launch = TOOLS[more.tool].launch if more.tool in TOOLS else _LAUNCH
    device, precision, assumed = _computes(asked, loaded)
    return Job(
        model={"transformer": sizes, "name": model},
        fabric=fabric,
        npus=npus,
        inner=dimensions.dimensions[0].size,
        global_batch=asked.global_batch or npus,
        compute={
            "device": device,
            "launch": asked.launch or launch,
            **({"recipe": asked.recipe} if asked.recipe else {}),
        },
        precision=precision,
        sequence=asked.sequence,
        dimensions=tuple(one.size for one in dimensions.dimensions),
        tool=more.tool,
        headroom=HEADROOM if more.headroom is None else more.headroom / 100,
        fixed=parse_fixed(more.fix),
        sets=more.sets,
        assumed=(*assumed, *_placed(dimensions, npus)),
    )


_DEVICE = "h100"
"""Where neither an option nor the fabric names one: chosen, as most that is asked is of it."""
_LAUNCH = "compiled"
"""Where neither an option nor a tool says how kernels are launched."""
_NO_BF16 = ("v100",)
"""CUDA C++ Programming Guide: bf16 from compute capability 8.0 on."""


def _computes(asked: OfModel, fabric: Fabric | GraphFabric) -> tuple[str, str, tuple[str, ...]]:
    """Return the device and the precision of a job, and what of that nobody asked for."""
    device, assumed = asked.device, []
    if device is None and fabric.device is not None:
        device = fabric.device
        assumed.append(f"device: {device}, which the fabric `{asked.fabric}` names (--device)")
    elif device is None:
        device = _DEVICE
        assumed.append(
            f"device: {device}, assumed: the fabric `{asked.fabric}` names none (--device)"
        )
    precision = asked.precision
    if precision is None:
        precision = "fp16" if device in _NO_BF16 else "bf16"
        if precision != "bf16":
            assumed.append(f"precision: {precision}, as {device} has no bf16 (--precision)")
    return device, precision, tuple(assumed)


def _placed(fabric: Fabric, npus: int) -> list[str]:
    """Say which NPUs a job takes where it does not fill one dimension after the other."""
    sizes = [one.size for one in fabric.dimensions]
    parts = block(sizes, npus)
    if parts is None:
        return []
    last = max((at for at, part in enumerate(parts) if part > 1), default=0)
    if all(part == size for part, size in zip(parts[:last], sizes, strict=False)):
        return []
    taken, has = (" x ".join(map(str, some)) for some in (parts, sizes))
    words = f"the {npus:,} NPUs do not fill whole machines: {taken} of {has} are taken, or another"
    return [words + " split that keeps `tp` together"]


def _longer(fabric: Fabric | GraphFabric, npus: int) -> str:
    """How to have so many NPUs of it: a longer outermost dimension, where that divides them."""
    if not isinstance(fabric, Fabric):
        return ""
    inner = fabric.npus // fabric.dimensions[-1].size
    if npus % inner:
        return ""
    last = len(fabric.dimensions) - 1
    return f"; `--set 'fabric.dimensions[{last}].size={npus // inner}'` makes it longer"


_OWN = {
    "workload.model": "`--model`",
    "fabric": "`--fabric`",
    "network_model": "leave it out: layouts are ranked in `dims`",
    "workload.global_batch": "`--global-batch`",
    "workload.batch_per_replica": "`--global-batch`",
    "workload.micro_batch": "`--fix micro_batch=2`",
    "workload.sequence_length": "`--sequence`",
    "workload.precision": "`--precision`",
    "workload.compute.device": "`--device`",
    "workload.compute.recipe": "`--recipe`",
    "workload.compute.launch": "`--launch`",
    "workload.parallelism.microbatches": "`--fix micro_batch=2`",
    "workload.parallelism": "`--fix tp=8,pp=4`",
    "workload.parallelism.map": "leave it out: mappings are searched",
    **{
        f"workload.parallelism.{key}": f"`--fix {key}=...`"
        for key in ("tp", "cp", "ep", "pp", "dp", "zero", "shard", "schedule", "recompute")
    },
    "workload.parallelism.virtual_stages": "`--fix virtual_stages=2`",
    **{
        f"workload.parallelism.{key}": "leave it out: it is searched"
        for key in ("sp", "stages", "ends_as_layers")
    },
}
"""What a layout or another option decides, and what to say instead."""


def _check_sets(sets: Sequence[str]) -> None:
    """Refuse overrides of what is searched or has an option of its own."""
    for path, _, _ in parse_sets(sets):
        text = show_path(path)
        if text in _OWN:
            instead = _OWN[text]
            raise InputError(
                "a layout or another option says it",
                source="--set",
                value=text,
                hint=instead if instead.startswith("leave") else f"use {instead}",
            )


def _fabric_of(fabric: str, sets: Sequence[str]) -> Any:
    """The network, with what `--set` changes of it."""
    own = [one for one in sets if one.lstrip().startswith("fabric.")]
    if not own:
        return load_any_fabric(fabric)
    blank = {"schema_version": 1, "fabric": fabric}
    blank["collective"] = {"kind": "all_reduce", "size": "1 MiB"}
    return load_scenario(blank, sets=own).fabric
