"""`tune`: Bayesian optimisation of a scenario's knobs, in simulation.

The first trial is the scenario as it is, so the best is never slower. The others are Optuna's: a
Gaussian process where torch is installed, a tree-structured Parzen estimator (TPE) otherwise. Trial
N is drawn with a seed of its own, so one that goes on gives what one in one piece gives.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.errors import InputError
from allrail.many import Progress
from allrail.reproduce.kept import core
from allrail.scenario import Scenario, ScenarioLike, load_scenario
from allrail.scenario.overrides import Sets
from allrail.tuning.space import Knob, as_written, knobs, size

if TYPE_CHECKING:
    import optuna

TRIALS = 12
STARTUP = 4
"""Trials that are drawn before anything is learnt, beside the scenario as it is."""
_FAILED = float("inf")

Simulate = Callable[[Mapping[str, Any]], float]
"""Returns the step's time with some values changed, µs."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulation.

    Attributes:
        sets: What was changed; nothing in the first.
        step_time_us: What came out; infinite where it cannot be simulated.
    """

    sets: dict[str, Any]
    step_time_us: float


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
    from allrail.training import simulate_training

    loaded = load_scenario(scenario, sets=sets)
    space = knobs(loaded)

    def simulate(values: Mapping[str, Any]) -> float:
        changed = load_scenario(loaded, sets=as_written(loaded, values))
        return simulate_training(changed).step_time_us

    if trials < 1:
        raise InputError(
            "it is below 1", hint="for example `12`", field="trials", value=str(trials)
        )
    tuned = search(
        space,
        simulate,
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
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    kept = _kept(optuna, study, name)
    seen: dict[tuple[int, ...], float] = {}
    # Not among Optuna's trials: what the scenario has need not be on the ladders.
    start = kept.user_attrs.get("start")
    done = [] if start is None else [Trial({}, start)]
    for one in kept.get_trials(deepcopy=False):
        if one.state == optuna.trial.TrialState.COMPLETE:
            sets = json.loads(one.user_attrs["sets"])
            done.append(Trial(sets, one.user_attrs["step_time_us"]))
            seen[tuple(one.params[knob.path] for knob in space)] = done[-1].step_time_us
        else:  # it was interrupted
            kept.tell(one.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
    count = min(trials, 1 + size(space))
    while len(done) < count:
        if not done:
            start = simulate({})  # what is wrong with the scenario is said here
            kept.set_user_attr("start", start)
            done.append(Trial({}, start))
        else:
            kept.sampler = _sampler(optuna, seed=seed * 10_007 + len(done))
            place = _asked(optuna, kept, space, seen, random.Random(seed * 10_007 + len(done)))  # noqa: S311
            sets = {knob.path: knob.values[at] for knob, at in zip(space, place, strict=True)}
            try:
                time = simulate(sets)
            except InputError:
                time = _FAILED  # such as more chunks than bytes
            seen[place] = time
            worst = max(one.step_time_us for one in done if one.step_time_us != _FAILED)
            params = {knob.path: at for knob, at in zip(space, place, strict=True)}
            _tell(optuna, kept, params, sets, space=space, time=time, worst=worst)
            done.append(Trial(sets, time))
        if progress is not None:
            progress(len(done), count)
    return Tuned(tuple(done[:count]), space, _which())


def _asked(
    optuna: Any,
    kept: optuna.Study,
    space: tuple[Knob, ...],
    seen: Mapping[tuple[int, ...], float],
    drawn: random.Random,
) -> tuple[int, ...]:
    """Return the places on the ladders of the next trial: one that was not tried yet."""
    asked = kept.ask(
        {knob.path: optuna.distributions.IntDistribution(0, len(knob.values) - 1) for knob in space}
    )
    place = tuple(int(asked.params[knob.path]) for knob in space)
    kept.tell(asked, state=optuna.trial.TrialState.FAIL)  # told below, with what it came to
    steps = 1
    while place in seen:  # what is known teaches nothing: step aside
        moved = (at + drawn.randint(-steps, steps) for at in place)
        place = tuple(
            max(0, min(len(knob.values) - 1, at)) for knob, at in zip(space, moved, strict=True)
        )
        steps = min(steps + 1, 16)
    return place


def _tell(
    optuna: Any,
    kept: optuna.Study,
    params: dict[str, int],
    sets: Mapping[str, Any],
    *,
    space: tuple[Knob, ...],
    time: float,
    worst: float,
) -> None:
    """Tell what a trial came to; one that cannot be simulated is as bad as the worst that can."""
    kept.add_trial(
        optuna.trial.create_trial(
            params=params,
            distributions={
                knob.path: optuna.distributions.IntDistribution(0, len(knob.values) - 1)
                for knob in space
            },
            value=worst if time == _FAILED else time,
            user_attrs={"sets": json.dumps(sets), "step_time_us": time},
        )
    )


def _which() -> str:
    there = importlib.util.find_spec("torch") is not None
    return "a Gaussian process" if there else "TPE"


def _sampler(optuna: Any, *, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both have parts that Optuna calls experimental
        if importlib.util.find_spec("torch") is not None:
            return optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=STARTUP, deterministic_objective=True
            )
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError(
            "Optuna is not installed", hint="`pip install allrail[tune]`", source="tune"
        ) from None
    return optuna


def _kept(optuna: Any, study: Path | None, name: str) -> Any:
    if study is None:
        return optuna.create_study(study_name=name)
    try:
        if (
            study.exists()
            and '"op_code"' not in study.read_text(errors="replace").partition("\n")[0]
        ):
            raise _refused(study, "it is no study of Optuna")
        study.parent.mkdir(parents=True, exist_ok=True)
        backend = optuna.storages.journal.JournalFileBackend(str(study))
        storage = optuna.storages.JournalStorage(backend)
        others = [one.study_name for one in storage.get_all_studies() if one.study_name != name]
    except OSError as error:
        raise _refused(study, f"it cannot be used: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise _refused(study, f"it is no study of Optuna: {error}") from None
    if others:
        raise _refused(study, "it has the trials of another scenario, seed or build of allrail")
    return optuna.create_study(study_name=name, storage=storage, load_if_exists=True)


def _refused(study: Path, why: str) -> InputError:
    return InputError(why, hint="name another file", source="--study", value=str(study))


def _digest(loaded: Scenario, space: tuple[Knob, ...], seed: int) -> str:
    told = [core(), loaded.to_json(), [[knob.path, knob.values] for knob in space], seed]
    return hashlib.sha256(json.dumps(told, ensure_ascii=False).encode()).hexdigest()
