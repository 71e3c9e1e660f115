"""All layouts of a model on so many NPUs: degrees, mapping, ZeRO stage, pipeline, microbatch.

Tensor parallelism stays on the innermost dimension, and comes with sequence parallelism, which
carries as many bytes and keeps less. What is recomputed is not part of a layout: the least that
fits is taken, as repeating more only adds computing. What cannot be is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from allrail.base.errors import InputError, did_you_mean
from allrail.search.layouts.layout import Cut, Job, Layout, overridden
from allrail.search.layouts.mapping import maps, numberings
from allrail.search.layouts.tools import ANY, TOOLS

_MICRO = (1, 2, 4, 8)
_CONTEXT = (1, 2, 4, 8, 16)
_TOKENS = 4_096
"""Tokens of a sample that a rank keeps at least where samples are cut."""
_SHARES = "replicas share the samples of a step evenly"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A pipeline's schedule, and what it asks for.

    Attributes:
        name: As `schedule` has it.
        virtual: Pieces of the model a stage.
        in_groups: Whether microbatches come in groups of as many as there are stages.
        even: Whether stages and microbatches come in pairs.
        least: Microbatches a stage at least.
    """

    name: str
    virtual: int = 1
    in_groups: bool = False
    even: bool = False
    least: int = 1

    def refuses(self, stages: int, microbatches: int, layers: int) -> str:
        """Return why it does not run so; empty if it does.

        Args:
            stages: Of the pipeline.
            microbatches: Of a replica.
            layers: Of the model.
        """
        if stages * self.virtual > layers:
            return "more pieces of the model than layers"
        if microbatches < self.least * stages:
            return "fewer microbatches than the pipeline needs"
        if self.in_groups and microbatches % stages:
            return f"microbatches of `{self.name}` come in groups of as many as stages"
        if self.even and (stages % 2 or microbatches % 2):
            return f"`{self.name}` pairs stages, and microbatches"
        return ""


SCHEDULES = (
    Schedule("1f1b"),
    Schedule("interleaved", virtual=2, in_groups=True),
    Schedule("interleaved", virtual=4, in_groups=True),
    Schedule("zero_bubble"),
    Schedule("dual_pipe", even=True, least=2),
)
"""What is tried; GPipe keeps more than 1F1B and takes as long."""

_NAMED = (Schedule("gpipe"), Schedule("chimera", even=True))
"""What is tried where it is asked for alone."""


@dataclass(slots=True)
class Space:
    """What can be, and how much cannot.

    Attributes:
        layouts: All that can be.
        refused: How many combinations cannot, by the reason.
    """

    layouts: list[Layout] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


def space(job: Job, sizes: dict[str, Any]) -> Space:
    """Return all layouts of a job, and why others cannot be.

    Args:
        job: What is cut, by which tool, and what of it is fixed.
        sizes: Of its transformer: `layers`, `heads`, `sequence_length`, `experts`.

    Raises:
        InputError: There is none.
    """
    _check_degrees(job)
    found = Space()
    lacking: Counter[str] = Counter()
    for degrees in _degrees(job, sizes, found.refused):
        for layout in _kinds(job, sizes, degrees, found.refused):
            if why := lacks(job, layout):
                lacking[why] += 1
                found.refused[f"{TOOLS[job.tool].title} has not what they need"] += 1
            else:
                found.layouts.append(layout)
    if not found.layouts:
        raise _nothing(job, found.refused, lacking)
    return found


def _check_degrees(job: Job) -> None:
    """Refuse fixed degrees that do not divide the NPUs."""
    axes = [job.fixed.get(axis, 1) for axis in ("tp", "cp", "ep", "pp", "dp")]
    if job.npus % prod(axes):
        raise _no_degrees(job)


def _no_degrees(job: Job) -> InputError:
    return InputError(
        "no layout has these degrees",
        source="--fix",
        value=",".join(f"{key}={value}" for key, value in job.fixed.items()),
        hint=f"tp * cp * ep * pp * dp are the {job.npus:,} NPUs of --npus",
    )


def lacks(job: Job, layout: Cut, *, recompute: str | None = None, tool: str = "") -> str:
    """Return what of a layout a tool has not; empty if it has all.

    Args:
        job: What is cut.
        layout: How.
        recompute: What is computed again; None: what the tool has.
        tool: Which; the job's if empty.
    """
    name = tool or job.tool
    if name == ANY:
        return ""
    count = layout.microbatches(job)
    tree = layout.scenario(job, recompute=recompute or "none", microbatches=count)
    workload = overridden(tree, job.sets)["workload"] if job.sets else tree["workload"]
    inside = numberings(workload["parallelism"], job.dimensions, job.npus)
    return TOOLS[name].lacks(workload, sizes=job.sizes, numberings=inside)


def tools_of(job: Job, layout: Cut, recompute: str) -> tuple[str, ...]:
    """Return the tools that can do a layout.

    Args:
        job: What is cut.
        layout: How.
        recompute: What is computed again.
    """
    return tuple(name for name in TOOLS if not lacks(job, layout, recompute=recompute, tool=name))


def _nothing(job: Job, refused: Counter[str], lacking: Counter[str]) -> InputError:
    """Why no layout is left."""
    if lacking:
        [(why, _)] = lacking.most_common(1)
        return InputError(
            f"no layout is left: {why}",
            source="--for",
            value=job.tool,
            hint="`--for any` includes what no tool has; or fix less, and set less",
        )
    shares = refused.pop(_SHARES, 0)
    if refused and job.fixed:
        [(why, _)] = refused.most_common(1)
        return InputError(
            f"no layout is left: {why}",
            source="--fix",
            value=",".join(f"{key}={value}" for key, value in job.fixed.items()),
            hint="fix less",
        )
    if job.fixed and not shares:
        return _no_degrees(job)
    return InputError(
        "no layout gives every replica as many samples",
        source="--global-batch",
        value=str(job.global_batch),
        hint=f"a multiple of {job.npus} suits every layout, smaller powers of two suit some",
    )


