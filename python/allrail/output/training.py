"""What `--out DIR` writes of training steps.

`result.json`; the tables `training` (a row a result), `exposed` (by purpose), `passes`,
`dimensions`, `links` and `busiest_links` (network models of messages), `actors`, `critical_path`,
`timeline` and `what_ifs` as CSV and Parquet; pictures as SVG and PNG;
`report.html`; where there is a timeline `trace.json.gz` with a process an actor, and
`kineto/rank_N.json.gz` with each of them alone, for analysers that read a file a rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allrail import _core
from allrail.base.files import staged_folder
from allrail.output.frames import DIMENSION_TYPES, write_frame
from allrail.output.kineto import Named, compressed, first_ranks, trace_of
from allrail.output.report import style, training
from allrail.output.report.training_page import page
from allrail.output.write import (
    OUTPUT,
    REPORT_FILE,
    RESULT_FILE,
    check_folder,
    input_tree,
    result_tree,
    write_json,
)
from allrail.results.columns import TRAINING, rates
from allrail.results.training_result import TrainingResult

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from allrail.scenario import Scenario
    from allrail.simulation.assumptions import WhatIf

KINETO = "kineto"
MOST_TRACES = 64
"""Files in `kineto`; more actors are in `trace.json.gz` only."""

_PASSES = {
    "pass": "String",
    "time_us": "Float64",
    "compute_us": "Float64",
    "exposed_us": "Float64",
    "waiting_us": "Float64",
}
_LINKS = {
    "name": "String",
    "links": "Int64",
    "bandwidth_gbps": "Float64",
    "mean": "Float64",
    "max": "Float64",
    "busiest": "String",
}
_BUSIEST = {"name": "String", "bandwidth_gbps": "Float64", "utilisation": "Float64"}
_ACTORS = {
    "name": "String",
    "ranks": "Int64",
    "compute_us": "Float64",
    "exposed_communication_us": "Float64",
    "waiting_us": "Float64",
}
_PATH = {
    "what": "String",
    "name": "String",
    "actor": "String",
    "purpose": "String",
    "dimension": "String",
    "time_us": "Float64",
    "share": "Float64",
}
_TIMELINE = {
    "actor": "String",
    "track": "String",
    "name": "String",
    "iteration": "Int64",
    "start_us": "Float64",
    "end_us": "Float64",
    "purpose": "String",
    "work_pass": "String",
    "operation": "String",
    "bytes": "Int64",
    "group": "String",
    "group_size": "Int64",
    "communication": "Int64",
}
_WHAT_IFS = {
    "name": "String",
    "step_time_us": "Float64",
    "compute_us": "Float64",
    "exposed_communication_us": "Float64",
    "waiting_us": "Float64",
    "speedup": "Float64",
}


def write_training(
    folder: Path,
    *,
    results: Mapping[str, TrainingResult],
    scenarios: Mapping[str, Scenario],
    what_ifs: Sequence[WhatIf] = (),
) -> None:
    """Write the folder of one or several results.

    Args:
        folder: Where; it and its parents are made.
        results: By name; the first is what others are compared with.
        scenarios: What was simulated, by the same names.
        what_ifs: Assumptions about the first.

    Raises:
        InputError: The folder cannot be written, or a file of another program is in the way.
    """
    check_folder(folder)
    inputs = {name: input_tree(scenario) for name, scenario in scenarios.items()}
    told = [one.to_dict() for one in what_ifs]
    with staged_folder(folder, OUTPUT) as staged:
        pictures = style.write(staged, _drawn(results, what_ifs))
        for name, frame in frames(results, scenarios, what_ifs).items():
            write_frame(frame, folder=staged, name=name)
        _write_traces(staged, results, scenarios)
        html = page(
            results,
            inputs={name: describe(tree) for name, tree in inputs.items()},
            pictures=pictures,
            what_ifs=told,
            version=_core.version(),
        )
        (staged / REPORT_FILE).write_text(html, encoding="utf-8")
        tree = result_tree(results, inputs=inputs)
        write_json(staged / RESULT_FILE, {**tree, "what_ifs": told} if told else tree)


def frames(
    results: Mapping[str, TrainingResult],
    scenarios: Mapping[str, Scenario],
    what_ifs: Sequence[WhatIf] = (),
) -> dict[str, pl.DataFrame]:
    """Every table by name.

    Args:
        results: By name.
        scenarios: By the same names.
        what_ifs: Assumptions about the first.
    """
    each = list(results.items())
    tables = {
        "training": _frame(
            [(name, _columns(result, scenarios[name])) for name, result in each], TRAINING
        ),
        "exposed": _frame(
            [
                (name, {"purpose": purpose, "exposed_us": us})
                for name, result in each
                for purpose, us in result.exposed_us.items()
            ],
            {"purpose": "String", "exposed_us": "Float64"},
        ),
        "passes": _frame(
            [
                (name, {"pass": part, **asdict(one)})
                for name, result in each
                for part, one in result.passes.items()
            ],
            _PASSES,
        ),
        "dimensions": _records(each, "dimensions", DIMENSION_TYPES),
        "actors": _records(each, "actors", _ACTORS),
        "critical_path": _records(each, "critical_path", _PATH),
    }
    if any(result.links for result in results.values()):
        tables["links"] = _records(each, "links", _LINKS)
        tables["busiest_links"] = _records(each, "busiest_links", _BUSIEST)
    if any(result.timeline for result in results.values()):
        tables["timeline"] = _records(each, "timeline", _TIMELINE)
    if what_ifs:
        name = next(iter(results))
        tables["what_ifs"] = _frame([(name, one.to_dict()) for one in what_ifs], _WHAT_IFS)
    return tables


def describe(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario as people read it: a model by its name, not by all its layers.

    Args:
        tree: As plain values, with a workload.
    """
    work = dict(tree["workload"])
    title = work.pop("name", "workload")
    short = {key: one for key, one in work["model"].items() if isinstance(one, str)}
    return {**tree, "workload": {**work, "model": short or title}}


