"""`allrail compare`: variants of one scenario side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from allrail.base import late
from allrail.base.axes import SHORT, option
from allrail.base.errors import InputError
from allrail.cli import astra_sim as astra
from allrail.cli import options
from allrail.cli.function import function
from allrail.measure.comparison import Comparison
from allrail.scenario.text import read_text

if TYPE_CHECKING:
    from allrail.measure.beside_astra_sim import BesideAstraSim
    from allrail.measure.comparison import Comparison


def _values_of(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    """Callback of an axis: values are YAML, separated by commas."""
    del ctx
    found = [one for text in texts for one in _values(text, param.opts[-1])]
    return found or ()


def _each(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> Any:
    """Callback of `--each`."""
    del ctx, param
    axes: dict[str, list[object]] = {}
    for text in texts:
        path, equals, values = text.partition("=")
        if not equals:
            raise InputError(
                "it has no `=`",
                hint="for example `--each schedule.chunks=4,64,512`",
                source="--each",
                value=text,
            )
        key = path.strip()
        if key in SHORT and SHORT[key] != key and key not in ("fabric", "model"):
            raise InputError(
                "there is no such key",
                hint=f"did you mean `--each {SHORT[key]}={values}`?",
                source="--each",
                value=key,
            )
        axes.setdefault(key, []).extend(_values(values, "--each"))
    return axes or ()


def _explain(error: InputError, typed: Mapping[str, Any]) -> None:
    """Say by which option a value came that is wrong."""
    if not error.source and (typed["each"] or any(typed[name] for name in SHORT)):
        options_by_path = {path: option(name) for name, path in SHORT.items()}
        error.source = options_by_path.get(error.field, "--each")


def _axis(name: str, about: str) -> click.Option:
    return click.Option(
        [option(name)], multiple=True, callback=_values_of, metavar="A,B,...", help=about
    )


@click.command(
    params=[
        _axis("policy", "Policies; baseline,themis,search if left out; nccl: NCCL's own time"),
        _axis("order", "Orders; the one of each policy if left out"),
        _axis("fabric", "Fabrics: presets or files"),
        _axis("chunks", "Numbers of chunks"),
        _axis("size", "Sizes of the collective, such as 100 MB,1 GB"),
        _axis("network_model", "Network models"),
        _axis("model", "Models of a workload: presets or files"),
        _axis("tensor", "Tensor schedulers of a workload"),
        _axis("coordination", "Coordination policies"),
    ]
)
@click.argument("scenario", metavar="FILE...", nargs=-1, type=options.Input())
@click.option(
    "--each",
    multiple=True,
    callback=_each,
    metavar="PATH=A,B,...",
    help="Sweep a key over values",
)
@options.sets
@options.plugin
@options.as_json
@options.out
@options.timeline
@options.cache
@click.option("--astra-sim", is_flag=True, help="Compare with ASTRA-sim's output in FILE")
@astra.files
@click.option("--run", metavar="NAME", help="With --astra-sim: name of the line in its result")
@function(
    "compare",
    doing="comparing",
    folder="out",
    check=options.slices,
    explain=_explain,
    more=lambda: {"failed": []},
)
def command(comparison: Comparison | BesideAstraSim) -> None:
    """Simulate variants of the scenario in FILE and print one table.

    Values of one option stand beside each other; several options give every combination. Speed-ups
    are against the first row; of workloads, against the first that differs in the schedule alone.
    Several FILEs may be compared where they are workloads. The policy `nccl` is a row with the time
    of the algorithm that NCCL runs; it is there unasked where a machine has NVLink switches.

    With --astra-sim FILE is a result of ASTRA-sim (`tutorial_result.csv` of 1.0, the saved output
    of 2.x), and the case of its other files is simulated beside it.
    """
    if isinstance(comparison, Comparison):
        late.found(f"view of {comparison.job}").show_comparison(comparison)
    else:
        astra.show_beside(comparison)


def _values(text: str, source: str) -> list[object]:
    texts = [part.strip() for part in options.apart(text) if part.strip()]
    if not texts:
        raise InputError("no value is named", hint="separate several by `,`", source=source)
    return [read_text(part, source=source)[0] for part in texts]
