"""`tune`: Bayesian optimisation of a scenario's knobs, in simulation.

The first trial is the scenario as it is, so the best is never slower.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from allrail.base.arguments import KINDS, check, checked
from allrail.base.errors import InputError
from allrail.results.plans import core
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets
from allrail.search.tuning.searcher import FAILED, Searcher, Trial, which
from allrail.search.tuning.space import Knob, as_written, knobs, size
from allrail.simulation.many import Progress

TRIALS = 12
_LARGEST_SEED = 100_000
"""Every trial has ten thousand numbers of its own, below 2^32."""

Simulate = Callable[[Mapping[str, Any]], float]
"""Returns the step's time with some values changed, µs."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of it.

    Attributes:
        trials: In order; the first is the scenario as it is.
        knobs: What was turned.
        sampler: Which search it was.
        written: What the best has changed, as `--set` takes it whatever the scenario looks like.
    """

    trials: tuple[Trial, ...]
    knobs: tuple[Knob, ...]
    sampler: str
    written: Mapping[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Trial:
        """The fastest; the first of several."""
        return min(self.trials, key=lambda trial: trial.step_time_us)

    @property
    def gain(self) -> float:
        """How much less time the best takes than the scenario as it is, 0 to 1."""
        return 1 - self.best.step_time_us / self.trials[0].step_time_us


@checked
def tune(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    trials: int = TRIALS,
    seed: int = 0,
    study: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Search the knobs of a training step's schedule.

    Args:
        scenario: A file, a mapping or a `Scenario`, with a workload.
        sets: Overrides.
        trials: How many simulations.
        seed: Of the search.
        study: A file that keeps the trials, so that a search goes on, or goes further.
        progress: Told how many trials are done.

    Raises:
        InputError: Optuna is not installed, the scenario cannot be simulated or has no workload, or
            the file is another search's.
    """
    from allrail.simulation.api import simulate

    loaded = load_scenario(scenario, sets=sets)
    space = knobs(loaded)

    def step(values: Mapping[str, Any]) -> float:
        changed = load_scenario(loaded, sets=as_written(loaded, values))
        return simulate(changed).time_us

    if study is not None:
        check("study", study, kind=KINDS["path"])
    if trials < 1:
        raise InputError(
            "it is below 1", hint="for example `12`", field="trials", value=str(trials)
        )
    if not 0 <= seed <= _LARGEST_SEED:
        raise InputError(
            f"it is not from 0 to {_LARGEST_SEED:,}",
            hint="for example `0`",
            field="seed",
            value=str(seed),
        )
    tuned = search(
        space,
        step,
        trials=trials,
        seed=seed,
        study=None if study is None else Path(study),
        name=_digest(loaded, space, seed),
        progress=progress,
    )
    return replace(tuned, written=as_written(loaded, tuned.best.sets))


def search(
    space: tuple[Knob, ...],
    simulate: Simulate,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    study: Path | None = None,
    name: str = "tune",
    progress: Progress | None = None,
) -> Tuned:
    """Search any knobs.

    Args:
        space: The knobs.
        simulate: What is made small.
        trials: How many simulations; fewer where there are no more combinations.
        seed: Of the search.
        study: A file that keeps the trials.
        name: Differs between searches that must not share a file.
        progress: Told how many trials are done.
    """
    searcher = Searcher(space, seed=seed, study=study, name=name)
    count = min(trials, 1 + size(space))
    while len(searcher.done) < count:
        sets = searcher.ask()
        try:
            time = simulate(sets)
        except InputError:
            if not sets:
                raise  # what is wrong with the scenario is said here
            time = FAILED  # such as more chunks than bytes
        searcher.tell(time)
        if progress is not None:
            progress(len(searcher.done), count)
    return Tuned(tuple(searcher.done[:count]), space, which())


def _digest(loaded: Scenario, space: tuple[Knob, ...], seed: int) -> str:
    told = [core(), loaded.to_json(), [[knob.path, knob.values] for knob in space], seed]
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()