def _drawn(results: Mapping[str, TrainingResult], what_ifs: Sequence[WhatIf]) -> dict[str, Figure]:
    name, first = next(iter(results.items()))
    drawn: dict[str, Figure] = {}
    if first.timeline:
        drawn[training.STEP] = training.step(name, first)
    drawn[training.BREAKDOWN] = training.breakdown(results)
    if len(results) == 1 and len(first.actors) > 1:
        drawn[training.ACTORS] = training.actors(first)
    if what_ifs:
        drawn[training.WHAT_IFS] = training.what_ifs(first, what_ifs)
    return drawn


def _write_traces(
    folder: Path, results: Mapping[str, TrainingResult], scenarios: Mapping[str, Scenario]
) -> None:
    shown = [
        Named(name, result, _precision(scenarios[name]))
        for name, result in results.items()
        if result.timeline
    ]
    if not shown:
        return
    (folder / "trace.json.gz").write_bytes(compressed(trace_of(shown)))
    (folder / KINETO).mkdir()
    ranks = first_ranks(shown[0].result.actors)
    for process, (actor, rank) in enumerate(list(ranks.items())[:MOST_TRACES]):
        tree = trace_of(shown[:1], actor=actor, first_process=process)
        (folder / KINETO / f"rank_{rank}.json.gz").write_bytes(compressed(tree))


def _precision(scenario: Scenario) -> str:
    if scenario.workload is None:
        return "fp16"
    work = scenario.workload.whole
    return work.gradient_precision or work.precision


def _columns(result: TrainingResult, scenario: Scenario) -> dict[str, Any]:
    row = {name: getattr(result, name, None) for name in TRAINING} | rates(result)
    title = scenario.workload.title if scenario.workload is not None else None
    named = {"workload": title, "fabric": scenario.fabric.name, "what_if": scenario.what_if}
    return {**row, **named}


def _records(
    each: Iterable[tuple[str, TrainingResult]], of: str, types: Mapping[str, str]
) -> pl.DataFrame:
    rows = [
        (name, {key: getattr(one, key) for key in types})
        for name, result in each
        for one in getattr(result, of) or ()
    ]
    return _frame(rows, types)


def _frame(rows: Sequence[tuple[str, Mapping[str, Any]]], types: Mapping[str, str]) -> pl.DataFrame:
    import polars as pl

    columns: dict[str, list[Any]] = {"result": [name for name, _ in rows]}
    for key in types:
        columns[key] = [row.get(key) for _, row in rows]
    schema = {"result": pl.String, **{name: getattr(pl, kind) for name, kind in types.items()}}
    return pl.DataFrame(columns, schema=schema)
