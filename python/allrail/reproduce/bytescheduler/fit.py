"""Comparing the two schedulers, and fitting a model's compute time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from allrail.reproduce.bytescheduler.testbed import Case, Network
from allrail.reproduce.rows import Progress
from allrail.training import simulate_training_many
from allrail.training_result import TrainingResult

SHORTEST_MS, LONGEST_MS, STEPS, ROUNDS = 10.0, 640.0, 25, 8
"""The fit looks at compute times on a logarithmic grid, and halves one of its intervals."""


@dataclass(frozen=True, slots=True)
class Best:
    """One pair of policies compared.

    Attributes:
        fifo: First come, first served.
        ours: `bytescheduler` with its best partition and credit.
        partition: The best.
        credit: The best.
    """

    fifo: TrainingResult
    ours: TrainingResult
    partition: str
    credit: str

    @property
    def gain(self) -> float:
        """How much faster, per cent."""
        return 100 * (self.fifo.step_time_us / self.ours.step_time_us - 1)


class Work:
    """Simulates, and counts."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total

    def compare(self, network: Network, wanted: Iterable[tuple[Case, float]]) -> list[Best]:
        """Return `fifo` and the best of `bytescheduler` for models with compute times, ms."""
        wanted = list(wanted)
        tensors = network.candidates()
        scenarios = [
            network.scenario(case, compute_ms=compute, tensor=tensor)
            for case, compute in wanted
            for tensor in tensors
        ]
        results = self.simulate(scenarios)
        found = []
        for index in range(len(wanted)):
            fifo, *cut = results[index * len(tensors) : (index + 1) * len(tensors)]
            order = sorted(range(len(cut)), key=lambda i: (cut[i].step_time_us, i))
            tensor = tensors[1 + order[0]]
            found.append(Best(fifo, cut[order[0]], tensor["partition"], tensor["credit"]))
        return found

    def simulate(self, scenarios: list[dict[str, Any]]) -> list[TrainingResult]:
        """Return the results of scenarios."""
        results = simulate_training_many(scenarios)
        self._done += len(scenarios)
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
        return results


@dataclass(frozen=True, slots=True)
class Fit:
    """What a fit gave.

    Attributes:
        compute_ms: Of an iteration.
        best: What was compared with it.
        met: Whether the middle of the published range is met.
    """

    compute_ms: float
    best: Best
    met: bool


def fit(case: Case, work: Work, network: Network) -> Fit:
    """Find the longest compute time with which the middle of the published range is met.

    Where none meets it, the one that comes nearest is taken.

    Args:
        case: Which model.
        work: What simulates.
        network: At which bandwidth, among others.
    """
    middle = sum(case.fitted) / 2
    grid = [SHORTEST_MS * (LONGEST_MS / SHORTEST_MS) ** (k / (STEPS - 1)) for k in range(STEPS)]
    seen: list[tuple[float, Best]] = []
    for compute in reversed(grid):
        (best,) = work.compare(network, [(case, compute)])
        if best.gain >= middle and seen:
            low, high = (compute, best), seen[-1]
            for _ in range(ROUNDS):
                between = (low[0] * high[0]) ** 0.5
                (best,) = work.compare(network, [(case, between)])
                low, high = (
                    ((between, best), high) if best.gain >= middle else (low, (between, best))
                )
            return Fit(*min(low, high, key=lambda one: abs(one[1].gain - middle)), met=True)
        seen.append((compute, best))
    return Fit(*min(seen, key=lambda one: abs(one[1].gain - middle)), met=False)
