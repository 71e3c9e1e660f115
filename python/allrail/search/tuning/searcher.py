"""The search itself: what is tried next, once what was tried is known.

The first trial changes nothing. The others are Optuna's: a Gaussian process where torch is
installed, a tree-structured Parzen estimator (TPE) otherwise. Trial N is drawn with a seed of its
own, so one that goes on gives what one in one piece gives.
"""

from __future__ import annotations

import importlib.util
import json
import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError
from allrail.base.installed import install
from allrail.search.tuning.space import Knob, size

if TYPE_CHECKING:
    import optuna

STARTUP = 4
"""Trials that are drawn before anything is learnt, beside the first."""
FAILED = float("inf")
"""The time of a trial that cannot be."""
_RUBBISH = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
"""What Optuna, or what is read of it, raises at a journal that others wrote."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulation.

    Attributes:
        sets: What was changed; nothing in the first.
        step_time_us: What came out; infinite where it cannot be simulated.
    """

    sets: dict[str, Any]
    step_time_us: float


class Searcher:
    """Asked for what is tried next, told what came of it.

    Args:
        space: The knobs.
        seed: Of the search.
        study: A file that keeps the trials.
        name: Differs between searches that must not share a file.
        noisy: Whether the same trial may come to another time.

    Attributes:
        done: The trials, in order.

    Raises:
        InputError: Optuna is not installed, or the file is another search's.
    """

    def __init__(
        self,
        space: tuple[Knob, ...],
        *,
        seed: int = 0,
        study: Path | None = None,
        name: str = "tune",
        noisy: bool = False,
    ) -> None:
        self._optuna = _optuna()
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        self._space, self._seed, self._noisy = space, seed, noisy
        self._kept = _kept(self._optuna, study, name)
        self._seen: dict[tuple[int, ...], float] = {}
        self._asked: tuple[int, ...] | None = None
        self.done: list[Trial] = []
        try:
            self._recall()
        except _RUBBISH:
            if study is None:
                raise
            raise _refused(study, "it has trials that no search of allrail has made") from None

    def _recall(self) -> None:
        """Take what the study knows already."""
        # Not among Optuna's trials: where the search starts need not be on the ladders.
        start = self._kept.user_attrs.get("start")
        if start is not None:
            self.done.append(Trial({}, _time(start)))
        for one in self._kept.get_trials(deepcopy=False):
            if one.state == self._optuna.trial.TrialState.COMPLETE:
                place = tuple(_place(one.params[knob.path], knob) for knob in self._space)
                time = _time(one.user_attrs["step_time_us"])
                self.done.append(Trial(self._sets(place), time))
                self._seen[place] = time
            else:  # it was interrupted
                self._kept.tell(
                    one.number,
                    state=self._optuna.trial.TrialState.FAIL,
                    skip_if_finished=True,
                )

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to try."""
        return len(self.done) > size(self._space)

    def ask(self) -> dict[str, Any]:
        """Return what is changed in the next trial; it must not be exhausted."""
        if not self.done:
            return {}
        drawn = self._seed * 10_007 + len(self.done)
        self._kept.sampler = _sampler(self._optuna, seed=drawn, noisy=self._noisy)
        place = _asked(
            self._optuna,
            self._kept,
            self._space,
            self._seen,
            random.Random(drawn),  # noqa: S311
        )
        self._asked = place
        return self._sets(place)

    def _sets(self, place: tuple[int, ...]) -> dict[str, Any]:
        """What is changed at a place on the ladders."""
        return {knob.path: knob.values[at] for knob, at in zip(self._space, place, strict=True)}

    def tell(self, time: float) -> None:
        """Say what the trial that was asked for came to.

        Args:
            time: In any unit; `FAILED` where it cannot be.
        """
        place = self._asked
        if place is None:
            self._kept.set_user_attr("start", time)
            self.done.append(Trial({}, time))
            return
        self._asked = None
        self._seen[place] = time
        sets = self._sets(place)
        params = {knob.path: at for knob, at in zip(self._space, place, strict=True)}
        worst = max(one.step_time_us for one in self.done if one.step_time_us != FAILED)
        _tell(self._optuna, self._kept, params, sets, space=self._space, time=time, worst=worst)
        self.done.append(Trial(sets, time))


def _time(value: object) -> float:
    """The time of a trial; ValueError where it is none."""
    if type(value) not in (int, float) or not value > 0:  # type: ignore[operator]
        raise ValueError(value)
    return float(value)  # type: ignore[arg-type]


def _place(value: object, knob: Knob) -> int:
    """A place on the ladder of a knob; ValueError where it is none."""
    if type(value) is not int or not 0 <= value < len(knob.values):
        raise ValueError(value)
    return value


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
            value=worst if time == FAILED else time,
            user_attrs={"sets": json.dumps(sets), "step_time_us": time},
        )
    )


def which() -> str:
    """Return which search it is, in words."""
    there = importlib.util.find_spec("torch") is not None
    return "a Gaussian process" if there else "TPE"


def _sampler(optuna: Any, *, seed: int, noisy: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both have parts that Optuna calls experimental
        if importlib.util.find_spec("torch") is not None:
            return optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=STARTUP, deterministic_objective=not noisy
            )
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, multivariate=True)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("Optuna is not installed", hint=install("tune"), source="tune") from None
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
    except InputError:
        raise
    except _RUBBISH:
        # Optuna trusts what stands in its journals.
        raise _refused(study, "it is no study of Optuna, or not whole") from None
    if others:
        raise _refused(study, "it has the trials of another scenario, seed or build of allrail")
    return optuna.create_study(study_name=name, storage=storage, load_if_exists=True)


def _refused(study: Path, why: str) -> InputError:
    return InputError(why, hint="name another file", source="--study", value=str(study))
