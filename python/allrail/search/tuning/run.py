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
from typing import Any, ClassVar

from allrail.base.arguments import PathLike, checked
from allrail.base.errors import InputError
from allrail.base.progress import Progress
from allrail.base.stdin import stem
from allrail.results.answer import renderers
from allrail.results.plans import core
from allrail.results.table import Table
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets
from allrail.search.tuning.searcher import FAILED, Searcher, Trial, which
from allrail.search.tuning.space import Knob, as_written, knobs, size
from allrail.simulation.api import simulate

TRIALS = 12
_LARGEST_SEED = 100_000
"""Every trial has ten thousand numbers of its own, below 2^32."""

Simulate = Callable[[Mapping[str, Any]], float]
"""Returns the step's time with some values changed, µs."""


@dataclass(frozen=True, slots=True)
class Tuned(Table):
    """What a search of knobs came to: a row a trial.

    Attributes:
        kind: `tuning`.
        trials: In order; the first is the scenario as it is.
        knobs: What was turned.
        sampler: Which search it was.
        written: What the best has changed, as `--set` takes it whatever the scenario looks like.
        scenario: As it was before.
        name: Of the scenario.
    """

    kind: ClassVar[str] = "tuning"
    PLOTTED: ClassVar[tuple[str, str]] = ("trial", "step_time_us")

    trials: tuple[Trial, ...]
    knobs: tuple[Knob, ...]
    sampler: str
    written: Mapping[str, Any] = field(default_factory=dict)
    scenario: Scenario | None = None
    name: str = "scenario"

    @property
    def best(self) -> Trial:
        """The fastest; the first of several."""
        return min(self.trials, key=lambda trial: trial.step_time_us)

    @property
    def gain(self) -> float:
        """How much less time the best takes than the scenario as it is, 0 to 1."""
        return 1 - self.best.step_time_us / self.trials[0].step_time_us

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row a trial: the value of each knob, and the step's time, µs; None if it fails."""
        return [
            {
                "trial": number,
                **{knob.path: trial.sets.get(knob.path) for knob in self.knobs},
                "step_time_us": finite(trial.step_time_us),
            }
            for number, trial in enumerate(self.trials)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as the JSON object of `--json`."""
        trials = [
            {"sets": one.sets, "step_time_us": finite(one.step_time_us)} for one in self.trials
        ]
        return {"best": dict(self.written), "gain": self.gain, "trials": trials}

    def searched(self) -> dict[str, Any]:
        """Return what a report says of the scenario beside its trials."""
        if self.scenario is None:
            return {}
        tree = json.loads(self.scenario.to_json())
        tree["fabric"] = {"name": self.scenario.fabric.name, **tree["fabric"]}
        return {
            "name": self.name,
            "knobs": [knob.path for knob in self.knobs],
            "sampler": self.sampler,
            "network_model": self.scenario.network_model,
            "calibrated": self.scenario.fabric.calibrated,
            "scenario": tree,
        }


def finite(time_us: float) -> float | None:
    """Return a time; None of what could not be simulated.

    Args:
        time_us: Of a trial.
    """
    return None if time_us == FAILED else time_us


@checked
def tune(
    scenario: ScenarioLike,
    *,
    sets: Sets = (),
    trials: int = TRIALS,
    seed: int = 0,
    study: PathLike | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Tuned:
    """Search the knobs of a training step's schedule.

    Args:
        scenario: A file, a mapping or a `Scenario`, with a workload.
        sets: Overrides.
        trials: How many simulations.
        seed: Of the search.
        study: A file that keeps the trials, so that a search goes on, or goes further.
        report: Folder for result, table and report.
        progress: Told how many trials are done.

    Returns:
        The trials, a row each; `best` is the fastest, `gain` how much less time it takes, 0 to 1.

    Raises:
        InputError: Optuna is not installed, the scenario cannot be simulated or has no workload, or
            the file is another search's.

    Example:
        `allrail.tune("step.yaml", trials=20).best.sets`
    """
    loaded = load_scenario(scenario, sets=sets)
    space = knobs(loaded)

    def step(values: Mapping[str, Any]) -> float:
        changed = load_scenario(loaded, sets=as_written(loaded, values))
        return simulate(changed).time_us

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
    written = as_written(loaded, tuned.best.sets)
    named = isinstance(scenario, (str, os.PathLike))
    name = stem(Path(os.fspath(scenario))) if named else "scenario"  # type: ignore[arg-type]
    tuned = replace(tuned, written=written, scenario=loaded, name=name)
    if report is not None:
        renderers().write(tuned, Path(report))
    return tuned


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
