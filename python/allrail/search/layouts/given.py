"""`--score layout.yaml`: a layout that somebody has written, judged beside those that were found.

The file is a scenario, of which `workload.parallelism` and the samples of a microbatch count, or a
mapping of the keys of `workload.parallelism`, with `micro_batch` beside them. Model, network, batch
and device are the job's: only so is one layout compared with another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from allrail.base.errors import InputError
from allrail.base.stdin import stem
from allrail.base.units import show_count, show_number
from allrail.scenario.text import read_file
from allrail.search.layouts.layout import Job, scenario_of
from allrail.search.layouts.tools import DEFAULTS
from allrail.search.layouts.trial import RECOMPUTED, Bounded, Ranked, TooLarge, Trials

_AXES = ("tp", "cp", "ep", "pp", "dp", "op")


@dataclass(frozen=True, slots=True)
class Given:
    """A layout as a file says it.

    Attributes:
        name: The file's name, without its ending.
        parallelism: As `workload.parallelism` has it, with `dp`.
        micro: Samples of a microbatch.
    """

    name: str
    parallelism: Mapping[str, Any]
    micro: int

    @property
    def kinds(self) -> int:
        """How many kinds of parallelism it has."""
        return sum(int(self.parallelism.get(axis) or 1) > 1 for axis in _AXES)

    @property
    def pp(self) -> int:
        """Stages of its pipeline."""
        return int(self.parallelism.get("pp") or 1)

    @property
    def recompute(self) -> str:
        """What its backward pass computes again."""
        return str(self.parallelism.get("recompute") or DEFAULTS["recompute"])

    def microbatches(self, job: Job) -> int:
        """Return how many a replica has in a step.

        Args:
            job: What is cut.
        """
        replicas = int(self.parallelism["dp"]) * int(self.parallelism.get("ep") or 1)
        return job.global_batch // (replicas * self.micro)

    def workload(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return what of a workload is this layout's: `batch_per_replica` and `parallelism`.

        Args:
            job: What is cut.
            recompute: What the backward pass computes again.
            microbatches: Of a replica.
        """
        del job
        own = {**self.parallelism, "microbatches": microbatches, "recompute": recompute}
        return {"batch_per_replica": self.micro * microbatches, "parallelism": own}

    def scenario(self, job: Job, *, recompute: str, microbatches: int) -> dict[str, Any]:
        """Return the scenario of a step with so many microbatches, whether it fits or not.

        Args:
            job: What is cut.
            recompute: What the backward pass computes again.
            microbatches: Of a replica.
        """
        own = self.workload(job, recompute=recompute, microbatches=microbatches)
        return scenario_of(job, own, must_fit=False)


def read_given(path: Path, job: Job) -> Given:
    """Read a layout.

    Args:
        path: A scenario, or a mapping of `workload.parallelism`'s keys.
        job: What is cut.

    Raises:
        InputError: It cannot be read; its degrees do not make the job's NPUs, or its replicas do
            not share the job's samples evenly.
    """
    tree, _ = read_file(path)
    if not isinstance(tree, Mapping):
        raise _wrong(path, "it is not a mapping")
    if "schema_version" in tree and "workload" not in tree:
        raise _wrong(path, "it is a scenario without a `workload`")
    workload = tree.get("workload", {"parallelism": tree.get("parallelism", tree)})
    if not isinstance(workload, Mapping) or not isinstance(workload.get("parallelism"), Mapping):
        raise _wrong(path, "it has no `workload.parallelism`")
    said = {key: value for key, value in workload["parallelism"].items() if value is not None}
    micro = said.pop("micro_batch", workload.get("micro_batch"))
    try:
        degrees = {axis: int(said.get(axis) or 1) for axis in _AXES}
        cut = prod(size for axis, size in degrees.items() if axis != "dp")
        dp = int(said.get("dp") or max(1, job.npus // cut))
        replicas = dp * degrees["ep"]
        if micro is None:
            micro = _micro(workload, said, job, replicas, degrees["pp"])
        micro = int(micro)
    except (TypeError, ValueError):
        raise _wrong(path, "a degree or a number of samples is no whole number") from None
    if cut * dp != job.npus:
        raise InputError(
            f"its degrees make {show_count(cut * dp, 'NPU')}, and --npus is {job.npus:,}",
            source=str(path),
            hint="change `dp`, or --npus",
        )
    if micro < 1 or job.global_batch % (replicas * micro):
        raise InputError(
            f"{replicas:,} replicas with microbatches of {micro} do not share {job.global_batch:,}"
            " samples evenly",
            source=str(path),
            hint="change `micro_batch`, or --global-batch",
        )
    return Given(stem(path), {**said, "dp": dp}, micro)


def _micro(
    workload: Mapping[str, Any], said: Mapping[str, Any], job: Job, replicas: int, stages: int
) -> int:
    """Samples of a microbatch, where the file says how many microbatches there are."""
    own = int(workload.get("batch_per_replica") or 0)
    if not own:
        own = int(workload.get("global_batch") or job.global_batch) // replicas
    return max(1, own // int(said.get("microbatches") or stages))


def score(job: Job, given: Given) -> Ranked | InputError:
    """Simulate a layout that somebody has written, whether it fits or not.

    Args:
        job: What is cut.
        given: The layout; what it is refused for is the answer.
    """
    own = Trials(job, given)
    if given.recompute not in RECOMPUTED:
        return InputError("no such way to recompute", field="recompute", value=given.recompute)
    [found] = own.bounds([given], given.recompute)
    if isinstance(found, InputError):
        return found
    if isinstance(found, TooLarge):
        found = Bounded(given, given.recompute, 0.0, found.needed / 1e9, found.capacity / 1e9)
    [outcome] = own.simulate([found])
    return outcome


def why_it_loses(mine: Ranked, best: Ranked) -> str:
    """Return what a layout loses to another, largest first, in words.

    Seconds by kind: communication that is not hidden, the pipeline's bubble, and computing, which
    is what remains: more of it is recomputed, uneven or in smaller kernels.

    Args:
        mine: The layout.
        best: The other.
    """

    def parts(one: Ranked) -> dict[str, float]:
        found = {what: share * one.step_s for what, share in one.lost}
        return {**found, "computing": one.step_s - sum(found.values())}

    ours, theirs = parts(mine), parts(best)
    more = {what: time - theirs.get(what, 0.0) for what, time in ours.items()}
    for what, time in theirs.items():
        more.setdefault(what, -time)
    gap = mine.step_s - best.step_s
    large = sorted(more.items(), key=lambda one: -abs(one[1]))
    told = [
        f"{what} {'+' if time > 0 else '-'}{show_number(abs(time), 3)} s"
        for what, time in large
        if abs(time) >= max(0.05 * abs(gap), 1e-6)
    ]
    return ", ".join(told[:4]) or "nothing in particular"


def _wrong(path: Path, why: str) -> InputError:
    return InputError(
        why,
        source=str(path),
        hint="a scenario as `allrail plan --out` writes it, or keys such as `tp: 8` and `dp: 4`",
    )
