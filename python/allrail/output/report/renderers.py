"""How answers become folders: by their kind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail.base.errors import InputError
from allrail.base.files import write_bytes, write_text
from allrail.formats.astra_sim import columns_csv
from allrail.output import notebook, plots
from allrail.output.curves import write_curves
from allrail.output.record_trace import trace_gzip
from allrail.output.report import answer as folders
from allrail.output.report.placement import write as write_placement
from allrail.output.report.style import svg
from allrail.output.report.topology import NAME, topology
from allrail.output.sweep import write_sweep
from allrail.output.traffic import write_traffic
from allrail.output.training import write_training
from allrail.output.write import OUTPUT
from allrail.output.write import write_results as write_collectives
from allrail.results.accuracy import line_of
from allrail.results.table import Table
from allrail.scenario import load_any_fabric, load_scenario
from allrail.search.layouts.answer import tree_of
from allrail.search.layouts.written import job_tree
from allrail.simulation.graphs import GraphLike, graph_fabric
from allrail.simulation.placed import Whereabouts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from allrail.results.result import Result
    from allrail.scenario import Fabric

ASTRA_SIM = "astra_sim.csv"
"""The file of ASTRA-sim's columns in a folder of results."""


def write(answer: Any, folder: Path) -> None:
    """Write the folder of an answer: result, tables, pictures and report.

    Args:
        answer: Of a function of `allrail`.
        folder: Where.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    made = _WRITERS.get(answer.kind)
    if made is None:
        raise InputError(
            "it has no folder of results",
            field="path",
            value=str(folder),
            hint="name a file: `.csv`, `.parquet` or `.json`",
        )
    made(answer, folder)


def plot(answer: Any, ax: Axes | None) -> Axes:
    """Draw an answer.

    Args:
        answer: A result, or rows.
        ax: Where; a new figure if None.

    Raises:
        InputError: There is nothing to draw, or matplotlib is not installed.
    """
    if isinstance(answer, Table):
        return plots.bars(answer.flat_rows(), *answer.PLOTTED, ax)
    return plots.result(answer, ax)


def html(answer: Any) -> str:
    """Return an answer as a notebook shows it.

    Args:
        answer: A result, or rows.
    """
    if isinstance(answer, Table):
        return notebook.table(answer.flat_rows(), name=type(answer).__name__)
    return notebook.page(answer)


def write_results(
    kind: str, results: Mapping[str, Result], folder: Path, *, what_ifs: Any = ()
) -> None:
    """Write the folder of one or several results of a kind.

    Args:
        kind: Of all of them.
        results: By label; the first is what others are compared with.
        folder: Where.
        what_ifs: Of a training step, assumptions about the first.
    """
    scenarios = {name: one.scenario for name, one in results.items()}
    some: Any = results
    if kind == "collective":
        write_collectives(folder, results=some, scenarios=scenarios)
    elif kind == "workload":
        write_training(folder, results=some, scenarios=scenarios, what_ifs=what_ifs)
    else:
        write_traffic(folder, results=some, scenarios=scenarios)


def write_columns(folder: Path, rows: list[dict[str, str]]) -> None:
    """Write rows of ASTRA-sim's columns beside the results of a folder.

    Args:
        folder: Where results were written.
        rows: With the same columns.

    Raises:
        InputError: The file cannot be written.
    """
    write_bytes(folder / ASTRA_SIM, columns_csv(*rows).encode(), output=OUTPUT)


def picture(fabric: GraphLike | Fabric, path: str | os.PathLike[str]) -> None:
    """Draw one plane of a fabric.

    Args:
        fabric: A preset's name, a file, or a `GraphFabric`; one of more than 256 NPUs is drawn as a
            smaller one of its kind, and the picture says so.
        path: The SVG file to write.

    Raises:
        InputError: It is no graph fabric, too large to be drawn, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix != ".svg":
        raise InputError(
            "pictures are SVG", hint="name it `.svg`", source="--picture", value=str(path)
        )
    graph = graph_fabric(fabric)
    write_text(path, svg(topology(graph), name=NAME))


def _placement(placed: Any, folder: Path) -> None:
    where = None if placed.is_queue else Whereabouts(placed.fabric, placed)
    write_placement(folder, placed, where=where)


def _sweep(swept: Any, folder: Path) -> None:
    write_sweep(swept, folder)


def _result(result: Any, folder: Path) -> None:
    what_ifs = getattr(result, "what_ifs", ())
    write_results(result.kind, {_name(result): result}, folder, what_ifs=what_ifs)
    if result.astra_sim is not None:
        write_columns(folder, [dict(result.astra_sim)])


def _name(result: Any) -> str:
    """How a result is called that stands alone."""
    if result.kind == "collective":
        return str(result.policy)
    if result.kind == "traffic":
        return str(result.pattern)
    work = result.scenario.workload
    name = work.title if work is not None else "workload"
    return f"{name} {result.policy} {result.tensor_policy}"


def _comparison(answer: Any, folder: Path) -> None:
    write_results(answer.job, {row.label: row.result for row in answer}, folder)


def _tuning(answer: Any, folder: Path) -> None:
    folders.write(folder, "tuning", {**answer.to_dict(), **answer.searched()})


def _required(answer: Any, folder: Path) -> None:
    write_curves(folder, answer)


def _verdict(answer: Any, folder: Path) -> None:
    folders.write(folder, "verdict", {**answer.to_dict(), "run": answer.run})


def _recorded(answer: Any, folder: Path) -> None:
    file = folder / answer.trace.name
    write_bytes(file, trace_gzip(list(answer.records)), option="--trace")


def _expected(answer: Any, folder: Path) -> None:
    folders.write(folder, "expected", {**answer, "notes": [*answer.notes, answer.error]})


def _calibration(answer: Any, folder: Path) -> None:
    folders.write(folder, "calibration", answer.to_dict())


def _layouts(answer: Any, folder: Path) -> None:
    more = {
        "job": job_tree(answer.job),
        "calibrated": load_any_fabric(answer.job.fabric).calibrated,
        "scenario": answer.scenario_for(None),
        "known_error": line_of(load_scenario(answer.plain_scenario)),
    }
    folders.write(folder, "layouts", tree_of(answer) | more)


_WRITERS: Mapping[str, Callable[[Any, Path], None]] = {
    "collective": _result,
    "workload": _result,
    "traffic": _result,
    "comparison": _comparison,
    "layouts": _layouts,
    "placement": _placement,
    "verdict": _verdict,
    "recorded": _recorded,
    "expected": _expected,
    "calibration": _calibration,
    "required": _required,
    "sweep": _sweep,
    "tuning": _tuning,
}
