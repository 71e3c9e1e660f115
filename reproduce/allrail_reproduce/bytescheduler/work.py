"""Comparing the two schedulers on one testbed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from allrail.results.training_result import TrainingResult
from allrail.simulation.api import simulate_many
from allrail_reproduce.bytescheduler.testbed import Case, Network, Tensor
from allrail_reproduce.rows import Progress


@dataclass(frozen=True, slots=True)
class Best:
    """One pair of policies compared.

    Attributes:
        fifo: First come, first served; the best of its settings.
        default: The same before its settings were tuned.
        baseline: Those settings.
        ours: `bytescheduler` with its best partition and credit.
        untuned: `bytescheduler` with those it starts from.
        partition: The best.
        credit: The best.
    """

    fifo: TrainingResult
    default: TrainingResult
    baseline: Tensor
    ours: TrainingResult
    untuned: TrainingResult
    partition: str
    credit: str

    @property
    def gain(self) -> float:
        """How much faster, per cent."""
        return 100 * (self.fifo.step_time_us / self.ours.step_time_us - 1)

    @property
    def ceiling(self) -> float:
        """How much faster computing alone is, per cent: no order of tensors gains more."""
        return 100 * (self.fifo.step_time_us / self.ours.compute_us - 1)

    @property
    def untuned_gain(self) -> float:
        """How much faster without tuning, per cent."""
        return 100 * (self.fifo.step_time_us / self.untuned.step_time_us - 1)


class Work:
    """Simulates each scenario once, and counts.

    Setups share scenarios: `bytescheduler` is the same whatever the baseline of a framework does.
    """

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._done, self._total = progress, 0, total
        self._known: dict[str, TrainingResult] = {}

    def compare(self, network: Network, cases: Iterable[Case]) -> list[Best]:
        """Return the best of the baseline and the best of `bytescheduler` for each model.

        Args:
            network: Workers, servers and links.
            cases: Models.
        """
        cases = list(cases)
        baselines, cuts = network.baselines(), network.cuts()
        tensors = [*baselines, *cuts]
        scenarios = [network.scenario(case, tensor) for case in cases for tensor in tensors]
        results = self.simulate(scenarios)
        found = []
        for index in range(len(cases)):
            own = results[index * len(tensors) : (index + 1) * len(tensors)]
            base, cut = own[: len(baselines)], own[len(baselines) :]
            first, best = _fastest(base), _fastest(cut)
            tensor = cuts[best]
            found.append(
                Best(
                    fifo=base[first],
                    default=base[0],
                    baseline=baselines[first],
                    ours=cut[best],
                    untuned=cut[0],
                    partition=tensor["partition"],
                    credit=tensor["credit"],
                )
            )
        return found

    def simulate(self, scenarios: list[dict[str, Any]]) -> list[TrainingResult]:
        """Return the results of scenarios."""
        named = [json.dumps(scenario, sort_keys=True) for scenario in scenarios]
        new = {
            name: one for name, one in zip(named, scenarios, strict=True) if name not in self._known
        }
        results = simulate_many(list(new.values()), progress=self._tell)
        self._known.update(zip(new, cast("list[TrainingResult]", results), strict=True))
        self._done += len(scenarios)
        return [self._known[name] for name in named]

    def _tell(self, done: float, total: int) -> None:
        del total
        if self._progress is not None:
            self._progress(min(self._done + done, self._total), self._total)


def _fastest(results: list[TrainingResult]) -> int:
    """Which of them; of equals the first."""
    return min(range(len(results)), key=lambda i: (results[i].step_time_us, i))
