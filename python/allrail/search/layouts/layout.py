"""A job, and one way to cut it: degrees, ZeRO stage, pipeline, microbatch, mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from allrail.scenario.overrides import apply, parse_sets
from allrail.scenario.places import Places
from allrail.scenario.presets import read_fabric
from allrail.search.layouts.mapping import maps
from allrail.search.layouts.tools import ANY

HEADROOM = 0.05
"""The part of an NPU's memory that a layout leaves free: chosen. Workspaces of libraries, whose
sizes nobody states, and the fullest of many NPUs, which is not the one computed, need some."""


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
        tool: Which tool has to be able to do it, of `TOOLS`; `any`: none in particular.
        headroom: The part of an NPU's memory that stays free.
        fixed: What of a layout is given (`fixed.KEYS`).
        sets: Overrides of the scenario, as `--set` takes them.
        assumed: What of it nobody asked for, and why it is so.
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
    tool: str = ANY
    headroom: float = HEADROOM
    fixed: Mapping[str, Any] = field(default_factory=dict)
    sets: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def sizes(self) -> dict[str, Any]:
        """The transformer's sizes, with the tokens of a sample."""
        sizes: dict[str, Any] = dict(self.model["transformer"])
        if self.sequence is not None:
            sizes["sequence_length"] = self.sequence
        return sizes


class Cut(Protocol):
    """A way to cut a job: a `Layout`, or one that somebody has written (`Given`)."""

    @property
    def name(self) -> str:
        """In tables."""
        ...

    @property
    def kinds(self) -> int:
        """How many kinds of parallelism it has."""
        ...

    @property
    def pp(self) -> int:
        """Stages of its pipeline."""
        ...

    def microbatches(self, job: Job) -> int:
        """Return how many a replica has in a step."""
        ...

    def workload(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return what of a workload is this cut's."""
        ...

    def scenario(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return the scenario of a step."""
        ...


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
    def kinds(self) -> int:
        """How many kinds of parallelism it has."""
        return sum(size > 1 for size in (self.tp, self.cp, self.ep, self.pp, self.dp))

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
        own = self.workload(job, recompute=recompute, microbatches=microbatches)
        return scenario_of(job, own)


def scenario_of(job: Job, own: Mapping[str, Any], *, must_fit: bool = True) -> dict[str, Any]:
    """Return the scenario of a job that is cut so; without the job's `sets`.

    Args:
        job: What is cut.
        own: How: `batch_per_replica` and `parallelism`.
        must_fit: Whether what does not fit the memory is refused.
    """
    workload: dict[str, Any] = {
        "model": job.model,
        **own,
        "precision": job.precision,
        "compute": {**job.compute, **({"must_fit": True} if must_fit else {})},
    }
    if job.precision in ("bf16", "fp16"):
        workload["gradient_precision"] = "fp32"
    if job.sequence is not None:
        workload["sequence_length"] = job.sequence
    return {"schema_version": 1, "fabric": job.fabric, "workload": workload}


def overridden(tree: dict[str, Any], sets: Sequence[str]) -> dict[str, Any]:
    """Return a scenario's tree with overrides; its fabric is written out where they reach into it.

    Args:
        tree: The scenario.
        sets: Overrides, as `--set` takes them.

    Raises:
        InputError: One is malformed.
    """
    for path, value, place in parse_sets(sets):
        if path[0] == "fabric" and isinstance(tree["fabric"], str):
            tree = {**tree, "fabric": read_fabric(tree["fabric"], folder=Path())[0]}
        tree = apply(tree, path, value, place=place, places=Places())
    return tree


def _stages(layers: int, pieces: int, head: int) -> list[int]:
    """How many layers each piece has, where the head takes the place of so many of the last."""
    places = layers + head
    counts = [places // pieces + (k < places % pieces) for k in range(pieces)]
    counts[-1] -= head
    return counts
