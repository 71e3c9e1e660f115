"""All layouts of a model on so many NPUs: degrees, mapping, ZeRO stage, pipeline, microbatch.

Tensor parallelism stays on the innermost dimension, and comes with sequence parallelism, which
carries as many bytes and keeps less. What is recomputed is not part of a layout: the least that
fits is taken, as repeating more only adds computing. What cannot be is counted by its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from allrail.errors import InputError
from allrail.layouts.mapping import maps

_MICRO = (1, 2, 4, 8)
_CONTEXT = (1, 2, 4, 8, 16)
_TOKENS = 4_096
"""Tokens of a sample that a rank keeps at least where samples are cut."""


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


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be trained on what.

    Attributes:
        model: As `workload.model` has it.
        fabric: As `fabric` has it.
        npus: How many train.
        inner: NPUs of the innermost dimension.
        global_batch: Samples of a step.
        compute: As `workload.compute` has it.
        precision: Of parameters and activations.
        sequence: Tokens of a sample; None: the model's own.
        dimensions: Sizes of all dimensions, innermost first; empty: no other mapping is tried.
    """

    model: Any
    fabric: Any
    npus: int
    inner: int
    global_batch: int
    compute: dict[str, Any]
    precision: str
    sequence: int | None = None
    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """A way to cut a job.

    Attributes:
        tp: Tensor parallelism, with sequence parallelism.
        pp: Pipeline stages.
        cp: Context parallelism.
        ep: Expert parallelism.
        dp: Replicas.
        zero: The ZeRO stage.
        virtual: Pieces of the model a stage; above 1 the pipeline is interleaved.
        micro: Samples of a microbatch.
        schedule: Of the pipeline, where it is not the one that `virtual` says.
        head: How many layers the embedding and the head count as where layers are shared out.
        shard: Over how many replicas states are cut; 0: over all.
        inside: Which degree lies inside of all others but `tp`; empty: as the core has them.
    """

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    zero: int
    virtual: int
    micro: int
    schedule: str = ""
    head: int = 0
    shard: int = 0
    inside: str = ""

    @property
    def name(self) -> str:
        """In tables."""
        degrees = (("tp", self.tp), ("cp", self.cp), ("ep", self.ep), ("pp", self.pp))
        words = [f"{axis}{size}" for axis, size in degrees if size > 1]
        words.append(f"dp{self.dp}")
        if self.virtual > 1:
            words.append(f"v{self.virtual}")
        if self.schedule:
            words.append(self.schedule)
        if self.head:
            words.append(f"head{self.head}")
        if self.zero:
            words.append(f"zero{self.zero}")
        if self.shard:
            words.append(f"shard{self.shard}")
        if self.inside:
            words.append(f"{self.inside}-inside")
        return ",".join([*words, f"mb{self.micro}"])

    def microbatches(self, job: Job) -> int:
        """Return how many a replica has in a step.

        Args:
            job: What is cut.
        """
        return job.global_batch // (self.dp * self.ep * self.micro)

    def workload(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return what of a workload is this layout's: `batch_per_replica` and `parallelism`.

        Args:
            job: What is cut.
            recompute: What the backward pass computes again.
            microbatches: Of a replica.
        """
        parallelism: dict[str, Any] = {
            "tp": self.tp,
            "pp": self.pp,
            "cp": self.cp,
            "ep": self.ep,
            "dp": self.dp,
            "sp": self.tp > 1,
            "zero": self.zero,
            "microbatches": microbatches,
            "recompute": recompute,
        }
        if self.virtual > 1:
            parallelism |= {"schedule": "interleaved", "virtual_stages": self.virtual}
        if self.schedule:
            parallelism["schedule"] = self.schedule
        if self.head == 1:
            parallelism["ends_as_layers"] = True
        elif self.head:
            layers = int(job.model["transformer"]["layers"])
            parallelism["stages"] = _stages(layers, self.pp * self.virtual, self.head)
        if self.shard:
            parallelism["shard"] = self.shard
        if self.inside:
            degrees = {"tp": self.tp, "cp": self.cp, "ep": self.ep, "pp": self.pp, "dp": self.dp}
            parallelism["map"] = maps(degrees, job.dimensions, job.npus)[self.inside]
        return {"batch_per_replica": self.micro * microbatches, "parallelism": parallelism}

    def scenario(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return the scenario of a step with so many microbatches.

        Args:
            job: What is cut.
            recompute: What the backward pass computes again.
            microbatches: Of a replica.
        """
        workload: dict[str, Any] = {
            "model": job.model,
            **self.workload(job, recompute=recompute, microbatches=microbatches),
            "precision": job.precision,
            "compute": {**job.compute, "must_fit": True},
        }
        if job.precision in ("bf16", "fp16"):
            workload["gradient_precision"] = "fp32"
        if job.sequence is not None:
            workload["sequence_length"] = job.sequence
        return {"schema_version": 1, "fabric": job.fabric, "workload": workload}


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
        job: What is cut.
        sizes: Of its transformer: `layers`, `heads`, `sequence_length`, `experts`.

    Raises:
        InputError: There is none.
    """
    found = Space()
    for degrees in _degrees(job, sizes, found.refused):
        found.layouts.extend(_kinds(job, sizes, degrees, found.refused))
    if not found.layouts:
        raise InputError(
            "no layout gives every replica as many samples",
            source="--global-batch",
            value=str(job.global_batch),
            hint=f"a multiple of {job.npus} suits every layout, smaller powers of two suit some",
        )
    return found


_Degrees = tuple[int, int, int, int, int]


def _degrees(job: Job, sizes: dict[str, Any], refused: Counter[str]) -> Iterator[_Degrees]:
    layers, heads = int(sizes["layers"]), int(sizes["heads"])
    tokens = job.sequence or int(sizes.get("sequence_length") or 0)
    experts = int((sizes.get("experts") or {}).get("count") or 1)
    for tp in _divisors(job.npus):
        if tp > job.inner:
            break
        if heads % tp:
            refused["tensor parallelism divides the heads"] += 1
            continue
        for pp in _divisors(job.npus // tp):
            if pp > layers:
                refused["more stages than layers"] += 1
                continue
            for cp in _CONTEXT:
                if (cp > 1 and tokens // cp < _TOKENS) or job.npus % (tp * pp * cp):
                    continue
                replicas = job.npus // (tp * pp * cp)
                if job.global_batch % replicas:
                    refused["replicas share the samples of a step evenly"] += 1
                    continue
                for ep in _divisors(min(experts, replicas)):
                    if experts % ep or replicas % ep:
                        continue
                    yield tp, pp, cp, ep, replicas // ep


def _kinds(
    job: Job, sizes: dict[str, Any], degrees: _Degrees, refused: Counter[str]
) -> Iterator[Layout]:
    tp, pp, cp, ep, dp = degrees
    layers, samples = int(sizes["layers"]), job.global_batch // (dp * ep)
    axes = {"tp": tp, "cp": cp, "ep": ep, "pp": pp, "dp": dp}
    mappings = ("", *maps(axes, job.dimensions, job.npus))
    for micro in _MICRO:
        if samples % micro:
            refused["microbatches share the samples of a replica evenly"] += 1
            continue
        for schedule in SCHEDULES if pp > 1 else SCHEDULES[:1]:
            if why := schedule.refuses(pp, samples // micro, layers) if pp > 1 else "":
                refused[why] += 1
                continue
            own = "" if schedule == SCHEDULES[0] or schedule.virtual > 1 else schedule.name
            for head in _heads(sizes, layers, pp * schedule.virtual) if pp > 1 else (0,):
                for zero, shard in _zero(job, degrees):
                    for inside in mappings:
                        known = (zero, schedule.virtual, micro, own, head, shard, inside)
                        yield Layout(tp, pp, cp, ep, dp, *known)


def _zero(job: Job, degrees: _Degrees) -> Iterator[tuple[int, int]]:
    """(stage, replicas that share states) that are tried."""
    tp, pp, cp, ep, dp = degrees
    replicas = dp * ep * cp
    yield 0, 0
    if replicas == 1:
        return
    for zero in (1, 2, 3) if pp == 1 else (1,):
        yield zero, 0
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


def _stages(layers: int, pieces: int, head: int) -> list[int]:
    """How many layers each piece has, where the head takes the place of so many of the last."""
    places = layers + head
    counts = [places // pieces + (k < places % pieces) for k in range(pieces)]
    counts[-1] -= head
    return counts


def _divisors(count: int) -> list[int]:
    return [one for one in range(1, count + 1) if count % one == 0]
