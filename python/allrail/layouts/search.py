"""Ranks layouts by tokens a second, and says why the others lose.

Every layout is simulated in `dims`: with the least recomputation that fits the memory, and where
there are many microbatches with two smaller numbers of them, from which the step follows (a
pipeline repeats itself once it is full).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from allrail import _core
from allrail.errors import InputError
from allrail.layouts.space import Job, Layout
from allrail.many import Progress, run_many
from allrail.training import of_training

RECOMPUTED = ("none", "selective", "full")
"""From the least to the most."""

_STEADY = 3
"""Times its stages: with as many microbatches a pipeline is steady."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A layout that fits.

    Attributes:
        layout: Which.
        recompute: The least that fits.
        step_s: Seconds of a step.
        tokens_per_s_per_npu: What is compared.
        memory_gb: Of the fullest NPU.
        lost: Shares of the step by what is not computing, the largest first.
    """

    layout: Layout
    recompute: str
    step_s: float
    tokens_per_s_per_npu: float
    memory_gb: float
    lost: tuple[tuple[str, float], ...]

    @property
    def why(self) -> str:
        """What it loses most by, in words."""
        words = [f"{what} {100 * share:.0f} %" for what, share in self.lost[:2] if share >= 0.01]
        if self.recompute != RECOMPUTED[0]:
            words.append(f"recomputes {self.recompute}")
        return ", ".join(words) or "computing"


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a search.

    Attributes:
        ranked: The fastest first.
        too_large: Layouts that fit with no recomputation, and what was said of each.
        refused: Layouts that cannot be, and why.
    """

    ranked: tuple[Ranked, ...]
    too_large: tuple[tuple[Layout, str], ...]
    refused: tuple[tuple[Layout, InputError], ...]


def search(job: Job, found: Sequence[Layout], *, progress: Progress | None = None) -> Found:
    """Simulate layouts, and rank them.

    Args:
        job: What is cut.
        found: Its layouts.
        progress: Told how many are done, of how many.
    """
    ranked: list[Ranked] = []
    refused: list[tuple[Layout, InputError]] = []
    left = [(layout, "") for layout in found]
    for recompute in RECOMPUTED:
        again: list[tuple[Layout, str]] = []
        outcomes = _simulated(job, [layout for layout, _ in left], recompute, progress)
        for (layout, _), outcome in zip(left, outcomes, strict=True):
            if isinstance(outcome, Ranked):
                ranked.append(outcome)
            elif outcome.field.endswith("must_fit"):
                again.append((layout, outcome.why))
            else:
                refused.append((layout, outcome))
        left = again
    ranked.sort(key=lambda one: (-one.tokens_per_s_per_npu, one.layout.name))
    return Found(tuple(ranked), tuple(left), tuple(refused))


def _simulated(
    job: Job, found: Sequence[Layout], recompute: str, progress: Progress | None
) -> list[Ranked | InputError]:
    """Of each, what came of it."""
    counts = [_counts(layout, layout.microbatches(job)) for layout in found]
    trees = [
        layout.scenario(job, recompute=recompute, microbatches=count)
        for layout, both in zip(found, counts, strict=True)
        for count in both
    ]
    results: list[Any] = run_many(
        trees,
        check=of_training,
        run=_core.simulate_training_many,
        threads=None,
        progress=progress,
        keep_errors=True,
    )
    outcomes: list[Ranked | InputError] = []
    at = 0
    for layout, both in zip(found, counts, strict=True):
        mine = results[at : at + len(both)]
        at += len(both)
        wrong = next((one for one in mine if isinstance(one, InputError)), None)
        outcomes.append(wrong or _ranked(job, layout, recompute, mine, both))
    return outcomes


def _counts(layout: Layout, microbatches: int) -> tuple[int, ...]:
    """Numbers of microbatches to simulate: all, or two from which all follow."""
    most = _STEADY * layout.pp
    return (microbatches,) if microbatches <= most else (most - layout.pp, most)


def _ranked(
    job: Job, layout: Layout, recompute: str, results: list[Any], counts: tuple[int, ...]
) -> Ranked:
    last, more = results[-1], layout.microbatches(job) - counts[-1]

    def whole(value: Any) -> float:
        """Of all microbatches, from what it is with so many and with fewer."""
        now = float(value(last))
        if len(results) == 1:
            return now
        return now + more * (now - float(value(results[0]))) / (counts[-1] - counts[0])

    step = whole(lambda one: one["step_time_us"]) / 1e6
    kinds = {
        f"{kind} exposed": whole(lambda one, kind=kind: one["exposed_us"][kind])
        for kind in last["exposed_us"]
    }
    kinds["bubble"] = whole(lambda one: one["waiting_us"])
    lost = sorted(
        ((what, time / step / 1e6) for what, time in kinds.items()), key=lambda one: -one[1]
    )
    samples = last["throughput"]["samples_per_s"] * last["step_time_us"] / 1e6
    tokens = last["throughput"]["tokens_per_s_per_npu"] / last["throughput"]["samples_per_s"]
    all_samples = samples * layout.microbatches(job) / counts[-1]
    return Ranked(
        layout,
        recompute,
        step,
        tokens * all_samples / step,
        (last["memory_per_npu_bytes"] or 0) / 1e9,
        tuple(lost),
    )
