"""Tuning while it trains: what the job ends with, beside what it began with.

Begun is with the partition that follows from the fabric, and with one that a careless user sets.
What tuning ends with and what it began with then take turns in the same processes.
"""

from __future__ import annotations

import math
from typing import Any

from figures import Figure, Interval
from job import Worker, run_on
from steps import CASES, Case, slowest
from ways import Scheduled, Way, model_of, take_turns

import allrail.torch as art
from allrail.search.tuning.live import TRIALS
from allrail.torch import timed

_PROFILES = ("vgg16", "resnet50", "bert")
_BEGUN: tuple[str | None, ...] = (None, "16 MiB")
"""Partitions."""


class _Tuned(Way):
    """A job that tunes itself, by the job file."""

    name = "tuned"

    def __init__(self, model: Any, begun: str | None, worker: Worker) -> None:
        super().__init__(model)
        tensor = {"policy": "bytescheduler", **({"partition": begun} if begun else {})}
        worker.use_job_file(schedule={"tensor": tensor})
        art.schedule(model, self.optimizer, tune=True)
        settings = art._of(model)[0].record()["settings"]
        self.begun = {"partition": settings["partition"]}

    def settle(self) -> None:
        """Make all steps."""
        art.synchronize(self.model)

    @property
    def ended(self) -> tuple[str, dict[str, Any]]:
        """What was said of it, and its settings."""
        switch = art._of(self.model)[0]._auto
        return switch.said, dict(switch._sets)


def run(*, blocks: int, steps: int) -> list[Figure]:
    """Tune every profile from every beginning.

    Args:
        blocks: How many count.
        steps: Of each way in a block.
    """
    found, gains = [], []
    for name in _PROFILES:
        for begun in _BEGUN:
            figure = _one(CASES[name], begun, blocks=blocks, steps=steps)
            found.append(figure)
            gains.append(figure.seen.median)
    mean = math.exp(sum(map(math.log, gains)) / len(gains))
    return [*found, Figure("tune", "geometric mean", Interval(mean, mean, mean))]


def _one(case: Case, begun: str | None, *, blocks: int, steps: int) -> Figure:
    def work(worker: Worker) -> dict[str, Any]:
        def model() -> Any:
            return model_of(case.model, case.scale, case.compute, worker.rank)

        job = _Tuned(model(), begun, worker)
        job.run(TRIALS * (timed.WARM + timed.STEPS) + 1)
        job.check(worker.ranks)
        said, sets = job.ended
        art.release(job.model)
        ways: list[Way] = [
            Scheduled(model(), worker, **job.begun),
            Scheduled(model(), worker, **{**job.begun, **sets}),
        ]
        ways[0].name, ways[1].name = "begun", "ended"
        take_turns(ways, blocks=blocks, steps=steps, ranks=worker.ranks)
        for way in ways:
            way.close()
        return {"said": said, "times": {way.name: (way.times, way.cpu) for way in ways}}

    answers = run_on([case.network], work)
    both = slowest([one["times"] for one in answers])
    pairs = [
        (ended, begun) for (ended, _), (begun, _) in zip(both["ended"], both["begun"], strict=True)
    ]
    return Figure(
        f"tune {case.name}, from {begun or 'the fabric'}",
        "a step as ended over as begun",
        Interval.of_ratio(pairs),
        most=1.01,
        note=answers[0]["said"],
    )
