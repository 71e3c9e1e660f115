"""All layouts of a model on so many NPUs: degrees, ZeRO stage, pipeline schedule, microbatch.

Tensor parallelism stays on the innermost dimension, and comes with sequence parallelism. ZeRO 3
goes with one pipeline stage, ZeRO 1 with any. What is recomputed is not part of a layout: the least
that fits is taken, as repeating more only adds computing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from allrail.errors import InputError

_MICRO = (1, 2, 4, 8)
_VIRTUAL = (1, 2, 4)
_CONTEXT = (1, 2, 4, 8)
_LONG = 16_384
"""Tokens of a sample from which context parallelism is tried."""


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
    """

    model: Any
    fabric: Any
    npus: int
    inner: int
    global_batch: int
    compute: dict[str, Any]
    precision: str
    sequence: int | None = None


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
    """

    tp: int
    pp: int
    cp: int
    ep: int
    dp: int
    zero: int
    virtual: int
    micro: int

    @property
    def name(self) -> str:
        """In tables."""
        degrees = (("tp", self.tp), ("cp", self.cp), ("ep", self.ep), ("pp", self.pp))
        words = [f"{axis}{size}" for axis, size in degrees if size > 1]
        words.append(f"dp{self.dp}")
        if self.virtual > 1:
            words.append(f"v{self.virtual}")
        if self.zero:
            words.append(f"zero{self.zero}")
        return ",".join([*words, f"mb{self.micro}"])

    def microbatches(self, job: Job) -> int:
        """Return how many a replica has in a step.

        Args:
            job: What is cut.
        """
        return job.global_batch // (self.dp * self.ep * self.micro)

    def scenario(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return the scenario of a step with so many microbatches.

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
        workload: dict[str, Any] = {
            "model": job.model,
            "batch_per_replica": self.micro * microbatches,
            "precision": job.precision,
            "parallelism": parallelism,
            "compute": {**job.compute, "must_fit": True},
        }
        if job.precision in ("bf16", "fp16"):
            workload["gradient_precision"] = "fp32"
        if job.sequence is not None:
            workload["sequence_length"] = job.sequence
        return {"schema_version": 1, "fabric": job.fabric, "workload": workload}


def layouts(job: Job, sizes: dict[str, Any]) -> list[Layout]:
    """Return all layouts of a job.

    Args:
        job: What is cut.
        sizes: Of its transformer: `layers`, `heads`, `sequence_length`, `experts`.

    Raises:
        InputError: There is none.
    """
    found = list(_layouts(job, sizes))
    if not found:
        raise InputError(
            "no layout gives every replica as many samples",
            source="--global-batch",
            value=str(job.global_batch),
            hint=f"a multiple of {job.npus} suits every layout, smaller powers of two suit some",
        )
    return found


def _layouts(job: Job, sizes: dict[str, Any]) -> Iterator[Layout]:
    layers, heads = int(sizes["layers"]), int(sizes["heads"])
    tokens = job.sequence or int(sizes.get("sequence_length") or 0)
    experts = int((sizes.get("experts") or {}).get("count") or 1)
    for tp in _divisors(min(job.inner, job.npus)):
        if heads % tp or job.npus % tp:
            continue
        for pp in _divisors(job.npus // tp):
            if pp > layers:
                continue
            for cp in _CONTEXT if tokens >= _LONG else _CONTEXT[:1]:
                if job.npus % (tp * pp * cp):
                    continue
                replicas = job.npus // (tp * pp * cp)
                if job.global_batch % replicas:
                    continue
                for ep in _divisors(min(experts, replicas)):
                    if experts % ep or replicas % ep:
                        continue
                    yield from _kinds(job, layers, (tp, pp, cp, ep, replicas // ep))


def _kinds(job: Job, layers: int, degrees: tuple[int, int, int, int, int]) -> Iterator[Layout]:
    tp, pp, cp, ep, dp = degrees
    samples = job.global_batch // (dp * ep)
    for micro in _MICRO:
        if samples % micro or (pp > 1 and samples // micro < pp):
            continue
        for virtual in _VIRTUAL:
            if virtual > 1 and (pp == 1 or pp * virtual > layers or samples // micro % pp):
                continue
            for zero in (0, 1, 3) if pp == 1 else (0, 1):
                if zero and dp * ep == 1:
                    continue
                yield Layout(tp, pp, cp, ep, dp, zero, virtual, micro)


def _divisors(count: int) -> list[int]:
    return [one for one in range(1, count + 1) if count % one == 0]
