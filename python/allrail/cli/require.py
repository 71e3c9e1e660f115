"""`allrail require`: how much bandwidth reaches a throughput, and the cheapest fabric that does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allrail.base.units import plain_number, show_time
from allrail.cli import options, output
from allrail.cli.function import function

if TYPE_CHECKING:
    from allrail.search.require import Candidate, Required, Target


@click.command()
@click.argument("scenario", metavar="[FILE]", type=options.Input(), required=False)
@click.option("--throughput", required=True, metavar="TARGET", help="Throughput to reach")
@options.sets
@options.plugin
@click.option(
    "--fabrics",
    type=options.Named(),
    multiple=True,
    callback=options.listed,
    metavar="A,B,...",
    help="Fabrics to try: presets or files",
)
@click.option("--list", type=options.Folder(), metavar="DIR", help="Try every fabric file in DIR")
@click.option(
    "--prices", type=options.Input(), metavar="FILE", help="File of prices, as for `allrail cost`"
)
@click.option(
    "--out",
    type=options.Output(),
    callback=options.writable,
    metavar="DIR",
    help="Write the curves as CSV and a picture",
)
@options.of_model
@options.as_json
@function("require", doing="scaling dimensions")
def command(found: Required, *, out: Path | None) -> None:
    """Say the least bandwidth with which the training step in FILE reaches TARGET.

    TARGET is a part of the throughput without time for bytes (`0.95x-ideal`), a step time
    (`1.2 s`), or a rate (`4e6 tokens/s`, `450 tokens/s/npu`, `2000 samples/s`). Each dimension is
    scaled alone, then all together. Of --fabrics, the cheapest that reaches it is named.

    \b
    Examples:
      allrail require step.yaml --throughput 0.95x-ideal
      allrail require step.yaml --throughput 1.2s --fabrics fat-tree-1k,hx2mesh-1k
    """  # noqa: D301, click wants the character
    _show(found)
    for words in found.notes:
        output.note(words)
    if found.fabrics:
        _show_fabrics(found.fabrics, found.target)
    if out is not None:
        output.note(f"written to {out}")
    output.predicted(["dims"], calibrated=found.calibrated)
    if found.scenario is not None:
        output.known(found.scenario)


def _show(found: Required) -> None:
    target = found.target
    rows = [
        [
            one.name,
            "/".join(plain_number(rate) for rate in one.now_gbps),
            "-" if one.factor is None else ("<=" if one.at_most else "") + plain_number(one.factor),
            "-" if one.factor is None else "/".join(plain_number(rate) for rate in one.gbps),
            plain_number(target.amount(one.step_s)),
        ]
        for one in found.least
    ]
    output.table(["scaled", "now_Gb/s", "factor", "needed_Gb/s", _reached(target)], rows)
    output.note(
        f"target {target.text}: a step of {show_time(1e6 * target.step_s)} or less; now"
        f" {target.words(found.step_s)}, without time for bytes {target.words(found.ideal_s)}"
    )
    for one in found.least:
        if one.factor is None:
            best = target.words(one.step_s)
            output.note(f"no bandwidth of {one.name} alone reaches it: {best} at best")
    _show_curves(found)


def _reached(target: Target) -> str:
    """The heading of the column that says what is reached, in the unit of the target."""
    return f"step_{target.unit}" if target.is_time else target.unit


def _show_curves(found: Required) -> None:
    factors = found.curves[0].factors
    header = ["bandwidth", *(f"{one.name}_%_of_ideal" for one in found.curves)]
    rows = [
        [f"{factor:g}x", *(f"{100 * found.ideal_s / one.steps_s[k]:.1f}" for one in found.curves)]
        for k, factor in enumerate(factors)
    ]
    output.table(header, rows)
    for one in found.curves:
        for factor in one.anomalies:
            output.note(
                f"{one.name} at {factor:g}x is slower than with half of it: a greedy order of"
                " chunks has such anomalies; what is needed counts from where all above reach it"
            )


def _show_fabrics(tried: tuple[Candidate, ...], target: Target) -> None:
    rows = [
        [
            one.fabric,
            "-" if one.step_s is None else plain_number(target.amount(one.step_s)),
            "yes" if one.reaches else "no",
            "-" if one.cost_usd is None else f"{one.cost_usd / 1e6:.3f}",
            one.binding or one.why_not,
        ]
        for one in tried
    ]
    output.table(["fabric", _reached(target), "reaches", "cost_M$", "why"], rows)
    best = tried[0]
    if not best.reaches:
        known = [one for one in tried if one.step_s is not None]
        nearest = f"; {known[0].fabric} comes nearest, {known[0].binding}" if known else ""
        output.note(f"none of them reaches it{nearest}")
    elif best.cost_usd is not None:
        output.note(f"the cheapest that reaches it: {best.fabric}")
    else:
        output.note(f"no price is known of those that reach it; the fastest is {best.fabric}")
