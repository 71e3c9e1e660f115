"""`allrail tune`: better values of a schedule's knobs, by few simulations."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import click

from allrail.base.errors import show as shown
from allrail.cli import options, output
from allrail.cli.function import function
from allrail.search.tuning.run import finite

if TYPE_CHECKING:
    from allrail.search.tuning import Tuned


@click.command()
@click.argument("scenario", metavar="SCENARIO", type=options.Input())
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
@function("tune", doing="tuning", folder="report")
def command(tuned: Tuned) -> None:
    """Search the knobs of a training SCENARIO's schedule.

    They are what its schedulers read: partition, credit, bucket, threshold, cycle; and chunks.
    Bayesian optimisation (Optuna). The first trial is the scenario as it is.
    """
    best = tuned.best
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
    if tuned.scenario is not None:
        output.known(tuned.scenario)