_Degrees = tuple[int, int, int, int, int]


def _degrees(job: Job, sizes: dict[str, Any], refused: Counter[str]) -> Iterator[_Degrees]:
    layers, heads = int(sizes["layers"]), int(sizes["heads"])
    tokens = job.sequence or int(sizes.get("sequence_length") or 0)
    experts = int((sizes.get("experts") or {}).get("count") or 1)
    fixed = job.fixed
    for tp in _one_of(fixed, "tp", [tp for tp in _divisors(job.npus) if tp <= job.inner]):
        if heads % tp:
            refused["tensor parallelism divides the heads"] += 1
            continue
        if job.npus % tp:
            continue
        for pp in _one_of(fixed, "pp", _divisors(job.npus // tp)):
            if pp > layers:
                refused["more stages than layers"] += 1
                continue
            usual = [cp for cp in _CONTEXT if cp == 1 or tokens // cp >= _TOKENS]
            for cp in _one_of(fixed, "cp", usual):
                if job.npus % (tp * pp * cp):
                    continue
                replicas = job.npus // (tp * pp * cp)
                if job.global_batch % replicas:
                    refused[_SHARES] += 1
                    continue
                for ep in _one_of(fixed, "ep", _divisors(min(experts, replicas))):
                    if experts % ep or replicas % ep:
                        continue
                    if fixed.get("dp", replicas // ep) == replicas // ep:
                        yield tp, pp, cp, ep, replicas // ep


def _one_of(fixed: Mapping[str, Any], key: str, usual: Sequence[int]) -> Sequence[int]:
    """What is tried: what is fixed, or the usual."""
    return [fixed[key]] if key in fixed else usual


def _kinds(
    job: Job, sizes: dict[str, Any], degrees: _Degrees, refused: Counter[str]
) -> Iterator[Layout]:
    tp, pp, cp, ep, dp = degrees
    layers, samples = int(sizes["layers"]), job.global_batch // (dp * ep)
    axes = {"tp": tp, "cp": cp, "ep": ep, "pp": pp, "dp": dp}
    mappings = ("", *maps(axes, job.dimensions, job.npus))
    schedules = _schedules(job.fixed) if pp > 1 else SCHEDULES[:1]
    for micro in _one_of(job.fixed, "micro_batch", _MICRO):
        if samples % micro:
            refused["microbatches share the samples of a replica evenly"] += 1
            continue
        for schedule in schedules:
            if why := schedule.refuses(pp, samples // micro, layers) if pp > 1 else "":
                refused[why] += 1
                continue
            own = "" if schedule == SCHEDULES[0] or schedule.virtual > 1 else schedule.name
            for head in _heads(sizes, layers, pp * schedule.virtual) if pp > 1 else (0,):
                for zero, shard in _zero(job, degrees):
                    for inside in mappings:
                        known = (zero, schedule.virtual, micro, own, head, shard, inside)
                        yield Layout(tp, pp, cp, ep, dp, *known)


def _schedules(fixed: Mapping[str, Any]) -> list[Schedule]:
    """Those that are tried: of what is fixed, or the usual."""
    name, virtual = fixed.get("schedule"), fixed.get("virtual_stages")
    if name is None:
        known = list(SCHEDULES)
    else:
        known = [one for one in (*SCHEDULES, *_NAMED) if one.name == name]
        if not known:
            names = list(dict.fromkeys(one.name for one in (*SCHEDULES, *_NAMED)))
            raise InputError(
                "plans have no such schedule of a pipeline",
                source="--fix",
                value=f"schedule={name}",
                hint=did_you_mean(str(name), names),
            )
    if virtual is None:
        return known
    found = [one for one in known if one.virtual == virtual]
    if found or virtual == 1:
        return found
    # As many pieces as nobody tries unasked, of what has pieces.
    pieces = [one for one in known if one.virtual > 1]
    return list(dict.fromkeys(replace(one, virtual=virtual) for one in pieces))


def _zero(job: Job, degrees: _Degrees) -> Iterator[tuple[int, int]]:
    """(stage, replicas that share states) that are tried."""
    tp, pp, cp, ep, dp = degrees
    replicas = dp * ep * cp
    zero, shard = job.fixed.get("zero"), job.fixed.get("shard")
    if zero is not None or shard is not None:
        stages = (1, 2, 3) if zero is None else (zero,)
        for stage in stages if replicas > 1 else (0,):
            yield stage, shard if stage and shard and shard < replicas else 0
        return
    yield 0, 0
    if replicas == 1:
        return
    staged = TOOLS[job.tool].sharded if job.tool in TOOLS else (0, 1)
    for stage in (1, 2, 3) if pp == 1 else staged[1:]:
        yield stage, 0
    near = job.inner // tp
    if pp == 1 and ep == 1 and 1 < near < replicas and replicas % near == 0:
        yield 3, near


def _heads(sizes: dict[str, Any], layers: int, pieces: int) -> tuple[int, ...]:
    """What the ends may count as: nothing, a layer each, or as many layers as the head computes."""
    hidden = int(sizes.get("hidden") or 1)
    worth = round(int(sizes.get("vocabulary") or 0) / (12 * hidden))
    found = [0]
    if layers + 2 >= 2 * pieces:
        found.append(1)
    if worth > 1 and (layers + worth) // pieces > worth:
        found.append(worth)
    return tuple(found)


def _divisors(count: int) -> list[int]:
    return [one for one in range(1, count + 1) if count % one == 0]
