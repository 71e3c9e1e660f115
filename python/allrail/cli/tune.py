"""`allrail tune`: better values of a schedule's knobs, by few simulations."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from allrail.base.errors import show as shown
from allrail.cli import options

if TYPE_CHECKING:
    from allrail.search.tuning import Tuned


@click.command()
@click.argument("file", metavar="SCENARIO", type=options.Input())
@click.option(
    "--trials", type=int, default=12, show_default=True, metavar="N", help="Number of simulations"
)
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Random seed of the search"
)
@click.option(
    "--study",
    type=options.Output(),
    callback=options.writable_journal,
    metavar="FILE",
    help="Keep the trials in this file, to resume or to add trials later",
)
@options.report
@options.sets
@options.plugin
@options.as_json
def command(
    *,
    file: Path,
    trials: int,
    seed: int,
    study: Path | None,
    report: Path | None,
    sets: tuple[str, ...],
    as_json: bool,
) -> None:
    """Search the knobs of a training SCENARIO's schedule.

    They are what its schedulers read: partition, credit, bucket, threshold, cycle; and chunks.
    Bayesian optimisation (Optuna). The first trial is the scenario as it is.
    """
    from allrail.cli import folders, output
    from allrail.search.tuning import tune

    with output.Progress("tuning") as progress:
        tuned = tune(file, sets=sets, trials=trials, seed=seed, study=study, progress=progress)
    best = tuned.best
    rows = [{"sets": one.sets, "step_time_us": finite(one.step_time_us)} for one in tuned.trials]
    told = {"best": dict(tuned.written), "gain": tuned.gain, "trials": rows}
    if report is not None:
        folders.answer(report, "tuning", {**told, **_searched(file, sets, tuned)})
    if as_json:
        output.print_json(told)
        return
    output.table(
        ["trial", *(knob.path for knob in tuned.knobs), "step_time_us", "gain_%"],
        [
            [
                str(number),
                *(str(one.sets.get(knob.path, "-")).replace(" ", "") for knob in tuned.knobs),
                "-" if finite(one.step_time_us) is None else f"{one.step_time_us:.3f}",
                output.percent(
                    None
                    if finite(one.step_time_us) is None
                    else 1 - one.step_time_us / tuned.trials[0].step_time_us
                ),
            ]
            for number, one in enumerate(tuned.trials)
        ],
    )
    if best.sets:
        sets_of_best = (f"{path}={shown(value)}" for path, value in tuned.written.items())
        said = " ".join(f"--set {quote(text)}" for text in sets_of_best)
        output.note(f"best: {said}")
    else:
        output.note("best: the scenario as it is")
    output.note(f"gain {output.percent(tuned.gain)} %; searched by {tuned.sampler}")
    output.known(file, sets=sets)


def _searched(file: Path, sets: tuple[str, ...], tuned: Tuned) -> dict[str, Any]:
    """What a report says of the scenario beside its trials."""
    from allrail.base.stdin import stem
    from allrail.output.write import input_tree
    from allrail.scenario import load_scenario

    scenario = load_scenario(file, sets=sets)
    return {
        "name": stem(file),
        "knobs": [knob.path for knob in tuned.knobs],
        "sampler": tuned.sampler,
        "world": scenario.world,
        "calibrated": scenario.fabric.calibrated,
        "scenario": input_tree(scenario),
    }


def finite(time_us: float) -> float | None:
    """Return a time; None of what could not be simulated.

    Args:
        time_us: Of a trial.
    """
    return None if time_us == float("inf") else time_us
